// Package level keeps the files of a level: shards and packs that appear whole or not at all, manifests that commit
// epochs, the small files of the job, and the lock by which one run has a directory for itself. It knows one directory
// at a time and nothing of other ranks.
package level

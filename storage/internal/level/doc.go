// Package level says what a place for epochs can do (Level), and has the one on a POSIX file system (Dir): shards and
// packs that appear whole or not at all, manifests that commit epochs, the small files of the job, and the lock by
// which one run has a directory for itself. It knows one place at a time and nothing of other ranks.
package level

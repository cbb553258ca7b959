// Package job holds the common parts of the applications besides their mathematics: the flags for devices and
// checkpoint directories, the world with or without MPI, progress, and result files.
//
// An application adds its flags to those of Options, parses them and then opens, in
// this order, the World, the Device and the Checkpoints.
package job

// Package job has the messages between a job with checkpoints and other processes: the supervisor that starts it and
// gets its reports (holdfast run), the guards that watch over the supervisor from other nodes, and clients that ask for
// a checkpoint or for the state of every rank (holdfast request, status).
//
// Whoever connects proves a key; then both sides send JSON, a line each.
package job

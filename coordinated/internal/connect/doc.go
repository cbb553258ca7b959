// Package connect joins the ranks of a job: they meet in Open, find out their nodes and shared directories, exchange
// the job's key, and build the control plane. Until then MPI carries the messages, or a program in other processes, and
// each step succeeds or fails on all ranks alike.
package connect

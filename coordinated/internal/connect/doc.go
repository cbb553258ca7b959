// Package connect brings the ranks of a job together: they meet in Open, learn which rank is on
// which node and which directories they share, exchange the job's key, and build the control
// plane. Until then MPI carries the messages, or a program in other processes, and each step
// succeeds or fails on all ranks alike.
package connect

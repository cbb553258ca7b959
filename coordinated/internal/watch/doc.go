// Package watch observes main threads, even inside MPI: the place of a call in the program, whether a thread that polls
// counts as waiting, and which ranks can never go on. A Thread has the library's own knowledge of the main thread. The
// package looks and judges; coordinated decides on the consequences.
package watch

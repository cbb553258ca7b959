// Package decide is what holdfast run decides, as a state machine: what has happened goes in with
// the time at which it did, and what is to be done comes out. It has no clock, no file, no process
// and no connection, so that every run of a job can be told as a text; testdata holds some.
//
// # A run
//
// A run consists of starts of the program. A start is chosen its nodes, goes on until its launcher
// has exited, and is judged: the program has ended, or it is started once more on what is left, or
// the run ends and puts the job back into the queue where it was asked to.
//
// # Questions
//
// AskJob, Requeue, Salvage and Start are answered by the next events, in the order in which they
// were asked. The answers to Examine, Peek and RequestStop come when they are there.
package decide

// Package decide has the decisions of holdfast run, as a state machine: events go in with their times, and actions come
// out. It has no clock, no file, no process and no connection, so that every run of a job can be told as a text;
// testdata holds some.
//
// # A run
//
// A run consists of starts of the program. The machine chooses the nodes of a start and judges it when its launcher has
// exited. Either the program has ended, or it is started once more on the remaining nodes, or the run ends and puts the
// job back into the queue if asked to.
//
// # Questions
//
// AskJob, Requeue, Salvage and Start are answered by the next events, in the order in which they
// were asked. The answers to Examine, Peek and RequestStop come when they are there.
package decide

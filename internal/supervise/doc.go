// Package supervise starts a program again and again until it has ended: on the remaining nodes when one dies, with a
// final checkpoint before the time limit, and back into the queue. It is the work of holdfast run.
//
// Package decide makes the decisions; this package carries them out. Each owns its state: setup has the facts known
// before the first start, start has one start of the program, requeuers have the processes that watch over this one
// from other nodes. run passes events to the decisions.
package supervise

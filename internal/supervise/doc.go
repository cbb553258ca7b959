// Package supervise starts a program again and again until it has ended: on what is left when a
// node dies, with a final checkpoint before the time limit, and back into the queue. It is what
// holdfast run does.
//
// decide says what is to be done and why; this package has the hands for it. Each owns its state:
// setup what is known before the first start, start one start of the program, requeuers the
// processes that watch over this one from other nodes. run brings the decisions what they hear.
package supervise

// Package supervise starts a program again and again until it has ended: on what is left when a
// node dies, with a final checkpoint before the time limit, and back into the queue. It is what
// holdfast run does.
package supervise

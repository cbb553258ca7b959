// Package vote is how ranks agree on epochs: what each has written, committed or can restore,
// in bytes, and what follows from the votes of all.
package vote

// Package vote is how ranks agree: what each says of an operation that all take part in,
// in bytes, and what follows from what all have said. It fails for all if it failed for
// one, with a RanksError that names the ranks and says each reason once.
package vote

package main

// A partition deals out bodies to ranks: rank r owns a contiguous block, and
// the sizes of two blocks differ by at most one.
type partition struct{ bodies, ranks int }

// block returns the bodies lo to hi-1 that a rank owns.
func (p partition) block(rank int) (lo, hi int) {
	return p.bodies * rank / p.ranks, p.bodies * (rank + 1) / p.ranks
}

// size returns the number of bodies that a rank owns.
func (p partition) size(rank int) int {
	lo, hi := p.block(rank)
	return hi - lo
}

// largest returns the size of the largest block.
func (p partition) largest() int { return (p.bodies + p.ranks - 1) / p.ranks }

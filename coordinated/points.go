//go:build !race

package coordinated

import "sync/atomic"

// pointCount counts what one goroutine does and others read. A locked add would be
// most of the cost of a Point, so the only writer adds without one: readers may
// see the count a moment late, and whoever needs it exact reads it after the
// writer has told it something through a channel. The race detector is right
// to object; under it the add is atomic.
type pointCount struct {
	n   uint64
	far func() uint64 // of a program elsewhere, which counts by itself; nil: none
}

func (t *pointCount) add() { t.n++ }

func (t *pointCount) load() uint64 {
	if t.far != nil {
		return t.far()
	}
	return atomic.LoadUint64(&t.n)
}

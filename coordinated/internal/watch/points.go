//go:build !race

package watch

import "sync/atomic"

// PointCount counts the Points that the main thread reaches, for other goroutines. A locked add would be most of the
// cost of a Point, so the only writer adds without one: readers may see the count late. A reader that needs it exact
// reads it after the writer has sent it something through a channel. The race detector is right to object; under it the
// add is atomic.
type PointCount struct {
	n uint64

	Foreign func() uint64 // of a program in another process, which counts itself; or nil
}

// Add counts a Point; only the main thread calls it.
func (t *PointCount) Add() { t.n++ }

// Load returns the Points so far, from any goroutine.
func (t *PointCount) Load() uint64 {
	if t.Foreign != nil {
		return t.Foreign()
	}
	return atomic.LoadUint64(&t.n)
}

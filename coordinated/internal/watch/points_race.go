//go:build race

package watch

import "sync/atomic"

// PointCount as the race detector wants it; see points.go.
type PointCount struct {
	n atomic.Uint64

	Foreign func() uint64
}

// Add counts a Point; only the main thread calls it.
func (t *PointCount) Add() { t.n.Add(1) }

// Load returns the Points so far, from any goroutine.
func (t *PointCount) Load() uint64 {
	if t.Foreign != nil {
		return t.Foreign()
	}
	return t.n.Load()
}

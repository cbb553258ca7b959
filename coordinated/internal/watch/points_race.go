//go:build race

package watch

import "sync/atomic"

// PointCount as the race detector wants it; see points.go.
type PointCount struct {
	n atomic.Uint64

	Far func() uint64
}

// Add counts a Point; on the main thread alone.
func (t *PointCount) Add() { t.n.Add(1) }

// Load returns the Points so far, from any goroutine.
func (t *PointCount) Load() uint64 {
	if t.Far != nil {
		return t.Far()
	}
	return t.n.Load()
}

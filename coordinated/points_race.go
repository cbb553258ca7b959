//go:build race

package coordinated

import "sync/atomic"

// pointCount as the race detector wants it; see points.go.
type pointCount struct {
	n   atomic.Uint64
	far func() uint64
}

func (t *pointCount) add() { t.n.Add(1) }

func (t *pointCount) load() uint64 {
	if t.far != nil {
		return t.far()
	}
	return t.n.Load()
}

//go:build race

package coordinated

import "sync/atomic"

// pointCount as the race detector wants it; see points.go.
type pointCount struct{ n atomic.Uint64 }

func (t *pointCount) add()         { t.n.Add(1) }
func (t *pointCount) load() uint64 { return t.n.Load() }

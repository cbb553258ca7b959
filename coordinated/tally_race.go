//go:build race

package coordinated

import "sync/atomic"

// tally as the race detector wants it; see tally.go.
type tally struct{ n atomic.Uint64 }

func (t *tally) add()         { t.n.Add(1) }
func (t *tally) load() uint64 { return t.n.Load() }

package call

import "sync/atomic"

// Go's atomic stores are sequentially consistent, which costs a locked
// instruction; a wrapped MPI call that makes six of them pays for it. What one
// writer publishes needs only that its earlier writes are seen first, which an
// ordinary store gives on amd64.

// Published is an atomic value that one goroutine writes and any reads. Set may be used
// if no two goroutines write at the same time; readers use Load.
type Published struct{ atomic.Uint64 }

// Increase adds n. No other goroutine may write at the same time.
func (u *Published) Increase(n uint64) { u.Set(u.Load() + n) }

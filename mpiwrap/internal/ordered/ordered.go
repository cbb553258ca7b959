// Package ordered has a counter that one goroutine writes and any reads.
//
// Go's atomic stores are sequentially consistent, which costs a locked
// instruction; a wrapped MPI call that makes six of them pays for it. What one
// writer publishes needs only that its earlier writes are seen first, which an
// ordinary store gives on amd64.
package ordered

import "sync/atomic"

// Uint64 is an atomic value. Set may be used where no two goroutines write at
// the same time; readers use Load.
type Uint64 struct{ atomic.Uint64 }

// Increase adds n. No other goroutine may write at the same time.
func (u *Uint64) Increase(n uint64) { u.Set(u.Load() + n) }

package shm

import (
	"runtime"
	"sync/atomic"
	"time"
)

// How waits go on. A thread that waits for short times stays awake; one that waits for long times would gain nothing
// from that. To be woken takes 10 to 40 us.
const (
	mostShort  = 8
	longest    = 10 * time.Millisecond
	spareCores = 4 // with fewer, staying awake takes the other side's core
)

// yieldEvery is the time after which a thread that stays awake lets others have the processor. Where some are idle,
// which is where anybody stays awake, Gosched wakes one each time.
const yieldEvery = 50 * time.Microsecond

// SpareCores reports whether there are cores to stay awake on.
func SpareCores() bool { return runtime.GOMAXPROCS(0) >= spareCores }

// Awake decides whether a reader spins before it sleeps: it does while its recent waits have been short.
type Awake struct {
	Spare bool         // there are cores to stay awake on
	short atomic.Int32 // above 0 when waits have been short
}

// Stays reports whether Wait stays awake.
func (a *Awake) Stays() bool { return a.Spare && a.short.Load() > 0 }

// Wait spins until it is ready, up to a limit. The limit does not run while busy, which may be nil, reports true, for
// 10 ms at most. It returns whether it is ready.
func (a *Awake) Wait(moment time.Duration, ready, busy func() bool) bool {
	if !a.Stays() {
		return false
	}
	begin, end := time.Now(), moment
	for yield := yieldEvery; ; {
		for range 32 {
			if ready() {
				a.short.Store(min(a.short.Load()+1, mostShort))
				return true
			}
		}
		spent := time.Since(begin)
		if busy != nil && busy() {
			end = min(spent+moment, longest)
		}
		if spent > end {
			return false
		}
		if spent > yield {
			runtime.Gosched()
			yield = spent + yieldEvery
		}
	}
}

// Slept records how long a reader has slept that would have spun.
func (a *Awake) Slept(moment, d time.Duration) {
	if n := a.short.Load(); d < 2*moment {
		a.short.Store(min(n+2, mostShort))
	} else {
		a.short.Store(max(n-1, 0))
	}
}

package fake

import (
	"sync"

	"github.com/holdfast-hpc/holdfast/gpustate/internal/driver"
)

// Faults selects the failures. Counts are used up by the calls they fail. The zero value lets everything succeed.
type Faults struct {
	mu        sync.Mutex
	allocs    int // memory objects until one fails; 0: none fails
	reads     int
	writes    int
	launches  int
	late      int
	lost      bool
	full      bool
	allocated int // memory objects that live on all devices
}

// FailAlloc lets the n-th creation of a memory object from now on fail with
// ErrOutOfMemory; n counts from 1, 0 takes the fault back.
func (f *Faults) FailAlloc(n int) { f.set(&f.allocs, n) }

// LateAlloc lets the n-th command from now on be refused with ErrOutOfMemory, as drivers
// do that take an object's memory at its first use.
func (f *Faults) LateAlloc(n int) { f.set(&f.late, n) }

// FailRead lets the n-th read from now on fail.
func (f *Faults) FailRead(n int) { f.set(&f.reads, n) }

// FailWrite lets the n-th write from now on fail.
func (f *Faults) FailWrite(n int) { f.set(&f.writes, n) }

// FailLaunch lets the n-th kernel from now on fail while it runs: the launch
// succeeds, its event does not.
func (f *Faults) FailLaunch(n int) { f.set(&f.launches, n) }

// Lose makes every call on every device of the library fail from now on, until Find.
func (f *Faults) Lose() { f.lose(true) }

// Find ends Lose.
func (f *Faults) Find() { f.lose(false) }

func (f *Faults) lose(is bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.lost = is
}

// Full lets every creation of a queue and of page-locked memory fail with ErrOutOfMemory while it is so, as drivers do
// that have not even a little device memory left for them.
func (f *Faults) Full(is bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.full = is
}

func (f *Faults) room(call string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.full {
		return fault(call, "no memory left", driver.ErrOutOfMemory)
	}
	return nil
}

// Live returns the number of memory objects that exist, to find leaks.
func (f *Faults) Live() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.allocated
}

func (f *Faults) set(what *int, n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	*what = n
}

func fault(call, text string, kind error) error {
	return &driver.CallError{Call: call, Code: -1, Text: text, Kind: kind}
}

// hit counts one call down and reports its failure.
func (f *Faults) hit(call string, what *int, kind error) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.lost {
		return fault(call, "device lost", driver.ErrDeviceLost)
	}
	if what == nil || *what == 0 {
		return nil
	}
	if *what--; *what > 0 {
		return nil
	}
	return fault(call, "injected fault", kind)
}

func (f *Faults) count(n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.allocated += n
}

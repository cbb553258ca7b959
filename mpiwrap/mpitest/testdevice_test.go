package mpitest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"
)

// testDevice is memory that the program reaches only through copies and commands of its queue, which take their time:
// what has not been waited for is not there. It is part of a larger buffer, of which nothing else may change.
type testDevice struct {
	mem   []int64 // guarded by mu while anything is enqueued
	all   []int64 // with what lies around it
	bug   bug
	lends lending
	kind  string // if it is not that of lends
	whole sync.RWMutex
	freed atomic.Bool
	late  atomic.Bool // memory was asked for after what is enqueued, which needs the program

	mu   sync.Mutex
	last chan struct{} // closed when all that was enqueued is done
	held chan struct{} // closed when a command that waits for the program may go on; nil is none
}

// lending is what a test device does when MPI is to have its memory's address.
type lending int

const (
	lendsNothing lending = iota // it has none
	lendsMemory
	lendsOther // it gives the address of other memory: a trial must find out
	lendings
)

// bug is one that a test device has on purpose.
type bug int

const (
	noBug        bug = iota
	ignoresMark      // a piece is written at once, whatever the queue was given before the receive
	losesMark        // a piece is written after all that is enqueued, also after the receive
	readsLate        // a message has what the queue was given after the send
	writesBeside     // a piece that is not the first is written too far by one element
	dropsPiece       // a piece that is not the first is not written
	bugs
)

const (
	margin  = 2
	outside = 0x0dd_0dd
)

func newTestDevice(n int) *testDevice {
	d := &testDevice{all: slices.Repeat([]int64{outside}, n+2*margin)}
	d.mem = d.all[margin : margin+n : margin+n]
	clear(d.mem)
	return d
}

func deviceWith(v []int64) *testDevice {
	d := newTestDevice(len(v))
	copy(d.mem, v)
	return d
}

// dawdle takes time.
func dawdle() {
	n := rand.IntN(4)
	for range n {
		runtime.Gosched()
	}
	if n == 3 {
		time.Sleep(time.Duration(rand.IntN(100)) * time.Microsecond)
	}
}

// enqueue has the queue do something, after all that it was given.
func (d *testDevice) enqueue(do func()) (done chan struct{}) {
	done = make(chan struct{})
	d.mu.Lock()
	before := d.last
	d.last = done
	d.mu.Unlock()
	go func() {
		defer close(done)
		if before != nil {
			<-before
		}
		dawdle()
		d.locked(do)
	}()
	return done
}

func (d *testDevice) locked(do func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	do()
}

// set enqueues what makes the memory v.
func (d *testDevice) set(v []int64) {
	v = slices.Clone(v)
	d.enqueue(func() { copy(d.mem, v) })
}

// spoil enqueues what overwrites the memory.
func (d *testDevice) spoil() { d.set(slices.Repeat([]int64{-1}, len(d.mem))) }

// hold enqueues a command that ends when release is called.
func (d *testDevice) hold() {
	held := make(chan struct{})
	d.mu.Lock()
	before, done := d.last, make(chan struct{})
	d.held, d.last = held, done
	d.mu.Unlock()
	go func() {
		defer close(done)
		if before != nil {
			<-before
		}
		<-held
	}()
}

func (d *testDevice) release() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.held != nil {
		close(d.held)
		d.held = nil
	}
}

// finish waits for all that was enqueued.
func (d *testDevice) finish() {
	if last := d.tail(); last != nil {
		<-last
	}
}

func (d *testDevice) tail() (last chan struct{}) {
	d.locked(func() { last = d.last })
	return last
}

// contents returns what the program reads, and whether what lies around is as it was.
func (d *testDevice) contents() (v []int64, err error) {
	d.locked(func() {
		v = slices.Clone(d.mem)
		if d.late.Load() {
			err = errHeld
		}
		for i, x := range d.all {
			if (i < margin || i >= margin+len(d.mem)) && x != outside {
				err = fmt.Errorf("element %d of a buffer was changed, elements %d to %d are the range", i, margin,
					margin+len(d.mem)-1)
			}
		}
	})
	return v, err
}

// free ends the memory: nothing may touch it any more.
func (d *testDevice) free() { d.freed.Store(true) }

func (d *testDevice) living() {
	if d.freed.Load() {
		panic("memory of a device is used that was freed after its message was complete")
	}
}

func bytesOf(v []int64) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(v))), 8*len(v))
}

func (d *testDevice) Bytes() int   { return 8 * len(d.mem) }
func (d *testDevice) Check() error { return nil }
func (d *testDevice) Device() any  { return d.lends }
func (d *testDevice) Kind() string {
	if d.kind != "" {
		return d.kind
	}
	return []string{"test", "fake", "fake"}[d.lends]
}

var errHeld = errors.New("a receive waits for what was enqueued after it was posted")

// clear reports whether all that is enqueued can end without the program.
func (d *testDevice) clear() (err error) {
	d.locked(func() {
		if d.held != nil {
			err = errHeld
		}
	})
	return err
}

func (d *testDevice) Read(dst []byte) error {
	d.living()
	if err := d.clear(); err != nil {
		return err
	}
	<-d.enqueue(func() { copy(dst, bytesOf(d.mem)) })
	return nil
}

func (d *testDevice) Write(src []byte) error {
	d.living()
	if err := d.clear(); err != nil {
		return err
	}
	<-d.enqueue(func() { copy(bytesOf(d.mem), src) })
	return nil
}

// ReadPieces reads what the pieces hold after what is enqueued now: the program may enqueue what overwrites them.
func (d *testDevice) ReadPieces(off int, dst [][]byte) (waits []func() error, err error) {
	d.living()
	now := make([][]byte, len(dst))
	read := func() {
		for i, p := range dst { // and no more: other pieces may be on their way here
			now[i] = slices.Clone(bytesOf(d.mem)[off : off+len(p)])
			off += len(p)
		}
	}
	var snapped chan struct{}
	if d.bug == readsLate {
		snapped = make(chan struct{})
		go func() {
			time.Sleep(time.Millisecond)
			d.finish()
			d.locked(read)
			close(snapped)
		}()
	} else {
		snapped = d.enqueue(read)
	}
	for i, p := range dst {
		done := make(chan struct{})
		go func() {
			<-snapped
			dawdle()
			copy(p, now[i])
			close(done)
		}()
		waits = append(waits, func() error { <-done; return nil })
	}
	return waits, nil
}

func (d *testDevice) Mark() (any, error) { return testMark{d.tail()}, nil }

type testMark struct{ done chan struct{} }

func (d *testDevice) WritePiece(mark any, off int, src []byte) (func() error, error) {
	d.living()
	m, ok := mark.(testMark)
	if !ok || d.bug == losesMark {
		if err := d.clear(); err != nil {
			return nil, err
		}
		m.done = d.tail()
	}
	if d.bug == dropsPiece && off > 0 {
		src = nil
	} else if d.bug == writesBeside && off > 0 {
		off += 8
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		if m.done != nil && d.bug != ignoresMark {
			<-m.done
		}
		dawdle()
		d.locked(func() { copy(bytesOf(d.all)[8*margin+off:], src) })
	}()
	return func() error { <-done; return nil }, nil
}

func (d *testDevice) Whole(do func() error) error {
	d.whole.RLock()
	defer d.whole.RUnlock()
	return do()
}

func (d *testDevice) Lend(mark any, do func(uintptr) error) error {
	d.living()
	if d.lends == lendsNothing {
		return errors.ErrUnsupported
	}
	m, ok := mark.(testMark)
	if !ok || d.bug == losesMark {
		if err := d.clear(); err != nil {
			d.late.Store(true)
			return err
		}
		m.done = d.tail()
	}
	if m.done != nil && d.bug != ignoresMark {
		<-m.done
	}
	memory := d.mem
	if d.lends == lendsOther {
		memory = slices.Clone(d.mem)
		if len(memory) > 0 {
			memory[min(len(memory), 512)-1]++ // the last element of a piece
		}
	}
	return d.Whole(func() error { return do(uintptr(unsafe.Pointer(unsafe.SliceData(memory)))) })
}

func (d *testDevice) LendWith(mark, other, after any, do func(p, q uintptr) error) error {
	return d.Lend(mark, func(p uintptr) error {
		return other.(*testDevice).Lend(after, func(q uintptr) error { return do(p, q) })
	})
}

func (d *testDevice) Pin([]byte) (func() error, error) { return func() error { return nil }, nil }

func (d *testDevice) Common(any) int { return 0 }

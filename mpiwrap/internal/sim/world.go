// Package sim runs the ranks of an MPI program as goroutines of one process,
// behind the same interface as a real MPI library.
//
// It is for tests and for programs run without MPI; it never calls itself an MPI. Choices that MPI leaves open are
// drawn from a seed: how long a message stays invisible, which sender's message is seen first, whether a goroutine
// yields inside a call, how long a matched message's bytes are still under way, when a one-sided access happens before
// its synchronisation. MPI's promises are kept: messages of one sender and communicator are matched in the order of
// sending, posted receives come first, a blocked call ends when its condition is met.
//
// # Stricter than MPI
//
// Ranks that call different collectives, or disagree about a root or a length, all get an error. With Pinned a world
// ends with an error when a message layer would touch memory of a call under way that is not pinned. A world in which
// every rank is blocked or has returned ends with an error that names each rank's call.
//
// # Concurrency
//
// A World serves all ranks; each rank's driver belongs to one goroutine at a
// time, unless the World is Concurrent.
package sim

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"

	"github.com/holdfast-hpc/holdfast/mpiwrap/internal/driver"
)

// ErrDeadlock is the error of blocked calls when no rank can go on.
var ErrDeadlock = errors.New("all ranks are blocked or have returned")

// ErrKilled is the error of every call of a killed rank.
var ErrKilled = errors.New("rank was killed by the test")

// Options shape a World. The zero value is a quiet, deterministic network.
type Options struct {
	// Seed drives every random choice.
	Seed uint64
	// EagerBytes is the longest message a standard send buffers; a longer one
	// blocks its sender until it is matched. Zero means 4096, negative none.
	EagerBytes int
	// Delay is the chance that a call does not yet see a message that has been
	// sent, from 0 to below 1. Zero means that messages are seen at once.
	Delay float64
	// Concurrent lets several goroutines be inside a rank's calls at once. Then a deadlock is not noticed: any rank
	// might still call.
	Concurrent bool
	// Pinned reports whether memory is pinned, as pinned.Is does: then buffers of
	// non-blocking calls must be while they are touched. Nil demands nothing.
	Pinned func(b []byte) bool
}

// slotBytes is the memory for small messages: little, so that tests also meet
// the case that none is left.
const slotBytes = 2 << 10

// maxTag is the largest tag accepted, as MPICH's.
const maxTag = 1<<28 - 1

// World is one simulated job.
type World struct {
	opt   Options
	mu    sync.Mutex // guards everything below and all ranks' state
	ranks []*rank
	comms map[driver.Handle]*comm
	wins  map[driver.Handle]*window

	nextHandle driver.Handle
	blocked    int
	finished   int
	aborted    error
}

type rank struct {
	w        *World
	id       int
	rng      *rand.Rand
	cond     *sync.Cond
	waiting  int    // goroutines of the rank that are blocked
	turn     uint64 // grows when they are woken
	what     string // the rank's call, while one is under way
	killed   bool
	finished bool

	calls      uint64     // made so far
	transfers  []*request // receives that are matched, their bytes under way
	accesses   []access   // one-sided, not done yet, in order
	incoming   []*channel // not yet seen, one queue per sender and communicator
	unexpected []*message // seen, not matched
	posted     []*request // receives not matched
	requests   map[driver.Handle]*request
	messages   map[driver.Handle]*message
	seq        map[driver.Handle]int // collectives entered per communicator
	slots      []byte                // see driver.Info
}

// New makes a world of n ranks.
func New(n int, opt Options) *World {
	opt.EagerBytes = cmp.Or(opt.EagerBytes, 4096)
	w := &World{opt: opt, comms: map[driver.Handle]*comm{}, wins: map[driver.Handle]*window{}}
	members := make([]int, n)
	for i := range members {
		members[i] = i
		r := &rank{w: w, id: i, rng: rand.New(rand.NewPCG(opt.Seed, uint64(i))),
			requests: map[driver.Handle]*request{}, messages: map[driver.Handle]*message{},
			seq: map[driver.Handle]int{}, slots: make([]byte, slotBytes)}
		r.cond = sync.NewCond(&w.mu)
		w.ranks = append(w.ranks, r)
	}
	w.newComm(members)
	return w
}

// Rank returns the driver of world rank i.
func (w *World) Rank(i int) driver.Driver { return w.ranks[i] }

// Abort makes every call of every rank fail with err, those that are blocked
// included. The first reason stays.
func (w *World) Abort(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.abort(err)
}

func (w *World) abort(err error) {
	if w.aborted == nil {
		w.aborted = err
	}
	for _, r := range w.ranks {
		w.wake(r)
	}
}

// Kill makes rank i's calls fail from now on, as if its process had died: the
// others are not told and wait for it.
func (w *World) Kill(i int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ranks[i].killed = true
	w.wake(w.ranks[i])
}

// Finish reports that rank i's program has returned.
func (w *World) Finish(i int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	r := w.ranks[i]
	if !r.finished {
		r.finished = true
		w.finished++
		w.checkDeadlock()
	}
}

func (w *World) checkDeadlock() {
	if w.opt.Concurrent || w.blocked == 0 || w.blocked+w.finished < len(w.ranks) || w.aborted != nil {
		return
	}
	var b strings.Builder
	for _, r := range w.ranks {
		state := "returned"
		if r.waiting > 0 {
			state = "in " + r.what
		}
		fmt.Fprintf(&b, "; rank %d %s", r.id, state)
	}
	w.abort(fmt.Errorf("%w%s", ErrDeadlock, b.String()))
}

func (w *World) wake(r *rank) {
	w.blocked -= r.waiting
	r.waiting = 0
	r.turn++
	r.cond.Broadcast()
}

func (w *World) wakeAll() {
	for _, r := range w.ranks {
		w.wake(r)
	}
}

func (w *World) handle() driver.Handle {
	w.nextHandle++
	return w.nextHandle
}

// dead returns why the rank cannot go on, or nil.
func (r *rank) dead() error {
	switch {
	case r.killed:
		return ErrKilled
	case r.w.aborted != nil:
		return r.w.aborted
	}
	return nil
}

// await returns when ready does, delivering messages meanwhile.
func (r *rank) await(ready func() bool, what func() string) error {
	for {
		if err := r.dead(); err != nil {
			return err
		}
		if ready() {
			return nil
		}
		if r.deliverOne() || r.transferOne() {
			continue
		}
		r.block(what())
	}
}

func (r *rank) block(what string) {
	turn := r.turn
	r.waiting++
	r.what = what
	r.w.blocked++
	r.w.checkDeadlock()
	for r.turn == turn {
		r.cond.Wait()
	}
}

// Info describes the simulator.
func (r *rank) Info() driver.Info {
	return driver.Info{Name: "simulated", MaxTag: maxTag, Slots: r.slots, Concurrent: r.w.opt.Concurrent,
		Pin:     r.w.opt.Pinned != nil,
		Library: fmt.Sprintf("simulated ranks in one process (%d, no MPI)", len(r.w.ranks))}
}

// Finalize marks the rank as done.
func (r *rank) Finalize() error { return nil }

// Abort ends the whole world.
func (r *rank) Abort(code int) {
	r.w.Abort(fmt.Errorf("rank %d called Abort(%d)", r.id, code))
}

func fail(class driver.Class, format string, args ...any) error {
	return &driver.Error{Class: class, Text: fmt.Sprintf(format, args...)}
}

// Over builds a world of package mpiwrap, a *mpiwrap.Comm, on a rank's driver. The
// observer, unless it is nil, is called before every call of the program. Package
// mpiwrap, which stands above this one, sets it.
var Over func(rank driver.Driver, observer func(op string)) (world any, err error)

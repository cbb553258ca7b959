// Package scale simulates the cut protocol on very many ranks in one process,
// to see what grows with their number.
//
// # What is real and what is not
//
// The machines are those of package cut, one per rank, and control messages are
// counted in their encoded size. Programs are simulated on virtual time: they
// compute, send, receive, enter collectives and come to Points. A control
// message takes one hop of latency, and each rank's agent handles messages one
// after the other, each taking a fixed time. There are no goroutines, and a run
// with the same Options gives the same Result.
//
// The simulation says how messages, rounds and bytes grow. It says nothing
// about a real network; times are sums of the latencies put in.
package scale

import (
	"fmt"
	"runtime"
	"time"

	"github.com/holdfast-hpc/holdfast/coordinated/cut"
)

// Options says what to simulate.
type Options struct {
	Ranks  int
	Shape  Shape
	NoHint bool          // without rule R0, which spares most releases
	Fanout int           // children in the control tree, 0 means 8
	Hop    time.Duration // latency of a control message, 0 means 20 µs
	Handle time.Duration // an agent's time per control message, 0 means 2 µs
	Seed   uint64        // of the programs' uneven speeds and of the moment of the request
}

func (o *Options) validate() error {
	if o.Ranks < 2 {
		return fmt.Errorf("scale: %d ranks, want 2 at least", o.Ranks)
	}
	if _, ok := shapes[o.Shape]; !ok {
		return fmt.Errorf("scale: no shape %q", o.Shape)
	}
	if o.Fanout == 0 {
		o.Fanout = 8
	}
	if o.Hop == 0 {
		o.Hop = 20 * time.Microsecond
	}
	if o.Handle == 0 {
		o.Handle = 2 * time.Microsecond
	}
	return nil
}

// Result is what one cut took, from the request to the last rank's Cut action.
type Result struct {
	Ranks     int
	Shape     Shape
	NoHint    bool
	Depth     int           // of the control tree
	Messages  int           // control messages in all
	Busiest   int           // messages sent and received by the rank with most of them
	Bytes     int64         // of all messages
	PeakBytes int64         // sent and received by the rank with most of them
	RootHeap  int64         // heap of the coordinator's machine
	Rounds    int           // freezes
	Releases  int           // Release actions on all ranks
	Iteration time.Duration // of the program, undisturbed
	Cut       time.Duration // virtual time from the request to the cut
}

// PerRank returns the control messages per rank.
func (r Result) PerRank() float64 { return float64(r.Messages) / float64(r.Ranks) }

// Beyond returns the time of the cut beyond one iteration of the program, which
// passes before the last rank reaches a Point whatever the protocol does.
func (r Result) Beyond() time.Duration { return max(0, r.Cut-r.Iteration) }

// Worse returns the higher of each figure of two runs of the same program.
func (r Result) Worse(o Result) Result {
	o.Messages = max(o.Messages, r.Messages)
	o.Busiest = max(o.Busiest, r.Busiest)
	o.Bytes = max(o.Bytes, r.Bytes)
	o.PeakBytes = max(o.PeakBytes, r.PeakBytes)
	o.RootHeap = max(o.RootHeap, r.RootHeap)
	o.Rounds = max(o.Rounds, r.Rounds)
	o.Releases = max(o.Releases, r.Releases)
	o.Cut = max(o.Cut, r.Cut)
	return o
}

// Run simulates one request and its cut, some iterations into the program, and
// checks the cut: all ranks at a Point, communicators level, no rank cut twice.
func Run(opt Options) (Result, error) {
	if err := opt.validate(); err != nil {
		return Result{}, err
	}
	w, err := newWorld(opt)
	if err != nil {
		return Result{}, err
	}
	if err := w.run(); err != nil {
		return Result{}, fmt.Errorf("scale: %s on %d ranks: %w", opt.Shape, opt.Ranks, err)
	}
	return w.result(), nil
}

func (w *world) result() Result {
	r := Result{Ranks: w.opt.Ranks, Shape: w.opt.Shape, NoHint: w.opt.NoHint, Rounds: w.rounds, Releases: w.releases,
		Iteration: w.iteration,
		Cut:       time.Duration(w.cutAt - w.asked)}
	for at := w.opt.Ranks - 1; at > 0; at = (at - 1) / w.opt.Fanout {
		r.Depth++
	}
	for i := range w.ranks {
		t := &w.ranks[i].traffic
		r.Messages += t.sent
		r.Bytes += t.sentBytes
		r.Busiest = max(r.Busiest, t.sent+t.received)
		r.PeakBytes = max(r.PeakBytes, t.sentBytes+t.receivedBytes)
	}
	r.RootHeap = w.rootHeap()
	return r
}

// rootHeap measures what is freed when the coordinator's machine goes.
func (w *world) rootHeap() int64 {
	before := liveHeap()
	w.ranks[0].m = nil
	after := liveHeap()
	runtime.KeepAlive(w)
	return max(0, before-after)
}

func liveHeap() int64 {
	runtime.GC()
	runtime.GC() // the first one may have left what finalizers held
	var s runtime.MemStats
	runtime.ReadMemStats(&s)
	return int64(s.HeapAlloc)
}

// check holds the invariants of a cut against the stopped world.
func (w *world) check() error {
	for i := range w.ranks {
		r := &w.ranks[i]
		if !r.waiting || r.cut != cut.Epoch(1) {
			return fmt.Errorf("rank %d is not at the cut", i)
		}
		for _, c := range r.comms {
			if first := &w.ranks[c.members[0]]; r.entered(c) != first.entered(c) {
				return fmt.Errorf("communicator %s: rank %d entered %d, rank %d %d", c.name, i, r.entered(c),
					c.members[0], first.entered(c))
			}
		}
	}
	return nil
}

package report

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/holdfast-hpc/holdfast/coordinated/events"
)

// world makes up the logs of a job: what ranks on nodes with clocks of their own
// would have written.
type world struct {
	ranks, perNode int
	place          func(node int) int           // of the node that does what node would; nil: itself
	skew           func(node int) time.Duration // of the node's clock
	rng            *rand.Rand
	now            time.Duration // since the first start
	epoch          uint64
	logs           []events.RankLog
	run            int
	begun          time.Duration // of the run
	cur            []events.RankLog
	bytes          int64 // of a rank's state
}

var worldStart = time.Date(2026, 3, 1, 8, 0, 0, 0, time.UTC)

func newWorld(ranks, perNode int) *world {
	return &world{ranks: ranks, perNode: perNode, skew: func(int) time.Duration {
		return 0
	}, rng: rand.New(rand.NewPCG(1, 2)), bytes: 1 << 30}
}

// node returns where a rank is.
func (w *world) node(rank int) int {
	if w.place == nil {
		return rank / w.perNode
	}
	return w.place(rank / w.perNode)
}

// log adds an event of a rank at a real time.
func (w *world) log(rank int, at time.Duration, e events.Event) {
	node := w.node(rank)
	e.Rank, e.Mono = rank, int64(at-w.begun)
	e.Wall = worldStart.Add(at + w.skew(node)).UnixNano()
	w.cur[rank].Events = append(w.cur[rank].Events, e)
}

func (w *world) jitter(d time.Duration) time.Duration {
	return d/2 + time.Duration(w.rng.Int64N(int64(d)))
}

// start begins a run that restores an epoch; 0 is a first start.
func (w *world) start(restored uint64) {
	w.run++
	w.begun = w.now
	w.cur = make([]events.RankLog, w.ranks)
	for r := range w.ranks {
		h := events.Header{Version: events.Version, Job: "ocean", Run: w.run, Size: w.ranks,
			Node: fmt.Sprintf("node%03d", w.node(r)), PID: 1000 + r,
			AliveNS: 5e9, Levels: []string{"local", "global"}, Program: "matmul"}
		w.cur[r] = events.RankLog{Header: h, Rank: r}
		w.log(r, w.begun, events.Event{Name: events.Open, Begin: true, Header: &h})
		w.log(r, w.begun+40*time.Millisecond, events.Event{Name: events.Sync, What: "open",
			Dur: int64(w.jitter(2 * time.Millisecond))})
		open := 60 * time.Millisecond
		w.log(r, w.begun+open, events.Event{Name: events.Open, Dur: int64(open)})
		took := 30 * time.Millisecond
		e := events.Event{Name: events.Restore, Epoch: restored}
		if restored > 0 {
			took = w.jitter(1500 * time.Millisecond)
			e.Level, e.Bytes = "local", w.bytes
		}
		e.Dur = int64(took)
		w.log(r, w.begun+open+time.Millisecond, events.Event{Name: events.Restore, Begin: true})
		w.log(r, w.begun+open+time.Millisecond+took, e)
	}
	w.now += 2500 * time.Millisecond
}

// compute lets time pass.
func (w *world) compute(d time.Duration) { w.now += d }

// checkpoint takes one; late is the last rank to reach its Point. It
// returns the epoch.
func (w *world) checkpoint(by string, late int, stop, flush bool) uint64 {
	w.epoch++
	e := w.epoch
	w.log(0, w.now, events.Event{Name: events.Request, What: by, Stop: stop})
	cut := w.now + 350*time.Millisecond
	for r := range w.ranks {
		w.log(r, w.now+time.Millisecond, events.Event{Name: events.Arm, Epoch: e})
		arrive := w.now + w.jitter(120*time.Millisecond)
		if r == late {
			arrive = cut - 2*time.Millisecond
		}
		w.log(r, arrive, events.Event{Name: events.Park, Begin: true, Epoch: e})
		w.log(r, cut, events.Event{Name: events.Park, Epoch: e, Dur: int64(cut - arrive), Rounds: 1, Stop: stop})
		w.behind(r, e, arrive, cut, stop, flush)
	}
	w.now = cut + 400*time.Millisecond
	if stop {
		w.now += 6 * time.Second
	}
	return e
}

// behind is what follows the cut on one rank.
func (w *world) behind(r int, e uint64, arrive, cut time.Duration, stop, flush bool) {
	drain, capture, write := w.jitter(4*time.Millisecond), w.jitter(160*time.Millisecond),
		w.jitter(900*time.Millisecond)
	at := cut + drain
	w.log(r, at, events.Event{Name: events.Drain, Epoch: e, Dur: int64(drain), Messages: 2, Bytes: 4096})
	at += capture
	w.log(r, at, events.Event{Name: events.Capture, Epoch: e, Dur: int64(capture), Bytes: w.bytes, What: "pool"})
	w.log(r, at+50*time.Microsecond, events.Event{Name: events.Resume, Epoch: e,
		Dur: int64(at + 50*time.Microsecond - arrive), Stop: stop})
	w.log(r, at+time.Millisecond, events.Event{Name: events.Write, Begin: true, Epoch: e, Level: "local"})
	at += time.Millisecond + write
	w.log(r, at, events.Event{Name: events.Write, Epoch: e, Level: "local", Dur: int64(write), Bytes: w.bytes,
		Stored: w.bytes})
	voted := cut + 1800*time.Millisecond
	w.log(r, voted, events.Event{Name: events.Vote, Epoch: e, Level: "local", What: "put", Dur: int64(voted - at)})
	w.log(r, voted+3*time.Millisecond, events.Event{Name: events.Commit, Epoch: e, Level: "local",
		Dur: int64(voted + 3*time.Millisecond - cut)})
	done := voted + 3*time.Millisecond
	if flush && r%w.perNode == 0 {
		w.log(r, done, events.Event{Name: events.Flush, Begin: true, Epoch: e, Level: "global"})
		took := w.jitter(3 * time.Second)
		n := int64(min(w.perNode, w.ranks-r)) * w.bytes
		w.log(r, done+took, events.Event{Name: events.Flush, Epoch: e, Level: "global", Dur: int64(took), Bytes: n,
			Stored: n * 3 / 5})
	}
	if flush {
		w.log(r, voted+5*time.Second, events.Event{Name: events.Commit, Epoch: e, Level: "global",
			Dur: int64(voted + 5*time.Second - cut)})
	}
	if stop {
		w.log(r, voted+5200*time.Millisecond, events.Event{Name: events.Stop, Epoch: e})
	}
}

// end closes the run in order.
func (w *world) end() {
	for r := range w.ranks {
		w.log(r, w.now, events.Event{Name: events.Finish})
		w.log(r, w.now+20*time.Millisecond, events.Event{Name: events.Close, Points: 12345})
	}
	w.now += 20 * time.Millisecond
	w.keep()
}

// dieBehindEpoch returns a first run that takes an epoch after 100 s and dies 50 s later.
func (w *world) dieBehindEpoch() uint64 {
	w.start(0)
	w.compute(100 * time.Second)
	e := w.checkpoint("test", 0, false, false)
	w.compute(50 * time.Second)
	w.kill(-1, false)
	return e
}

// kill ends the run: the others say who is lost, if anybody is asked to.
func (w *world) kill(rank int, said bool) {
	for r := range w.ranks {
		switch {
		case r == rank:
		case said:
			w.log(r, w.now+300*time.Millisecond, events.Event{Name: events.Failure, What: "lost", Peer: &rank,
				Text: fmt.Sprintf("rank %d on node001 is lost (noticed by rank 0: it closed its connection)", rank)})
		default:
			w.log(r, w.now, events.Event{Name: events.Alive, Points: 99})
		}
	}
	w.keep()
}

func (w *world) keep() {
	w.logs = append(w.logs, w.cur...)
	w.cur = nil
}

// pause is time in which the job does not run.
func (w *world) pause(d time.Duration) { w.now += d }

// fullJob returns a job with everything: checkpoints, one given up, a killed run, a
// final checkpoint, clocks that differ.
func fullJob(ranks, perNode, epochs int) *world {
	w := newWorld(ranks, perNode)
	w.skew = func(node int) time.Duration { return time.Duration(node%5) * 700 * time.Millisecond }
	w.start(0)
	var last uint64
	for i := range epochs {
		w.compute(40 * time.Second)
		last = w.checkpoint("Daly's interval", i%ranks, false, true)
	}
	w.compute(25 * time.Second)
	w.kill(ranks-1, true)
	w.pause(30 * time.Second)
	w.start(last)
	w.compute(30 * time.Second)
	w.epoch++
	for r := range ranks { // given up: rank 0 reaches no Point
		w.log(r, w.now, events.Event{Name: events.Arm, Epoch: w.epoch})
		if r > 0 {
			w.log(r, w.now+time.Second, events.Event{Name: events.Park, Begin: true, Epoch: w.epoch})
			w.log(r, w.now+10*time.Second, events.Event{Name: events.Release, Epoch: w.epoch,
				Dur: int64(9 * time.Second)})
		}
		w.log(r, w.now+10*time.Second, events.Event{Name: events.GiveUp, Epoch: w.epoch,
			Text: "epoch given up: 1 rank(s) reached no Point within cut_timeout; rank 0: in Recv on communicator " +
				"world from rank 1 tag 3 at main.go:77"})
	}
	w.compute(20 * time.Second)
	w.checkpoint("signal user defined signal 2", 1%ranks, true, true)
	w.end()
	w.pause(45 * time.Second)
	w.start(w.epoch)
	w.compute(50 * time.Second)
	w.checkpoint("holdfast request", 0, false, false)
	w.compute(40 * time.Second)
	w.end()
	return w
}

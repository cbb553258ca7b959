package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"syscall"
	"time"

	"github.com/holdfast-hpc/holdfast/coordinated/cut"
	"github.com/holdfast-hpc/holdfast/coordinated/events"
	"github.com/holdfast-hpc/holdfast/coordinated/internal/connect"
	"github.com/holdfast-hpc/holdfast/coordinated/internal/trigger"
	"github.com/holdfast-hpc/holdfast/coordinated/internal/watch"
	"github.com/holdfast-hpc/holdfast/internal/endpoint"
	"github.com/holdfast-hpc/holdfast/internal/job"
)

// ErrClosed is returned by an agent that was stopped.
var ErrClosed = errors.New("checkpointer closed")

// AliveEvery is how often a rank looks at its main thread and logs a sign of
// life.
const AliveEvery = 5 * time.Second

// MostReleases is how many times in one epoch a rank logs that it was let go from
// a Point to the next: where it runs many iterations behind the others there may
// be thousands.
const MostReleases = 16

// tickEvery is how often a main thread is looked at while a cut is being agreed
// on. Otherwise there is only the sign of life, every few seconds.
const tickEvery = 500 * time.Microsecond

// Options configure an Agent.
type Options struct {
	Topology *connect.Topology
	Plane    connect.Plane
	Endpoint endpoint.Endpoint
	Private  string // name of the communicator that the program does not see
	Thread   *watch.Thread
	Triggers *trigger.Triggers
	Events   *events.Log // nil: none
	Log      *slog.Logger
	Go       func(func()) // runs f on a goroutine that is waited for at the end

	Last        cut.Epoch     // the highest number in use
	HintSpan    uint64        // as in cut.Config
	CutTimeout  time.Duration // this field and the next as in Options of coordinated
	WaitTimeout time.Duration
	MaxFailed   int

	// The functions below report events of the job. They run on the agent's goroutine unless their comment names
	// another, and must not wait. Arm reports whether Points are to stop.
	Arm func(armed bool)
	// Phase reports the progress of this rank, for tests.
	Phase func(name string)
	// Cut reports that all ranks stand at a Point, before the main thread continues.
	Cut func(e cut.Epoch, how Agreement)
	// GaveUp names the ranks that did not reach a Point, on a goroutine of its own.
	GaveUp func(e cut.Epoch, late []Late)
	// Terminated reports that this process was sent TERM.
	Terminated func()
	// Lost reports once that the job cannot go on; the neighbours know.
	Lost func(l Loss)
	// Status returns the state of this rank for status, without its main thread and the cut.
	Status func() job.RankStatus
}

// Agreement is how a cut came about.
type Agreement struct {
	ToCut            time.Duration // from the request's arrival at this rank
	Rounds, Releases int
}

// Verdict is the agent's answer to a main thread that waits at a Point. Zero means: go on.
type Verdict struct {
	Cut   bool
	Epoch cut.Epoch
	Stop  bool
	Ended bool // all ranks have closed
	// Logged is set if this is a release that goes to the event log.
	Logged bool
}

// Agent is one rank's.
type Agent struct {
	Options
	ctx         context.Context // ends waits for other ranks
	machine     *cut.Machine
	gather      *cut.Gather
	mates       []int       // ranks of this one's node
	nodeGather  *cut.Gather // for the node's own stages
	waiting     map[stageKey]waiter
	closing     []cut.Blob // at rank 0: all ranks have closed, and the epoch in progress is awaited
	begin       time.Time
	armed       time.Time // of the epoch in progress
	releases    int       // of this rank in it
	failedInRow int       // at rank 0: epochs in a row that came to no level

	polls    watch.Polling
	watchdog watchdog

	callSeq   uint64    // the call that the main thread was last seen blocked in
	callSince time.Time // since when

	// At the last sign of life, for status.
	idlePolls, idlePoints uint64
	idleSince             time.Time
	asked                 uint64 // at rank 0: times that all ranks were asked

	alive    *time.Ticker
	verdicts chan Verdict // to the main thread at a Point
	calls    chan func()  // run on the agent's goroutine
	quit     chan struct{}
	done     chan struct{} // closed when it has stopped
	left     bool
	started  bool
}

// New makes an agent whose waiting for other ranks ends with ctx. The caller starts it,
// and stops it then.
func New(ctx context.Context, opt Options) (*Agent, error) {
	t := opt.Topology
	m, err := cut.New(cut.Config{Rank: t.Rank, Size: t.Size(), Parent: t.Parent, Children: t.Children,
		HintSpan: opt.HintSpan, Timeout: opt.CutTimeout, Last: opt.Last})
	if err != nil {
		return nil, err
	}
	mates := t.Mates()
	below := 0
	if mates[0] == t.Rank {
		below = len(mates) - 1
	}
	return &Agent{Options: opt, ctx: ctx, machine: m, gather: cut.NewGather(len(t.Children)),
		mates: mates, nodeGather: cut.NewGather(below), waiting: map[stageKey]waiter{}, begin: time.Now(),
		verdicts: make(chan Verdict, 1),
		calls:    make(chan func()), quit: make(chan struct{}), done: make(chan struct{}),
		alive: time.NewTicker(AliveEvery), watchdog: newWatchdog(opt.WaitTimeout)}, nil
}

// Start begins to listen, to other ranks and to signals.
func (a *Agent) Start() {
	a.Triggers.Catch()
	a.started = true
	go a.run()
}

// Stop ends an agent, if it was started, and waits until it has.
func (a *Agent) Stop() {
	a.Triggers.Release()
	if !a.started { // Open has failed before
		return
	}
	select {
	case <-a.done:
	default:
		close(a.quit)
		<-a.done
	}
}

// Do runs f on the agent's goroutine and waits until it has. The error is ErrClosed, or why
// ctx ended.
func (a *Agent) Do(ctx context.Context, f func()) error {
	ran := make(chan struct{})
	select {
	case a.calls <- func() { f(); close(ran) }:
	case <-a.done:
		return ErrClosed
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	<-ran
	return nil
}

func (a *Agent) run() {
	defer close(a.done)
	defer a.alive.Stop()
	defer a.watchdog.tick.Stop()
	tick := time.NewTicker(tickEvery)
	tick.Stop()
	ticking := false
	for {
		if want := a.machine.Watching(); want != ticking {
			ticking = want
			if want {
				tick.Reset(tickEvery)
			} else {
				tick.Stop()
			}
		}
		select {
		case <-a.quit:
			return
		case in := <-a.Plane.Messages():
			a.receive(in)
		case f := <-a.calls:
			f()
		case l := <-a.Plane.Lost():
			a.leave(-1, cut.Message{Kind: cut.KindLost, Rank: l.Rank, Had: uint64(a.Topology.Rank),
				Stage: fmt.Sprint(l.Err)})
		case s := <-a.Triggers.Signals():
			a.Signalled(s)
		case <-a.Triggers.Timer():
			if w, due := a.Triggers.Due(); due {
				a.request(w)
			}
		case <-a.alive.C:
			a.signOfLife()
		case <-a.watchdog.tick.C:
			a.lookForWaits()
		case <-tick.C:
			if !a.machine.Parked() || a.Endpoint.Concurrent() { // other threads go on
				a.step(a.sample())
			}
			a.step(cut.Tick{Now: time.Since(a.begin)})
		}
	}
}

// Signalled obeys a signal; it runs on the agent's goroutine.
func (a *Agent) Signalled(s os.Signal) {
	w := a.Triggers.Signalled(s)
	if s == syscall.SIGTERM { // only this signal announces the end
		a.Terminated()
	}
	a.request(w)
}

// Request asks all ranks for a checkpoint.
func (a *Agent) Request(ctx context.Context, w trigger.Wish) error {
	return a.Do(ctx, func() { a.request(w) })
}

// request asks for a checkpoint and notes on whose behalf.
func (a *Agent) request(w trigger.Wish) {
	a.Events.Emit(events.Event{Name: events.Request, What: w.By, Stop: w.Stop})
	a.step(cut.Request{Stop: w.Stop})
}

// Final sets when to ask for a final checkpoint; at rank 0.
func (a *Agent) Final(ctx context.Context, at time.Time) error {
	return a.Do(ctx, func() { a.Triggers.Final(at) })
}

// AskAgain asks again, after a pause, for a final checkpoint that has failed.
func (a *Agent) AskAgain(ctx context.Context) error { return a.Do(ctx, a.Triggers.Again) }

// Arrive reports that the main thread waits at a Point for a verdict. If the epoch is over by then, the machine
// releases it.
func (a *Agent) Arrive(ctx context.Context) error { return a.Do(ctx, a.arrive) }

// Verdicts delivers the answers to the main thread at a Point and in Close.
func (a *Agent) Verdicts() <-chan Verdict { return a.verdicts }

// Captured reports that the main thread continues behind a cut.
func (a *Agent) Captured(ctx context.Context, e cut.Epoch) error {
	return a.Do(ctx, func() { a.step(cut.Captured{Epoch: e, Colls: a.colls()}) })
}

// Finish reports that the main thread is in Close, where it takes part in cuts until a verdict ends Close on all ranks.
func (a *Agent) Finish(ctx context.Context) error {
	return a.Do(ctx, func() {
		a.watchdog.since = time.Now()
		a.step(cut.Finished{Points: a.Thread.Points.Load(), Colls: a.colls()})
		a.contribute(stageKey{0, stageClose}, cut.Meeting{})
	})
}

// Library notes that the main thread waits in the library from since on; a zero time that it
// no longer does.
func (a *Agent) Library(ctx context.Context, since time.Time) error {
	return a.Do(ctx, func() { a.watchdog.since = since })
}

// Freed lets rank 0 begin the next epoch: all ranks can release the captured bytes of this one. The epoch has blocked
// the program for cost; err is the reason for which it reached no level.
func (a *Agent) Freed(ctx context.Context, e cut.Epoch, cost time.Duration, err error) error {
	return a.Do(ctx, func() {
		// At rank 0, too many epochs in a row that reached no level end the job.
		if a.failedInRow++; err == nil {
			a.failedInRow = 0
		}
		if a.MaxFailed > 0 && a.failedInRow >= a.MaxFailed && a.ctx.Err() == nil {
			a.leave(-1, cut.Message{Kind: cut.KindLost, Rank: a.Topology.Rank,
				Stage: Aborted(fmt.Errorf("%d consecutive checkpoints reached no level, and max_failed is %d: %w",
					a.failedInRow, a.MaxFailed, err))})
		}
		a.step(cut.Done{Epoch: e, Failed: err != nil})
		a.Triggers.Over(cost)
	})
}

// PutOff ends an epoch of which nothing was captured, and requests the checkpoint again after in; at rank 0. stop marks
// a final one.
func (a *Agent) PutOff(ctx context.Context, e cut.Epoch, stop bool, in time.Duration) error {
	return a.Do(ctx, func() {
		if in > 0 {
			a.Triggers.PutOff(stop, in)
		} else { // before Done: Close waits for it
			a.step(cut.Request{Stop: stop})
		}
		a.step(cut.Done{Epoch: e, Failed: true})
	})
}

package coordinated

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/holdfast-hpc/holdfast/coordinated/control"
	"github.com/holdfast-hpc/holdfast/coordinated/cut"
	"github.com/holdfast-hpc/holdfast/coordinated/events"
	"github.com/holdfast-hpc/holdfast/coordinated/internal/watch"
	"github.com/holdfast-hpc/holdfast/internal/endpoint"
	"github.com/holdfast-hpc/holdfast/internal/job"
	"github.com/holdfast-hpc/holdfast/mpiwrap"
	"github.com/holdfast-hpc/holdfast/storage"
)

// agent is the goroutine that speaks for this rank on the control plane, also
// while the main thread is inside MPI. It drives the cut machine; everything it
// holds belongs to it alone.
type agent struct {
	c           *Checkpointer
	machine     *cut.Machine
	gather      *cut.Gather
	waiting     map[stageKey]chan []cut.Blob
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

	trigger *job.Trigger // at rank 0, nil elsewhere
	timer   *time.Timer
	alive   *time.Ticker

	calls   chan func() // run on the agent's goroutine
	signals chan os.Signal
	heard   <-chan os.Signal // signals, or those of a program elsewhere
	quit    chan struct{}    // closed to stop it
	done    chan struct{}    // closed when it has stopped
	left    bool
}

// stageKey names one allgather.
type stageKey struct {
	epoch cut.Epoch
	name  string
}

// The stages that belong to no epoch.
const (
	stageClose   = "close"
	stageBye     = "bye"
	stageRestore = "restore "
)

// tickEvery is how often a main thread is looked at while a cut is being agreed
// on. Otherwise there is only the sign of life, every few seconds.
const tickEvery = 500 * time.Microsecond

func newAgent(c *Checkpointer, last cut.Epoch) (*agent, error) {
	m, err := cut.New(cut.Config{Rank: c.world.Rank(), Size: c.world.Size(), Parent: c.topo.parent,
		Children: c.topo.children,
		HintSpan: c.hintSpan(), Timeout: c.opt.CutTimeout, Last: last})
	if err != nil {
		return nil, err
	}
	a := &agent{c: c, machine: m, gather: cut.NewGather(len(c.topo.children)), waiting: map[stageKey]chan []cut.Blob{},
		begin: time.Now(), calls: make(chan func()), signals: make(chan os.Signal, 8), quit: make(chan struct{}),
		done:  make(chan struct{}),
		timer: time.NewTimer(time.Hour), alive: time.NewTicker(aliveEvery), watchdog: newWatchdog(c.opt.WaitTimeout)}
	a.heard = a.signals
	a.timer.Stop()
	if c.world.Rank() == 0 {
		var final time.Time
		if o := &c.opt; !o.Deadline.IsZero() && o.DeadlineLead > 0 {
			final = o.Deadline.Add(-o.DeadlineLead)
		}
		a.trigger = job.NewTrigger(c.opt.Interval, c.opt.MTBF, final, time.Now())
		a.arm()
	}
	return a, nil
}

func (a *agent) start() {
	all := append(slices.Clone(a.c.opt.CheckpointSignals), a.c.opt.StopSignals...)
	switch {
	case a.c.far != nil:
		a.heard = a.c.far.Signals()
	case len(all) > 0:
		signal.Notify(a.signals, all...)
	}
	go a.run()
}

func (a *agent) stop() {
	signal.Stop(a.signals)
	select {
	case <-a.done:
	default:
		close(a.quit)
		<-a.done
	}
}

// do runs f on the agent's goroutine and waits until it has.
func (a *agent) do(ctx context.Context, f func()) error {
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

func (a *agent) run() {
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
		case in := <-a.c.plane.Messages():
			a.receive(in)
		case f := <-a.calls:
			f()
		case l := <-a.c.plane.Lost():
			a.leave(-1, cut.Message{Kind: cut.KindLost, Rank: l.Rank, Had: uint64(a.c.world.Rank()),
				Stage: fmt.Sprint(l.Err)})
		case s := <-a.heard:
			a.signalled(s)
		case <-a.timer.C:
			a.timeUp()
		case <-a.alive.C:
			a.signOfLife()
		case <-a.watchdog.tick.C:
			a.lookForWaits()
		case <-tick.C:
			a.tick()
		}
	}
}

func (a *agent) signalled(s os.Signal) {
	stop := slices.Contains(a.c.opt.StopSignals, s)
	a.c.log.Info("holdfast: signal", "signal", s.String(), "stop", stop)
	if s == syscall.SIGTERM { // no other signal says that the end is near
		a.c.end.Within(a.c.opt.Grace)
		a.c.reporter.terminated()
	}
	a.request(stop, "signal "+s.String())
}

// request asks for a checkpoint and notes on whose behalf.
func (a *agent) request(stop bool, by string) {
	a.c.events.Emit(events.Event{Name: events.Request, What: by, Stop: stop})
	a.step(cut.Request{Stop: stop})
}

// receive routes one message from another rank.
func (a *agent) receive(in control.Inbound) {
	msg, err := cut.Decode(in.Payload)
	if err != nil {
		a.c.log.Error("holdfast: malformed control message ignored", "from", in.From, "error", err)
		return
	}
	switch msg.Kind {
	case cut.KindGather:
		a.collect(in.From, msg)
	case cut.KindPublish:
		a.publish(msg)
	case cut.KindLost:
		if msg.Rank >= 0 && msg.Rank < a.c.world.Size() {
			a.leave(in.From, msg)
		}
	case cut.KindWaiting:
		a.sayWaiting()
	case cut.KindStatus:
		a.answerStatus(msg)
	default:
		a.step(cut.Received{From: in.From, Msg: msg, Sent: a.sentTo(msg.Rank)})
	}
}

func (a *agent) sentTo(rank int) uint64 {
	if rank < 0 || rank >= a.c.world.Size() {
		return 0
	}
	return a.c.endpoint.Sent(rank)
}

// step feeds the machine and carries out what it wants.
func (a *agent) step(ev cut.Event) {
	for _, act := range a.machine.Step(ev) {
		a.act(act)
	}
	a.tryEnd()
}

func (a *agent) act(act cut.Action) {
	c := a.c
	switch act := act.(type) {
	case cut.Send:
		a.send(act.To, act.Msg)
	case cut.Arm:
		a.armed, a.releases = time.Now(), 0
		a.polls = watch.Polling{}
		c.events.Emit(events.Event{Name: events.Arm, Epoch: uint64(act.Epoch), Points: c.points.load()})
		c.phase("armed")
		c.arm(true)
	case cut.Disarm:
		c.arm(false)
	case cut.Look:
		a.step(a.sample())
	case cut.Release:
		a.releases++
		c.verdicts <- verdict{epoch: a.machine.Epoch(), logged: a.releases <= mostReleases}
	case cut.Cut:
		c.phase("cut")
		c.state.Recall()
		c.stats.agreed(storage.Epoch(act.Epoch), agreement{time.Since(a.armed), int(a.machine.Round()), a.releases})
		c.verdicts <- verdict{cut: true, epoch: act.Epoch, stop: act.Stop}
	case cut.GaveUp:
		a.gaveUp(act)
	}
}

// send delivers a message, to this rank itself through the machine.
func (a *agent) send(to int, msg cut.Message) {
	if to == a.c.world.Rank() {
		a.step(cut.Received{From: to, Msg: msg, Sent: a.sentTo(msg.Rank)})
		return
	}
	if err := a.c.plane.Send(to, msg.Append(nil)); err != nil && !errors.Is(err, control.ErrClosed) {
		a.c.log.Warn("holdfast: malformed control message ignored", "to", to, "kind", msg.Kind.String(), "error", err)
	}
}

func (a *agent) tick() {
	if !a.machine.Parked() {
		a.step(a.sample())
	}
	a.step(cut.Tick{Now: time.Since(a.begin)})
}

// arrive runs for the main thread when it comes to a Point. The epoch may be
// over by then; the machine releases it in that case.
func (a *agent) arrive() {
	sent := map[int]uint64{}
	for _, r := range a.machine.Interest() {
		sent[r] = a.sentTo(r)
	}
	if a.releases < mostReleases {
		a.c.events.Emit(events.Event{Name: events.Park, Begin: true, Epoch: uint64(a.machine.Epoch()),
			Points: a.c.points.load()})
	}
	a.step(cut.Arrived{Points: a.c.points.load(), Colls: a.colls(), Sent: sent})
}

func (a *agent) finish() {
	a.entersLibrary(time.Now())
	a.step(cut.Finished{Points: a.c.points.load(), Colls: a.colls()})
	a.contribute(stageKey{0, stageClose}, nil)
}

func (a *agent) captured(e cut.Epoch) {
	a.step(cut.Captured{Epoch: e, Colls: a.colls()})
}

func (a *agent) colls() []cut.Coll {
	counts := a.c.endpoint.Collectives()
	out := make([]cut.Coll, len(counts))
	for i, n := range counts {
		out[i] = cut.Coll{Comm: n.Comm, Leader: n.Leader == a.c.world.Rank(), Size: n.Size, Entered: n.Entered}
	}
	return out
}

// sample looks at what the main thread is doing.
func (a *agent) sample() cut.Sampled {
	e := a.c.endpoint
	act := e.Activity()
	s := cut.Sampled{Now: time.Since(a.begin), Points: a.c.points.load(), Colls: a.colls()}
	if act.Blocked && act.Seq != a.callSeq {
		a.callSeq, a.callSince = act.Seq, time.Now()
	}
	last, polls := e.Polling()
	s.Block = a.polls.Look(watch.View{Now: s.Now, Points: s.Points, Polls: polls, Last: last, Wait: a.wait})
	if !act.Blocked {
		return s
	}
	var waits []cut.Wait
	for _, w := range act.Waits {
		if w.Send {
			continue // parked ranks receive whatever comes
		}
		waits = append(waits, a.wait(w))
	}
	// A collective or a send between two polls changes nothing about what it polls for.
	if s.Block == nil || len(waits) > 0 {
		s.Block = &cut.Block{Call: act.Seq, Waits: waits}
	}
	return s
}

// signOfLife notes now and then what the main thread is at, so that status can
// say how long a call has lasted and the report when a run has ended.
func (a *agent) signOfLife() {
	if act := a.c.endpoint.Activity(); act.Seq != a.callSeq {
		a.callSeq, a.callSince = act.Seq, time.Now()
	}
	a.lookIdle()
	a.c.events.Emit(events.Event{Name: events.Alive, Points: a.c.points.load()})
}

func (a *agent) wait(w endpoint.Wait) cut.Wait {
	if w.Source != mpiwrap.AnySource {
		return cut.Wait{Source: w.Source, Had: a.c.endpoint.Received(w.Source)}
	}
	out := cut.Wait{Source: cut.AnySource, Comm: w.Comm}
	for _, r := range w.Members {
		if r != a.c.world.Rank() {
			out.Had += a.c.endpoint.Received(r)
		}
	}
	return out
}

// lateReport is what a rank reports when an epoch was given up. Parked ranks have
// nothing to say.
type lateReport struct {
	State    string `json:",omitempty"`
	WaitsFor []int  `json:",omitempty"`
	Closed   bool   `json:",omitempty"`
}

// gaveUp collects, on all ranks, who never reached a Point and why.
func (a *agent) gaveUp(act cut.GaveUp) {
	c := a.c
	if act.Stop {
		a.retryStop()
	}
	x := lateReport{Closed: c.closed.Load()}
	if !act.Parked {
		x.State = a.mainThread()
		x.WaitsFor = watch.Sources(c.endpoint.Activity().Waits, a.polls.Waits())
	}
	data, err := json.Marshal(x)
	if err != nil {
		c.log.Error("holdfast: cannot report why an epoch was given up", "error", err)
	}
	c.writers.Go(func() {
		if blobs, err := c.allgather(c.ctx, act.Epoch, "culprits", data); err == nil {
			c.blame(storage.Epoch(act.Epoch), blobs)
		}
	})
}

func (c *Checkpointer) blame(e storage.Epoch, blobs []cut.Blob) {
	err := &TimeoutError{Epoch: e}
	for _, b := range blobs {
		var x lateReport
		if jerr := json.Unmarshal(b.Data, &x); jerr != nil {
			x.State = "unknown (malformed report): " + jerr.Error()
		}
		if x.Closed {
			err.Closed = append(err.Closed, b.Rank)
		}
		if x.State != "" {
			err.Culprits = append(err.Culprits, Culprit{Rank: b.Rank, State: x.State, WaitsFor: x.WaitsFor})
		}
	}
	c.metrics.GivenUp()
	c.events.Emit(events.Event{Name: events.GiveUp, Epoch: uint64(e), Text: err.Error()})
	c.stats.add(EpochStats{Epoch: e, Err: err})
	_ = c.agent.do(c.ctx, func() { c.agent.replan(job.FirstCost) }) // closed: nothing follows
	if c.world.Rank() == 0 {
		c.log.Error("holdfast: "+err.Error(), "epoch", e)
	}
}

// leave tells the neighbours why and gives the process up.
func (a *agent) leave(from int, msg cut.Message) {
	if a.left {
		return
	}
	a.left = true
	for _, n := range a.c.topo.neighbours() {
		if n != from && (n != msg.Rank || isStuck(msg.Stage)) {
			a.send(n, msg)
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), 500*time.Millisecond)
	a.c.plane.Flush(ctx)
	cancel()
	err := &LostError{Rank: msg.Rank, Node: a.c.topo.nodes[msg.Rank], Noticed: int(msg.Had), Observed: msg.Stage,
		InRestore: a.c.inRestore()}
	a.c.events.Emit(events.Event{Name: events.Failure, What: "lost", Peer: &err.Rank, Text: err.Error(),
		Dur: int64(silence(err.Observed)), Points: a.c.points.load()})
	go func() {
		a.c.reporter.end(err)
		a.c.lastWords()
		a.c.requeueAbandoned()
		if isStuck(err.Observed) {
			a.endStuck(err)
		}
		a.c.opt.OnLost(err)
		a.c.cancel(err)
	}()
}

// abortedBy stands before what a rank gave up because of.
const abortedBy = "aborted: "

// aborted is what the other ranks observe of one that gives up.
func aborted(why error) string { return fmt.Sprintf("%s%.900s", abortedBy, why) }

// stuckBy stands behind abortedBy where ranks wait for what cannot come.
const stuckBy = "ranks are deadlocked: "

func isStuck(observed string) bool { return strings.HasPrefix(observed, abortedBy+stuckBy) }

// The time that a job which is ended because it is stuck has for its last words: ranks
// in Close or Restore return the error to the program, which may say more.
const (
	closersTime = 10 * time.Second
	othersTime  = 2 * time.Second
)

// endStuck lets a main thread that is in the library have the error first.
func (a *agent) endStuck(err *LostError) {
	wait := othersTime
	if a.c.closed.Load() || a.c.meeting.Load() {
		a.c.cancel(err)
		wait = closersTime
	}
	time.Sleep(min(wait, a.c.opt.WaitTimeout))
}

// abort says that this rank itself gives up.
func (a *agent) abort(why error) {
	_ = a.do(context.Background(), func() { // closed already: nobody is left to tell
		a.left = true
		msg := cut.Message{Kind: cut.KindLost, Rank: a.c.world.Rank(), Had: uint64(a.c.world.Rank()),
			Stage: aborted(why)}
		for _, n := range a.c.topo.neighbours() {
			a.send(n, msg)
		}
	})
}

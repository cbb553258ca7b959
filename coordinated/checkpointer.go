package coordinated

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-hpc/holdfast/coordinated/control"
	"github.com/holdfast-hpc/holdfast/coordinated/cut"
	"github.com/holdfast-hpc/holdfast/coordinated/events"
	"github.com/holdfast-hpc/holdfast/coordinated/internal/capture"
	"github.com/holdfast-hpc/holdfast/coordinated/internal/metrics"
	"github.com/holdfast-hpc/holdfast/coordinated/internal/persist"
	"github.com/holdfast-hpc/holdfast/internal/endpoint"
	"github.com/holdfast-hpc/holdfast/internal/program"
	"github.com/holdfast-hpc/holdfast/internal/regcache"
	"github.com/holdfast-hpc/holdfast/mpiwrap"
	"github.com/holdfast-hpc/holdfast/storage"
)

// Checkpointer takes the checkpoints of one rank, together with those of the
// others.
type Checkpointer struct {
	opt      Options
	log      *slog.Logger
	world    ranks
	far      program.Program // of a program in another process; nil: it is in this one
	gathered atomic.Uint64   // times that it has by GatherElsewhere
	private  string          // name of the communicator that the program does not see
	endpoint endpoint.Endpoint
	plane    plane
	topo     *topology
	store    *storage.Store
	levels   []string // nearest first
	asked    []string // those of the settings, if levels are fewer
	agent    *agent
	server   *server   // at rank 0
	reporter *reporter // at rank 0 of a supervised job
	end      persist.End
	state    *capture.Protected
	ops      *persist.Operations
	persist  *persist.Persister
	stats    statistics
	begun    time.Time    // when Open was called
	events   *events.Log  // nil: none
	metrics  *metrics.Set // nil: none

	doing      atomic.Pointer[doing]
	pointFlags atomic.Uint32 // bits below; 0 lets Points pass
	points     pointCount    // Points reached
	restored   atomic.Bool
	reading    progress        // of Restore
	said       map[string]bool // programs built from source that were logged; of the main thread
	closed     atomic.Bool
	stopped    atomic.Bool            // Point has returned ErrStop
	meeting    atomic.Bool            // the main thread waits in Restore for all ranks
	at         atomic.Pointer[string] // where the program called Restore or Close
	verdicts   chan verdict           // from the agent to the main thread at a Point

	// ctx ends the background work when the process must leave.
	ctx     context.Context
	cancel  context.CancelCauseFunc
	writers sync.WaitGroup
}

// The bits of pointFlags, each a reason for Point to look closer.
const (
	pointArmed   = 1 << 0 // a checkpoint is being agreed on
	pointRestore = 1 << 1 // Restore has not been called
	pointClosed  = 1 << 2
	pointFirst   = 1 << 3 // no Point has been passed since a restore
)

// verdict tells a main thread that waits at a Point what to do. Zero means: go
// on.
type verdict struct {
	cut   bool
	epoch cut.Epoch
	stop  bool
	ended bool // all ranks have closed
	// logged says that the release that this is goes to the event log.
	logged bool
}

// Open connects the ranks of world and opens the storage. It is collective over
// world, which must be what mpiwrap.Init returned, and succeeds or fails on all
// ranks alike, with a *RanksError that names the ranks at fault. The signals of opt
// are caught from now on. Open waits for all ranks to call it; after ten times
// opt.WaitTimeout it fails with a *MissingError. The caller closes the Checkpointer
// before mpiwrap.Finalize. Cost: four MPI collectives and a TCP connection to each
// neighbour in the control tree.
func Open(ctx context.Context, world *mpiwrap.Comm, opt Options) (*Checkpointer, error) {
	e, priv := endpoint.Of(world), endpoint.Private(world)
	e.NoteSites()
	c := &Checkpointer{opt: opt, world: overMPI{priv}, private: priv.Name(), endpoint: e}
	return c.connected(ctx)
}

// connected brings the ranks together, and opens everything. Collective.
func (c *Checkpointer) connected(ctx context.Context) (*Checkpointer, error) {
	bad := c.opt.validate()
	if err := c.world.meet(openWait*c.opt.waitTimeout(), c.opt.Logger); err != nil {
		return nil, err
	}
	if err := agree(c.world, "open checkpointer", bad); err != nil {
		return nil, err
	}
	c.verdicts, c.begun, c.said = make(chan verdict, 1), time.Now(), map[string]bool{}
	opt, world := &c.opt, c.world
	c.now(stateStarting)
	c.log = opt.Logger.With("rank", world.Rank())
	if world.Rank() == 0 {
		for _, name := range opt.stray {
			c.log.Warn("holdfast: " + name)
		}
	}
	c.ops = persist.NewOperations(opt.WriteTimeout, func(level string) int64 { return c.store.CopiedTo(level) })
	c.state = capture.New(opt.MaxPool, opt.CopyWorkers, c.memory(), c.log)
	c.ctx, c.cancel = context.WithCancelCause(context.Background())
	c.pointFlags.Store(pointRestore)
	var err error
	var key control.Key
	if c.plane, c.topo, key, err = connect(ctx, world, opt); err != nil {
		c.cancel(ErrClosed)
		return nil, err
	}
	if err := c.open(ctx, world, key); err != nil {
		c.reportFailed(ctx, err)
		c.cancel(ErrClosed)
		return nil, errors.Join(err, c.closeParts())
	}
	return c, nil
}

// open opens the storage, finds the newest epoch number in use anywhere and
// starts the agent.
func (c *Checkpointer) open(ctx context.Context, priv ranks, key control.Key) error {
	// Before the storage is opened: that clears away what looks like the remains of
	// a dead run.
	var err error
	plane, real := c.plane.(*control.Plane)
	first := real && c.world.Rank() == 0
	if first {
		c.warnOfRegistrations(regcache.Here())
		err = refuseSecond(ctx, c.opt.contactDir())
	}
	if err := agree(priv, "check for another run", err); err != nil {
		return err
	}
	err = c.openStore(ctx, priv, key)
	if err := agree(priv, "open checkpoint directories", err); err != nil {
		return err
	}
	c.openMetrics()
	last, err := c.lastEpoch(ctx, priv)
	if err != nil {
		return err
	}
	if err := c.useLevels(priv, last > 0); err != nil {
		return err
	}
	if err := c.checkShared(ctx, priv); err != nil {
		return err
	}
	c.agent, err = newAgent(c, last)
	if err := agree(priv, "start the agent", err); err != nil {
		return err
	}
	if first && c.opt.Supervisor != "" {
		c.reportTo(ctx) // before the agent runs, which may want to report at once
	}
	c.persist = c.newPersister(first)
	c.agent.start()
	if first {
		if job := c.opt.slurmJob(); job != "" {
			c.findDeadline(job)
		}
		err = c.serve(plane, key)
	}
	err = agree(priv, "publish how to reach the job", err)
	opened := events.Event{Name: events.Open, Dur: int64(time.Since(c.begun))}
	if err != nil {
		opened.Text = err.Error()
	}
	c.events.Emit(opened)
	return err
}

// warnOfRegistrations names settings under which a network card may send stale pages
// of Go memory.
func (c *Checkpointer) warnOfRegistrations(p regcache.Plan) {
	for _, s := range p.Unsafe() {
		c.log.Warn("holdfast: a registration cache may send stale data, because the Go runtime returns memory "+
			"without its knowledge; unset the variable, or start the program with GODEBUG=madvdontneed=0 on Linux "+
			"5.18 or newer",
			"library", s.Library, "variable", s.Name, "value", s.Value)
	}
}

// lastEpoch finds the highest number any rank knows of, so that no number is
// used twice.
func (c *Checkpointer) lastEpoch(ctx context.Context, priv ranks) (cut.Epoch, error) {
	highest, err := c.store.Highest(ctx)
	if err := agree(priv, "look for checkpoints", err); err != nil {
		return 0, err
	}
	last, _, err := c.agreeNumbers(priv, uint64(highest), c.lastRun())
	return cut.Epoch(last), err
}

// Request asks for a checkpoint at the next Points of all ranks, from any goroutine of any
// rank. It returns once the request is sent; requests before the cut are merged into one. A
// request cannot be withdrawn, since it may have been merged with another, and ctx bounds
// only the sending. If the ranks do not reach a cut within Options.CutTimeout, all of them
// give the request up.
func (c *Checkpointer) Request(ctx context.Context) error {
	if err := c.mayAsk(); err != nil {
		return err
	}
	return c.agent.do(ctx, func() { c.agent.request(false, "the program") })
}

// RequestStop is Request for a final checkpoint: Point returns ErrStop on all ranks
// once it is committed. It is the last one: afterwards Request and RequestStop
// return an error that matches ErrStop.
func (c *Checkpointer) RequestStop(ctx context.Context) error {
	if err := c.mayAsk(); err != nil {
		return err
	}
	return c.agent.do(ctx, func() { c.agent.request(true, "the program") })
}

// mayAsk says why no checkpoint can be asked for.
func (c *Checkpointer) mayAsk() error {
	switch {
	case c.closed.Load():
		return ErrClosed
	case c.stopped.Load():
		return fmt.Errorf("%w: the final checkpoint is the last one", ErrStop)
	}
	return nil
}

// Wait returns when the newest epoch that was cut so far is committed at a level ("local",
// "partner", "parity", "global"), or a newer one that goes there in its place, or with the
// reason why it will not be: ErrNotDue says that it was not due there. If this run
// cannot write to that level, Wait waits for the next outer one. With no epoch yet it
// returns at once. Local, from any goroutine but the one that the next Point needs.
func (c *Checkpointer) Wait(ctx context.Context, level string) error {
	if level = c.inUse(level); level == "" {
		return fmt.Errorf("coordinated: neither that level nor one further out is writable; checkpoints go to %v",
			c.levels)
	}
	if !slices.Contains(c.levels, level) {
		return &OptionError{Name: "level", Why: fmt.Sprintf("%q is not in use; levels in use: %v", level, c.levels)}
	}
	newest := c.stats.newest()
	for newest != 0 {
		changed := c.stats.watch()
		es, _ := c.stats.epoch(newest)
		if _, ok := es.Durable[level]; ok {
			return nil
		}
		if es.Err != nil {
			return fmt.Errorf("epoch %d: %w", newest, es.Err)
		}
		if newer, ok := es.Skipped[level]; ok {
			if newer == 0 {
				return fmt.Errorf("epoch %d: %w: %s takes %s", newest, ErrNotDue, level, c.opt.every()[level])
			}
			newest = newer
			continue
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		case <-c.ctx.Done():
			return context.Cause(c.ctx)
		}
	}
	return nil
}

// Close takes part in checkpoints until every rank has called it, waits for all epochs to be
// written to their levels, though no longer than is left of the time after which the process
// is killed, where that is known, and frees everything. If Restore failed or was never called,
// these checkpoints fail, because there is no state to capture. If a restarted program never
// received a message that the checkpoint holds for one of its receives, Close returns a
// *NotReceivedError at its end, unless the program was stopped.
//
// Close is collective, and waits as long as any rank computes. On an error call Abort or
// CloseOrAbort instead: the others may wait for messages that this rank will not send. If
// they do, the job ends after Options.WaitTimeout, and Close returns a *LostError that says
// which ranks wait, and where. Further calls do nothing.
func (c *Checkpointer) Close() error {
	if c.closed.Swap(true) {
		return nil
	}
	c.place()
	c.pointFlags.Or(pointClosed)
	c.events.Emit(events.Event{Name: events.Finish, Points: c.points.load()})
	err := c.finish()
	<-c.persist.Over() // all epochs are at their levels or have failed, or the time is up
	if err == nil {
		end := c.events.Span(events.Event{Name: events.Sync})
		_, err = c.allgather(c.ctx, 0, stageBye, nil)
		end(events.Event{What: "close"}, err)
		if c.world.Rank() == 0 {
			c.survived()
		}
	}
	if err == nil {
		c.reporter.closedWell()
		c.requeueStopped()
		err = c.receivesLeft()
	}
	return errors.Join(err, c.closeParts())
}

// CloseOrAbort is Close when *err is nil or ErrStop, or after a failed Restore (which
// fails on all ranks alike); with any other error it is Abort. It is meant for a function
// with a named result:
//
//	func run() (err error) {
//		…
//		defer ck.CloseOrAbort(&err)
//
// so that a rank which returns because of an error, or panics, does not keep the others
// waiting. An error of Close is joined to *err.
func (c *Checkpointer) CloseOrAbort(err *error) {
	if p := recover(); p != nil {
		c.Abort(fmt.Errorf("panic: %v", p))
		panic(p)
	}
	notRestored := c.restored.Load() && c.pointFlags.Load()&pointRestore != 0
	if *err != nil && !errors.Is(*err, ErrStop) && !notRestored {
		c.Abort(*err)
		return
	}
	*err = errors.Join(*err, c.Close())
}

// Abort tells all ranks that this one gives up because of why, and closes the
// Checkpointer. The other ranks leave as they do when a rank dies. Local.
func (c *Checkpointer) Abort(why error) {
	if c.closed.Swap(true) {
		return
	}
	c.failure("abort", 0, why)
	c.agent.abort(why)
	me := c.world.Rank()
	c.reporter.end(&LostError{Rank: me, Node: c.topo.nodes[me], Noticed: me, Observed: aborted(why),
		InRestore: c.inRestore()})
	c.cancel(ErrClosed)
	if err := c.closeParts(); err != nil {
		c.log.Warn("holdfast: cannot close cleanly after an abort", "error", err)
	}
}

func (c *Checkpointer) closeParts() error {
	var errs []error
	if c.agent != nil {
		c.agent.stop()
	}
	c.server.close()
	c.reporter.end(nil)
	c.cancel(ErrClosed)
	if c.store != nil {
		errs = append(errs, c.ops.End(c.log, "close", c.store.Close))
	}
	errs = append(errs, c.plane.Close())
	errs = append(errs, c.ops.End(c.log, "end background work", func() error {
		c.writers.Wait()
		return nil
	}))
	errs = append(errs, c.state.Close())
	errs = append(errs, c.metrics.Close())
	c.events.Emit(events.Event{Name: events.Close, Points: c.points.load()})
	if err := c.ops.End(c.log, "write the event log", c.events.Close); err != nil {
		c.log.Debug("holdfast: closing the event log", "error", err) // it was said when it ended
	}
	return errors.Join(errs...)
}

package coordinated

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-hpc/holdfast/coordinated/control"
	"github.com/holdfast-hpc/holdfast/coordinated/cut"
	"github.com/holdfast-hpc/holdfast/coordinated/events"
	"github.com/holdfast-hpc/holdfast/coordinated/internal/agent"
	"github.com/holdfast-hpc/holdfast/coordinated/internal/arrays"
	"github.com/holdfast-hpc/holdfast/coordinated/internal/connect"
	"github.com/holdfast-hpc/holdfast/coordinated/internal/outcome"
	"github.com/holdfast-hpc/holdfast/coordinated/internal/outside"
	"github.com/holdfast-hpc/holdfast/coordinated/internal/persist"
	"github.com/holdfast-hpc/holdfast/coordinated/internal/vote"
	"github.com/holdfast-hpc/holdfast/coordinated/internal/watch"
	"github.com/holdfast-hpc/holdfast/internal/endpoint"
	"github.com/holdfast-hpc/holdfast/internal/regcache"
	"github.com/holdfast-hpc/holdfast/internal/vfs"
	"github.com/holdfast-hpc/holdfast/mpiwrap"
	"github.com/holdfast-hpc/holdfast/storage"
)

// Checkpointer takes the checkpoints of one rank, together with those of the other ranks. A program has one, from Open
// to Close.
type Checkpointer struct { // Open makes its parts in this order
	opt    Options
	log    *slog.Logger
	opened time.Time // when Open was called
	files  vfs.FS
	seam   connect.Seam // of a test

	main    mainThread        // the program's
	life    life              // how long the work in the background goes on
	state   *arrays.Protected // the protected state of the program
	plane   connect.Plane
	topo    *connect.Topology
	levels  levels
	run     storage.Identity // that this start continues or has begun
	record  record
	agent   *agent.Agent // speaks for this rank
	outside processes    // that ask about the job or receive its reports
	persist *persist.Persister

	off     bool           // the program runs without checkpoints: of the parts above it has main, state and topo
	ignored chan os.Signal // then: those that would ask for one

	stats    statistics
	failures failures
	quiet    quiet
	chosen   *chosen                // nil until the ranks have agreed
	sizes    map[vote.Candidate]int // how many ranks the epochs are of that this one can read
}

// mainThread is the thread that calls MPI, with the flags that stop it.
type mainThread struct {
	watch.Thread
	pointFlags    atomic.Uint32 // bits below; 0 lets Points pass
	endpoint      endpoint.Endpoint
	private       string          // name of the communicator that the program does not see
	foreign       Program         // of a program in another process; nil: it is in this one
	counted       bool            // the messages of that program are
	loggedSources map[string]bool // programs built from source that were logged; of the main thread

	warnedOfEnded bool // once in a run
}

// life ends the background work when the process must leave.
type life struct {
	ctx     context.Context
	cancel  context.CancelCauseFunc
	writers sync.WaitGroup
	end     persist.End // when the process will be killed
}

// processes are those outside the job, at rank 0.
type processes struct {
	clients  *outside.Server
	reporter *outside.Reporter // of a supervised job
}

// The bits of pointFlags, each a reason for Point to look closer.
const (
	pointArmed   = 1 << 0 // a checkpoint is being agreed on
	pointRestore = 1 << 1 // Restore has not been called
	pointClosed  = 1 << 2
	pointFirst   = 1 << 3 // no Point has been passed since a restore
)

// Open connects the ranks of world and opens the storage. It is collective over world, the communicator that
// mpiwrap.Init returned. It succeeds or fails on all ranks alike: a *RanksError names the ranks at fault and unwraps to
// this rank's error, such as an *OptionError. The signals of opt are caught from now on. The caller closes the
// Checkpointer before mpiwrap.Finalize.
//
// Open waits for all ranks to call it. After ten times opt.WaitTimeout it fails with an error that names the missing
// ranks. ctx does not bound this wait, only the work after it.
//
// If the options switch checkpoints off (Options.Off), the program runs without: Restore finds nothing, Point and
// Request do nothing, RequestStop returns ErrOff.
//
// Cost: about twenty small MPI collectives, and a TCP connection to each neighbour in the control tree.
func Open(ctx context.Context, world *mpiwrap.Comm, opt Options) (*Checkpointer, error) {
	e, priv := world.Endpoint(), world.Private()
	if opt.NoGPUAware {
		e.GPUAware(false)
	}
	e.NoteSites()
	c := &Checkpointer{opt: opt}
	c.main.endpoint, c.main.private = e, priv.Name()
	return c.connected(ctx, connect.OverMPI{Comm: priv})
}

// connected connects the ranks, and opens everything. Collective.
func (c *Checkpointer) connected(ctx context.Context, all connect.Ranks) (*Checkpointer, error) {
	dropped := c.opt.dropFirstStart()
	bad := c.opt.validate()
	if err := all.Meet(connect.OpenWait*c.opt.waitTimeout(), c.opt.Logger); err != nil {
		return nil, err
	}
	off := c.opt.Off()
	if bad == nil && off != "" {
		bad = &offError{off}
	}
	if err := connect.Agree(all, "open the checkpoints", bad); err != nil {
		if offOnAll(err, all.Size()) {
			c.runWithout(all, off)
			return c, nil
		}
		return nil, err
	}
	c.prepare(ctx, all.Rank(), dropped)
	opt := &c.opt
	var err error
	var key control.Key
	if c.plane, c.topo, key, err = connect.Connect(ctx, all, connect.Options{Interface: opt.Interface,
		PeerTimeout: opt.PeerTimeout, Fanout: opt.Fanout, Logger: opt.Logger, Host: c.seam.Host,
		Plane: c.seam.Plane}); err != nil {
		c.life.cancel(ErrClosed)
		return nil, err
	}
	c.state.Ranks = c.topo.Size()
	if err := c.open(ctx, all, key); err != nil {
		err = c.otherLauncher(err)
		c.failure("open", 0, err)
		c.reportFailed(ctx, err)
		c.life.cancel(ErrClosed)
		return nil, errors.Join(err, c.closeParts())
	}
	if c.seam.Opened != nil {
		c.seam.Opened(connect.Inside{OnAgent: c.agent.Do, Signalled: c.agent.Signalled, Ranks: c.agent.Ranks,
			Idle: c.persist.Over, KillIn: c.life.end.Within, Metrics: c.record.metrics != nil, Report: c.report,
			Life: c.life.ctx, Stop: c.life.cancel})
	}
	return c, nil
}

// prepare makes the parts that need no other rank. dropped is the setting that a continued job drops.
func (c *Checkpointer) prepare(ctx context.Context, rank int, dropped string) {
	c.opened, c.main.loggedSources = time.Now(), map[string]bool{}
	c.sizes = map[vote.Candidate]int{}
	opt := &c.opt
	if c.seam = connect.SeamFrom(ctx); c.seam.Slurm != nil {
		opt.slurm = *c.seam.Slurm
	}
	if c.files = vfs.From(ctx); c.files == nil {
		sharing, _ := vfs.ParseSharing(opt.Sharing) // validated
		c.files = vfs.OS{AllowForeign: opt.AllowForeign, Sharing: sharing}
	}
	c.main.Now(watch.StateStarting)
	c.log = opt.Logger.With("rank", rank)
	if rank == 0 {
		for _, name := range opt.stray {
			c.log.Warn("holdfast: " + name)
		}
		if dropped != "" {
			c.log.Info("holdfast: this job has taken a checkpoint, and continues; the setting was for its first start",
				"setting", dropped)
		}
	}
	c.levels.ops = persist.NewOperations(opt.WriteTimeout, func(level string) int64 {
		return c.levels.store.CopiedTo(level)
	})
	c.state = arrays.New(opt.MaxPool, opt.CopyWorkers, c.memory(), c.log)
	c.state.HashDevices()
	c.state.Elastic = opt.Elastic
	if c.seam.Cuts != nil {
		c.state.Cuts = *c.seam.Cuts
	}
	c.life.ctx, c.life.cancel = context.WithCancelCause(context.Background())
	c.main.pointFlags.Store(pointRestore)
}

// open opens the storage, finds the newest epoch number in use anywhere and
// starts the agent.
func (c *Checkpointer) open(ctx context.Context, priv connect.Ranks, key control.Key) error {
	// Before the storage is opened, which removes remains of a dead run.
	var err error
	plane, real := c.plane.(*control.Plane)
	first := real && c.topo.Rank == 0
	if first {
		c.warnOfRegistrations(regcache.Here())
		err = outside.RefuseSecond(ctx, c.opt.contactDir(), c.opt.Supervisor, c.log)
	}
	if err := connect.Agree(priv, "check for another run", err); err != nil {
		return err
	}
	if err := c.openStore(ctx, priv, key); err != nil {
		return err
	}
	c.openMetrics()
	last, err := c.lastEpoch(ctx, priv, key)
	if err != nil {
		return err
	}
	if err := c.useLevels(priv, last > 0); err != nil {
		return err
	}
	dirs := connect.Directories{Ranks: priv, Topology: c.topo, Files: c.files, Log: c.log}
	if err := c.checkShared(ctx, &dirs); err != nil {
		return err
	}
	c.agent, err = c.newAgent(last)
	if err := connect.Agree(priv, "start the agent", err); err != nil {
		return err
	}
	if first && c.opt.Supervisor != "" {
		c.reportTo(ctx) // before the agent runs, which may want to report at once
	}
	own := slices.DeleteFunc(slices.Clone(c.levels.use), func(l string) bool { return storage.TraitsOf(l).Shared })
	writers, err := dirs.Writers(own, c.levels.dirs)
	if err != nil {
		return err
	}
	c.persist = c.newPersister(first, writers)
	c.agent.Start()
	if first {
		if job := c.opt.slurmJob(); job != "" {
			c.findDeadline(job)
		}
		err = c.serve(plane, key)
	}
	err = connect.Agree(priv, "publish how to reach the job", err)
	opened := events.Event{Name: events.Open, Dur: int64(time.Since(c.opened))}
	if err != nil {
		opened.Text = err.Error()
	} else if c.topo.Rank == 0 && c.opt.run.IsZero() {
		opened.What = c.opt.whenTaken()
		c.log.Info("holdfast: checkpoints are taken " + opened.What)
	}
	c.record.events.Emit(opened)
	return err
}

// otherLauncher adds to an error of a program in another process that its launcher has started more ranks than its MPI
// reports. mpiwrap.Init does so for a program in this process.
func (c *Checkpointer) otherLauncher(err error) error {
	for _, name := range []string{"OMPI_COMM_WORLD_SIZE", "PMI_SIZE"} {
		n, nerr := strconv.Atoi(os.Getenv(name))
		if nerr == nil && c.main.foreign != nil && c.topo.Size() == 1 && n > 1 {
			return fmt.Errorf("this program has 1 rank, but %s says that %d were started: is mpirun that of another "+
				"MPI than the program's? %w", name, n, err)
		}
	}
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
func (c *Checkpointer) lastEpoch(ctx context.Context, priv connect.Ranks, key control.Key) (cut.Epoch, error) {
	highest, err := c.levels.store.Highest(ctx)
	if err := connect.Agree(priv, "look for checkpoints", err); err != nil {
		return 0, err
	}
	last, _, err := c.agreeNumbers(priv, key, uint64(highest), c.lastRun(key))
	return cut.Epoch(last), err
}

// offError is the report of a rank without checkpoints.
type offError struct{ by string }

const offWords = "running without checkpoints: "

// Error is read where other ranks run with checkpoints.
func (e *offError) Error() string {
	return offWords + e.by + "; give all ranks the same settings (mpirun -x for the variables)"
}

// offOnAll reports whether all ranks of a vote run without checkpoints.
func offOnAll(err error, size int) bool {
	var ranks *outcome.RanksError
	other := func(f outcome.RankFailure) bool { return !strings.HasPrefix(f.Text, offWords) }
	return errors.As(err, &ranks) && len(ranks.Failed) == size && !slices.ContainsFunc(ranks.Failed, other)
}

// runWithout makes a Checkpointer that takes no checkpoints: it only has the protected state.
func (c *Checkpointer) runWithout(all connect.Ranks, off string) {
	c.off, c.log = true, c.opt.Logger
	c.topo = connect.Place(all.Rank(), make([]string, all.Size()), c.opt.Fanout)
	c.state = arrays.New(0, c.opt.CopyWorkers, nil, c.log)
	c.state.Elastic, c.state.Ranks = c.opt.Elastic, all.Size()
	c.main.pointFlags.Store(pointRestore)
	if len(c.opt.CheckpointSignals) > 0 {
		c.ignored = make(chan os.Signal, 1) // signals for a checkpoint do not end the program
		signal.Notify(c.ignored, c.opt.CheckpointSignals...)
	}
	if all.Rank() == 0 {
		c.log.Warn("holdfast: " + offWords + off)
	}
}

package coordinated

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/holdfast-hpc/holdfast/coordinated/cut"
	"github.com/holdfast-hpc/holdfast/coordinated/internal/capture"
	"github.com/holdfast-hpc/holdfast/coordinated/internal/connect"
	"github.com/holdfast-hpc/holdfast/coordinated/internal/outcome"
	"github.com/holdfast-hpc/holdfast/internal/endpoint"
	"github.com/holdfast-hpc/holdfast/internal/layout"
	"github.com/holdfast-hpc/holdfast/internal/program"
	"github.com/holdfast-hpc/holdfast/storage"
)

// Proxy is the Checkpointer of a rank whose program is another process, and speaks another language: holdfast node
// calls it in the program's place. Protected state is a *program.Array, and signals come from the Program. Unless the
// program's messages are counted, all ranks stop at the same Point, which each must reach equally often. Programs in Go
// have no use for it.
type Proxy struct{ *Checkpointer }

// Program is one rank of a program in another process, as the node daemon sees it. The program promises that at a point
// no message of its own is in flight, and that all its ranks reach equally many points. So all ranks stop at the same
// point. A program whose messages are counted, by libholdfast-mpi, promises nothing.
type Program interface {
	// Rank and Size are the rank, from 0, and the number of ranks.
	Rank() int
	Size() int

	// Meet returns when all ranks have called it. If ctx ends first, it returns those that
	// have not, as far as they are known.
	Meet(ctx context.Context) (missing []int, err error)

	// Allgather gives every rank's bytes to all, in order of rank. It is collective; mine
	// has the same length on all ranks, and all is size times as long.
	Allgather(all, mine []byte) error

	// Arm makes the program's next point stop, or pass. When Arm(true) returns, Points counts
	// every point that has passed.
	Arm(armed bool)

	// Points is the number of points that the rank has reached.
	Points() uint64

	// Messages is its message layer, or nil if nothing counts its messages. An Exchange is collective over the ranks.
	Messages(exchange program.Exchange) endpoint.Endpoint

	// Signals are those that the program has been sent and that ask for a checkpoint.
	Signals() <-chan os.Signal

	// Previous is the epoch that the previous start has left in memory of this rank; nil: none. It is called once.
	Previous() *storage.MemoryShard

	// FreePrevious frees the result of Previous, which the caller no longer reads.
	FreePrevious()

	program.Memory
}

// SavedEpoch has this rank's saved state in an epoch, by name.
type SavedEpoch struct {
	Epoch storage.Epoch
	Saved map[string]program.SavedArray
	Err   error // why it cannot be read
}

// OpenProxy is Open for a Proxy of the rank p. Collective.
func OpenProxy(ctx context.Context, p Program, opt Options) (*Proxy, error) {
	c := &Checkpointer{opt: opt}
	c.main.endpoint, c.main.foreign = p.Messages(c.exchanges()), p
	if c.main.counted = c.main.endpoint != nil; !c.main.counted {
		c.main.endpoint = program.NoMessages(p.Rank(), p.Size())
	}
	c.main.Points.Foreign = p.Points
	c, err := c.connected(ctx, overProgram{p})
	if err != nil {
		return nil, err
	}
	return &Proxy{c}, nil
}

// exchanges returns how the drains of the ranks reach each other.
func (c *Checkpointer) exchanges() program.Exchange {
	n := 0
	return func(ctx context.Context, mine []byte) (all [][]byte, err error) {
		n++
		blobs, err := c.agent.Allgather(ctx, 0, fmt.Sprint("drain ", n), mine)
		return contents(blobs), err
	}
}

// contents returns the bytes of the ranks, in their order.
func contents(blobs []cut.Blob) (all [][]byte) {
	for _, b := range blobs {
		all = append(all, b.Data)
	}
	return all
}

// overProgram has the ranks of a program in other processes meet by that program.
type overProgram struct{ Program }

// Meet has the program's processes meet.
func (r overProgram) Meet(limit time.Duration, _ *slog.Logger) error {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	missing, err := r.Program.Meet(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		return connect.NotAll(limit, missing)
	}
	return err
}

// memory returns where captures go: nil for that of this process.
func (c *Checkpointer) memory() program.Memory {
	if c.main.foreign == nil {
		return nil
	}
	return c.main.foreign
}

// gather gives every rank's bytes to all, in order of rank, over the control plane. It is collective, in the same order
// on all ranks. call names the program's call, for the case that a rank does not come: the error names the others, and
// the job ends after ten times Options.WaitTimeout.
func (c *Proxy) gather(call string, mine []byte) ([]cut.Blob, error) {
	n := c.main.Calls.Add(1)
	c.main.Calling.Store(&call)
	_ = c.agent.Library(c.life.ctx, time.Now()) // closed: the rest reports it
	defer func() {
		_ = c.agent.Library(c.life.ctx, time.Time{})
		c.main.Calling.Store(nil)
	}()
	return c.agent.Allgather(c.life.ctx, 0, fmt.Sprint("call ", n), mine)
}

// Gather gives every rank's bytes to all ranks during a call of the program, in order of rank. Collective. Cost: one
// exchange over the control tree, of all bytes to every rank.
func (c *Proxy) Gather(call string, mine []byte) (all [][]byte, err error) {
	blobs, err := c.gather(call, mine)
	return contents(blobs), err
}

// Agree makes all ranks succeed or fail together in a call of the program; err is this rank's own outcome. Collective.
func (c *Proxy) Agree(call string, err error) error {
	blobs, gerr := c.gather(call, outcome.Encode(err))
	if gerr != nil {
		return errors.Join(err, gerr)
	}
	return outcome.Decode(call, blobs, err)
}

// OfStart returns the options for a program that another process than this one has started. Local.
func (o Options) OfStart(s program.Start) Options {
	o.program = s.Program
	o.Supervisor, o.Fresh, o.Elastic = s.Supervisor, o.Fresh || s.Fresh, s.Elastic
	if o.Fresh {
		o.Epoch = 0
	}
	o.slurm.Step = s.Step
	return o
}

// Named returns the options of checkpoints that a program takes under a name of its own, in addition to those of its
// Points, which c takes. Their directories are below those of the job and belong to the same run. Only the program asks
// for them. They inherit the options listed here. keep is the number that is kept; 0 means as many as c keeps. Local.
func (c *Proxy) Named(name string, keep int) Options {
	of, below := &c.opt, "name."+name
	o := Options{
		Job: of.Job + "." + name, Local: of.Local, Global: of.Global, run: c.run, makeDirs: true,
		Fresh: of.Fresh, Redundancy: of.Redundancy, Sharing: of.Sharing, AllowForeign: of.AllowForeign,
		Keep: cmp.Or(keep, of.Keep), KeepLocal: of.KeepLocal, KeepEvery: of.KeepEvery, KeepInterval: of.KeepInterval,
		RedundancyEvery: of.RedundancyEvery, GlobalEvery: of.GlobalEvery,
		Compress: of.Compress, FlushRate: of.FlushRate,
		MaxPool: of.MaxPool, MaxMailbox: of.MaxMailbox, MaxFailed: of.MaxFailed, CopyWorkers: of.CopyWorkers,
		Quiet: of.Quiet, CutTimeout: of.CutTimeout, WaitTimeout: of.WaitTimeout, WriteTimeout: of.WriteTimeout,
		Interface: of.Interface, PeerTimeout: of.PeerTimeout, Fanout: of.Fanout, Grace: of.Grace,
		Events: of.Events, Logger: of.Logger, LogLevel: of.LogLevel, OnLost: of.OnLost,
		fromEnv: of.fromEnv, slurm: of.slurm, program: of.program,
		CheckpointSignals: []os.Signal{}, StopSignals: []os.Signal{}, timed: timingSources{off: true},
	}
	if storage.IsObjectStore(o.Global) {
		o.Global = strings.TrimSuffix(o.Global, "/") + "/" + below
	} else if o.Global != "" {
		o.Global = filepath.Join(o.Global, below)
	}
	if o.Local != "" {
		o.Local = filepath.Join(o.Local, below)
	}
	return o
}

// ProtectGlobal makes an array that has a Shape part of every checkpoint, as the function ProtectGlobal does for
// memory of its caller. Local, before Restore or after it.
func (c *Proxy) ProtectGlobal(name string, a *program.Array) error {
	return c.protect(name, a, func() error { return c.state.AddForeign(name, a) })
}

// AbortDuring is Abort from another goroutine than the one in a call. A call under way stops waiting. Its memory is
// freed when idle is closed: then no call is under way any more. Local.
func (c *Proxy) AbortDuring(why error, idle <-chan struct{}) { c.abort(why, idle) }

// SkipRestore lets the first Point pass without a Restore: the program has its state, or gets it in another way. Local,
// in the place of Restore.
func (c *Proxy) SkipRestore() {
	c.stats.mu.Lock()
	c.stats.restoreSkipped = true
	c.stats.mu.Unlock()
	c.main.Restored.Store(true)
	c.freePrevious()
	c.ready()
}

// WaitIdle waits until this rank does no more work at the levels: the repair after a restore and the removal of older
// epochs included. Local, in the place of a Point.
func (c *Proxy) WaitIdle(ctx context.Context) error {
	if c.persist.Idle() {
		return nil
	}
	select {
	case <-c.persist.Over():
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-c.life.ctx.Done():
		return context.Cause(c.life.ctx)
	}
}

// Reserve makes room for captures ahead of time. A Restore whose Level is storage.SourceMemory does not: it is done
// after Program.FreePrevious, when the program has its state: a node need not have memory for both. Local.
func (c *Proxy) Reserve() {
	if err := c.state.Renew(); err != nil {
		c.log.Warn("holdfast: cannot free the memory that a restore has used", "error", err)
	}
	c.reserve()
}

// Retain returns this rank's newest epoch if it is committed and its capture is still in shared memory, else nil.
// Abort then leaves all shared memory mapped: its owner frees it. Local.
func (c *Proxy) Retain() *storage.MemoryShard {
	last := c.state.Leave()
	if last.Epoch == 0 {
		return nil
	}
	return c.levels.store.InMemory(last.Epoch, last.Sections)
}

// CloseAndRetain is Close that leaves all shared memory mapped, and afterwards Retain. Collective.
func (c *Proxy) CloseAndRetain() (*storage.MemoryShard, error) {
	c.state.Leave()
	err := c.Close()
	return c.Retain(), err
}

// previousMemory returns the epoch that the previous start of a program in another process has left in memory, or nil.
func (c *Checkpointer) previousMemory() *storage.MemoryShard {
	if c.main.foreign == nil {
		return nil
	}
	return c.main.foreign.Previous()
}

func (c *Checkpointer) freePrevious() {
	if c.main.foreign != nil {
		c.main.foreign.FreePrevious()
	}
}

// RestoreEpoch is Restore of one epoch. Collective.
func (c *Proxy) RestoreEpoch(ctx context.Context, e storage.Epoch) (bool, error) {
	c.opt.Epoch = e
	return c.Restore(ctx)
}

// Verify reads all of this rank's shard of an epoch of SavedEpochs. Damage at one level counts only if no other place
// has a good copy. Local.
func (c *Proxy) Verify(ctx context.Context, e storage.Epoch) error {
	sh, err := c.levels.store.Fetch(ctx, e)
	if err != nil {
		return err
	}
	defer c.closeShard(sh, e)
	if sh.Level() == storage.SourceMemory && sh.VerifyMemory() == nil {
		return nil
	}
	return sh.Verify(ctx)
}

// Newest returns this rank's saved state in the epoch that Restore will restore unless it is damaged. If another number
// of ranks wrote the epoch, it returns the state of a rank in its place. Without an epoch it returns the zero Epoch. It
// is collective, before Restore: it waits until all ranks have called it or Restore. It reads a table of the epoch, not
// its data.
func (c *Proxy) Newest(ctx context.Context) (SavedEpoch, error) {
	list, err := c.choose(ctx)
	if err != nil || len(list) == 0 {
		return SavedEpoch{}, err
	}
	k := list[0]
	c.levels.store.Choose(k.Epoch, k.ID)
	s := SavedEpoch{Epoch: k.Epoch, Saved: map[string]program.SavedArray{}}
	add := func(l *storage.Layout, own bool) {
		for i := 0; l != nil && i < len(l.Arrays); i++ {
			a := &l.Arrays[i]
			elem, isSlice := strings.CutPrefix(a.Type, "slice ")
			if replicated := a.Kind == layout.Replicated; replicated && isSlice {
				s.Saved[a.Name] = program.SavedArray{Layout: elem, Bytes: a.Dims[0] * a.Elem}
			} else if !replicated && own {
				s.Saved[a.Name] = program.SavedArray{Layout: a.Type, Bytes: a.Elems() * a.Elem}
			}
		}
	}
	if n := c.sizes[k]; n != c.topo.Size() {
		infos, err := c.levels.store.Entries(ctx, k.Epoch)
		if err == nil {
			add(infos[0].Layout, false)
		}
		return s, err
	}
	sh, err := c.levels.store.Fetch(ctx, k.Epoch)
	if err != nil {
		return s, err
	}
	defer c.closeShard(sh, k.Epoch)
	add(sh.Layout(), true)
	saved, err := capture.SavedIn(ctx, sh)
	maps.Copy(s.Saved, saved)
	return s, err
}

// SavedEpochs lists the epochs that all ranks have, newest first. It reads a table of each. Collective, before
// Restore.
func (c *Proxy) SavedEpochs(ctx context.Context) ([]SavedEpoch, error) {
	common, err := c.common(ctx)
	if err != nil {
		return nil, err
	}
	var out []SavedEpoch
	for _, k := range common {
		c.levels.store.Choose(k.Epoch, k.ID)
		s := SavedEpoch{Epoch: k.Epoch}
		sh, err := c.levels.store.Fetch(ctx, k.Epoch)
		if s.Err = err; err == nil {
			s.Saved, s.Err = capture.SavedIn(ctx, sh)
			c.closeShard(sh, k.Epoch)
		}
		out = append(out, s)
	}
	return out, nil
}

package coordinated

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/holdfast-hpc/holdfast/coordinated/internal/capture"
	"github.com/holdfast-hpc/holdfast/coordinated/internal/connect"
	"github.com/holdfast-hpc/holdfast/internal/layout"
	"github.com/holdfast-hpc/holdfast/internal/program"
	"github.com/holdfast-hpc/holdfast/storage"
)

func init() {
	program.Register(program.Hooks{
		Open: func(ctx context.Context, p program.Program, opt any) (any, error) {
			return openElsewhere(ctx, p, opt.(Options))
		},
		Of:      func(c any) program.Checkpointer { return elsewhere{c.(*Checkpointer)} },
		OfStart: func(o any, s program.Start) any { return o.(Options).ofStart(s) },
		Named:   func(c any, name string, keep int) any { return c.(*Checkpointer).named(name, keep) },
	})
}

// openElsewhere is program.Open.
func openElsewhere(ctx context.Context, p program.Program, opt Options) (*Checkpointer, error) {
	c := &Checkpointer{opt: opt}
	c.main.endpoint, c.main.far = program.NoMessages(p.Rank(), p.Size()), p
	c.main.Points.Far = p.Points
	return c.connected(ctx, connect.Elsewhere{Program: p})
}

// elsewhere is the program.Checkpointer of a rank.
type elsewhere struct{ *Checkpointer }

// memory is where captures go: nil for that of this process.
func (c *Checkpointer) memory() program.Memory {
	if c.main.far == nil {
		return nil
	}
	return c.main.far
}

func (c elsewhere) Gather(call string, all, mine []byte) error {
	n := c.main.Calls.Add(1)
	c.main.Calling.Store(&call)
	_ = c.agent.Library(c.life.ctx, time.Now()) // closed: the rest says so
	blobs, err := c.agent.Allgather(c.life.ctx, 0, fmt.Sprint("elsewhere ", n), mine)
	_ = c.agent.Library(c.life.ctx, time.Time{})
	c.main.Calling.Store(nil)
	if err != nil {
		return err
	}
	for _, b := range blobs {
		if len(b.Data) != len(mine) || (b.Rank+1)*len(mine) > len(all) {
			return fmt.Errorf("coordinated: rank %d gathers %d bytes and this one %d: the ranks do not call the "+
				"same functions in the same order", b.Rank, len(b.Data), len(mine))
		}
		copy(all[b.Rank*len(mine):], b.Data)
	}
	return nil
}

// ofStart is program.OfStart.
func (o Options) ofStart(s program.Start) Options {
	o.program = s.Program
	o.Supervisor, o.Fresh, o.Elastic = s.Supervisor, o.Fresh || s.Fresh, s.Elastic
	if o.Fresh {
		o.Epoch = 0
	}
	o.slurm.Step = s.Step
	return o
}

// named is program.Named.
func (c *Checkpointer) named(name string, keep int) Options {
	o := c.opt
	o.run = c.run
	below := "name." + name
	o.Job += "." + name
	if storage.IsObjectStore(o.Global) {
		o.Global = strings.TrimSuffix(o.Global, "/") + "/" + below
	} else if o.Global != "" {
		o.Global = filepath.Join(o.Global, below)
	}
	if o.Local != "" {
		o.Local = filepath.Join(o.Local, below)
	}
	o.Keep = cmp.Or(keep, o.Keep)
	o.CheckpointSignals, o.StopSignals = []os.Signal{}, []os.Signal{}
	o.Interval, o.MTBF, o.timed.off, o.Deadline, o.DeadlineLead = 0, 0, true, time.Time{}, 0
	o.Supervisor, o.Requeue, o.MetricsDir, o.MetricsListen, o.stray = "", false, "", "", nil
	o.Epoch, o.makeDirs, o.Elastic = 0, true, false
	return o
}

func (c elsewhere) ProtectGlobal(name string, a *program.Array) error {
	return c.protect(name, a, func() error { return c.state.AddElsewhere(name, a) })
}

func (c elsewhere) AbortWhile(why error, left <-chan struct{}) { c.abort(why, left) }

func (c elsewhere) Begin() {
	c.stats.mu.Lock()
	c.stats.goesOn = true
	c.stats.mu.Unlock()
	c.main.Restored.Store(true)
	c.forget()
	c.ready()
}

func (c elsewhere) Settle(ctx context.Context) error {
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

func (c elsewhere) Reserve() {
	if err := c.state.Renew(); err != nil {
		c.log.Warn("holdfast: cannot free the memory that a restore has used", "error", err)
	}
	c.reserve()
}

func (c elsewhere) Leave() *storage.MemoryShard {
	last := c.state.Leave()
	if last.Epoch == 0 {
		return nil
	}
	return c.levels.store.InMemory(last.Epoch, last.Sections)
}

func (c elsewhere) CloseAndLeave() (*storage.MemoryShard, error) {
	c.state.Leave()
	err := c.Close()
	return c.Leave(), err
}

// left is what an earlier start of a program elsewhere has left in memory.
func (c *Checkpointer) left() *storage.MemoryShard {
	if c.main.far == nil {
		return nil
	}
	return c.main.far.Left()
}

// forget frees that.
func (c *Checkpointer) forget() {
	if c.main.far != nil {
		c.main.far.Forget()
	}
}

func (c elsewhere) RestoreEpoch(ctx context.Context, e storage.Epoch) (bool, error) {
	c.opt.Epoch = e
	return c.Restore(ctx)
}

func (c elsewhere) Verify(ctx context.Context, e storage.Epoch) error {
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

func (c elsewhere) Newest(ctx context.Context) (program.SavedEpoch, error) {
	list, err := c.choose(ctx)
	if err != nil || len(list) == 0 {
		return program.SavedEpoch{}, err
	}
	k := list[0]
	c.levels.store.Choose(k.Epoch, k.ID)
	s := program.SavedEpoch{Epoch: k.Epoch, Saved: map[string]program.SavedArray{}}
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
	for name, a := range saved {
		s.Saved[name] = program.SavedArray(a)
	}
	return s, err
}

func (c elsewhere) SavedEpochs(ctx context.Context) ([]program.SavedEpoch, error) {
	common, err := c.common(ctx)
	if err != nil {
		return nil, err
	}
	var out []program.SavedEpoch
	for _, k := range common {
		c.levels.store.Choose(k.Epoch, k.ID)
		s := program.SavedEpoch{Epoch: k.Epoch, Saved: map[string]program.SavedArray{}}
		sh, err := c.levels.store.Fetch(ctx, k.Epoch)
		if err == nil {
			var saved map[string]capture.Saved
			saved, err = capture.SavedIn(ctx, sh)
			for name, a := range saved {
				s.Saved[name] = program.SavedArray(a)
			}
			c.closeShard(sh, k.Epoch)
		}
		s.Err = err
		out = append(out, s)
	}
	return out, nil
}

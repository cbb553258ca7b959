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
	"github.com/holdfast-hpc/holdfast/internal/program"
	"github.com/holdfast-hpc/holdfast/storage"
)

// OpenElsewhere is Open for a rank of a program in another process, which the caller
// speaks with; holdfast node does. It gives the caller a Checkpointer to call in the
// program's place, with these differences: what is protected is a *program.Array, signals
// come from r, and all ranks stop at the same point, which they come to equally often.
func OpenElsewhere(ctx context.Context, r program.Program, opt Options) (*Checkpointer, error) {
	c := &Checkpointer{opt: opt}
	c.main.endpoint, c.main.far = program.NoMessages(r.Rank(), r.Size()), r
	c.main.Points.Far = r.Points
	return c.connected(ctx, connect.Elsewhere{Program: r})
}

// memory is where captures go: nil for that of this process.
func (c *Checkpointer) memory() program.Memory {
	if c.main.far == nil {
		return nil
	}
	return c.main.far
}

// GatherElsewhere gives every rank's bytes to all, in order of rank, over the control plane of a
// Checkpointer of OpenElsewhere. Collective, in the same order on all ranks; mine has the same
// length everywhere, and all is Size times as long.
func (c *Checkpointer) GatherElsewhere(all, mine []byte) error {
	blobs, err := c.agent.Allgather(c.life.ctx, 0, fmt.Sprint("elsewhere ", c.main.gathered.Add(1)), mine)
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

// OfStart are the options for a program that another process has started than this one: what
// HOLDFAST_SUPERVISOR tells it, its step of Slurm, and whether it starts over.
func (o Options) OfStart(supervisor, step string, fresh bool) Options {
	o.Supervisor, o.Fresh = supervisor, o.Fresh || fresh
	if o.Fresh {
		o.Epoch = 0
	}
	o.slurm.Step = step
	return o
}

// Named are the options of the checkpoints that a program takes under a name of its own,
// beside those of its points: their directories are below those of the job, and nothing
// but the program asks for them. keep is how many stay; 0 means as many as of the others.
func (o Options) Named(name string, keep int) Options {
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
	if o.Events != "off" {
		o.Events = "on"
	}
	o.Keep = cmp.Or(keep, o.Keep)
	o.CheckpointSignals, o.StopSignals = []os.Signal{}, []os.Signal{}
	o.Interval, o.MTBF, o.Deadline, o.DeadlineLead = 0, 0, time.Time{}, 0
	o.Supervisor, o.Requeue, o.MetricsDir, o.MetricsListen, o.stray = "", false, "", "", nil
	o.Epoch, o.makeDirs = 0, true
	return o
}

// Begin lets the first Point pass without a Restore: the program has its state, or gets it in
// another way. Local, in the place of Restore.
func (c *Checkpointer) Begin() {
	c.main.Restored.Store(true)
	c.ready()
}

// RestoreEpoch is Restore of one epoch.
func (c *Checkpointer) RestoreEpoch(ctx context.Context, e storage.Epoch) (bool, error) {
	c.opt.Epoch = e
	return c.Restore(ctx)
}

// SavedEpoch is what this rank saved in an epoch, by name.
type SavedEpoch struct {
	Epoch storage.Epoch
	Saved map[string]SavedArray
	Err   error // why it cannot be read
}

// SavedArray is what an epoch has of one array.
type SavedArray struct {
	Layout string // of an element, as in program.Array; empty: it is something else
	Bytes  int64
	Inline []byte // if they are few
}

// SavedEpochs lists the epochs that all ranks have, newest first. Collective, before Restore.
// It reads a table of each.
func (c *Checkpointer) SavedEpochs(ctx context.Context) ([]SavedEpoch, error) {
	common, err := c.common(ctx)
	if err != nil {
		return nil, err
	}
	var out []SavedEpoch
	for _, k := range common {
		c.levels.store.Choose(k.Epoch, k.ID)
		s := SavedEpoch{Epoch: k.Epoch, Saved: map[string]SavedArray{}}
		sh, _, err := c.fetch(ctx, k.Epoch)
		if err == nil {
			var saved map[string]capture.Saved
			saved, err = capture.SavedIn(ctx, sh)
			for name, a := range saved {
				s.Saved[name] = SavedArray(a)
			}
			c.closeShard(sh, k.Epoch)
		}
		s.Err = err
		out = append(out, s)
	}
	return out, nil
}

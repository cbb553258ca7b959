package coordinated

import (
	"errors"
	"os"
	"os/signal"
	"strings"

	"github.com/holdfast-hpc/holdfast/coordinated/internal/arrays"
	"github.com/holdfast-hpc/holdfast/coordinated/internal/connect"
	"github.com/holdfast-hpc/holdfast/coordinated/internal/outcome"
)

// levelOff as Local or Global leaves that level out.
const levelOff = "off"

// leaveOut takes the levels out that are off; local and global say by what.
func (o *Options) leaveOut(local, global string) {
	for _, l := range []struct {
		dir *string
		by  string
	}{{&o.Local, local}, {&o.Global, global}} {
		if *l.dir != levelOff {
			continue
		}
		*l.dir = ""
		if !strings.HasSuffix(l.by, levelOff) {
			l.by += "=" + levelOff
		}
		o.offs = append(o.offs, l.by)
	}
}

// Off says by what the program runs without checkpoints, such as "HOLDFAST_GLOBAL=off"; empty: it runs with them. It
// runs without where one of Local and Global is "off" and no directory is given.
func (o *Options) Off() string {
	p := *o
	p.leaveOut("Local", "Global")
	if p.Local != "" || p.Global != "" {
		return ""
	}
	return strings.Join(p.offs, ", ")
}

// off says what a key is switched off by, if it is.
func (c *Config) off(key string) string {
	for _, v := range c.keys.Values() {
		if v.Key == key && v.Source != v.Env {
			return v.Source + ": " + key + ": " + levelOff
		} else if v.Key == key {
			return v.Env
		}
	}
	return key
}

// offError is what a rank without checkpoints says to the others.
type offError struct{ by string }

const offWords = "running without checkpoints: "

// Error is read where other ranks run with checkpoints.
func (e *offError) Error() string {
	return offWords + e.by + "; give all ranks the same settings (mpirun -x for the variables)"
}

// offOnAll says whether all ranks of a vote run without checkpoints.
func offOnAll(err error, size int) bool {
	var ranks *outcome.RanksError
	if !errors.As(err, &ranks) || len(ranks.Failed) != size {
		return false
	}
	for _, f := range ranks.Failed {
		if !strings.HasPrefix(f.Text, offWords) {
			return false
		}
	}
	return true
}

// runWithout makes a Checkpointer that takes no checkpoints: all that it has is what the program protects.
func (c *Checkpointer) runWithout(all connect.Ranks, off string) {
	c.off, c.log = true, c.opt.Logger
	c.topo = connect.Place(all.Rank(), make([]string, all.Size()), c.opt.Fanout)
	c.state = arrays.New(0, c.opt.CopyWorkers, nil, c.log)
	c.state.Elastic, c.state.Ranks = c.opt.Elastic, all.Size()
	c.main.pointFlags.Store(pointRestore)
	if len(c.opt.CheckpointSignals) > 0 {
		c.ignored = make(chan os.Signal, 1) // what asks for a checkpoint does not end the program
		signal.Notify(c.ignored, c.opt.CheckpointSignals...)
	}
	if all.Rank() == 0 {
		c.log.Warn("holdfast: " + offWords + off)
	}
}

// closeWithout is Close without checkpoints.
func (c *Checkpointer) closeWithout() error {
	if c.ignored != nil {
		signal.Stop(c.ignored)
	}
	return c.state.Close()
}

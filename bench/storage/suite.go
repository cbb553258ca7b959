// Package storage measures the cost of checkpoints on the file systems at hand, as ratios to the same processes' raw
// writes, reads and copies of the same bytes in the same run.
package storage

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/holdfast-hpc/holdfast/bench"
	"github.com/holdfast-hpc/holdfast/storage"
)

// Options select the measurements.
type Options struct {
	Dir    string // where files are written; a directory is made in it and removed
	Ranks  []int  // numbers of processes
	MiB    []int  // per rank
	Parity bool   // measure parity 4+2 as well
}

// Goals are upper bounds of ratios: to a raw write and fsync, a raw read from
// the page cache, or a copy into warm memory.
const (
	goalBlocking      = bench.AtMost(1.3)
	goalLocal         = bench.AtMost(1.15)
	goalGlobal        = bench.AtMost(2.1)
	goalParity        = bench.AtMost(2.3)
	goalRestoreLocal  = bench.AtMost(1.5)
	goalRestoreGlobal = bench.AtMost(1.6)
	goalDirectWrite   = bench.AtMost(1.1)  // of the best parallel direct write
	goalDirectRead    = bench.AtMost(1.2)  // of the best parallel direct read
	goalCPU           = bench.AtMost(0.6)  // seconds per GiB, capture to the last level
	goalIncrement     = bench.AtMost(0.15) // of the bytes, when a tenth has changed
)

// Run measures all cases.
func Run(ctx context.Context, r *bench.Runner, o Options) error {
	r.Start("storage", (len(o.Ranks)+1)*len(o.MiB)) // and parity
	dir, err := os.MkdirTemp(o.Dir, "holdfast-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	for _, ranks := range o.Ranks {
		for _, mib := range o.MiB {
			c := &levels{name: fmt.Sprintf("%d x %d MiB", ranks, mib), setup: Setup{
				Dir: filepath.Join(dir, fmt.Sprintf("%d-%d", ranks, mib)), Size: ranks, Bytes: int64(mib) << 20}}
			r.Step("%s", c.name)
			if err := c.run(ctx, r); err != nil {
				return fmt.Errorf("%s: %w", c.name, err)
			}
		}
	}
	if !o.Parity {
		return nil
	}
	for _, mib := range o.MiB {
		r.Step("parity, %d MiB", mib)
		if err := parity(ctx, r, filepath.Join(dir, fmt.Sprintf("parity-%d", mib)), mib); err != nil {
			return fmt.Errorf("parity: %w", err)
		}
	}
	return nil
}

// Metrics of each run.
const (
	rawWrite  = "raw write"
	memcpy    = "memcpy"
	blocking  = "blocking"
	local     = "local"
	both      = "local+global"
	cpu       = "cpu"
	increment = "increment"
	readBack  = "read back"
	rawRead   = "raw read, "
	restore   = "restore, "
	direct    = "direct write"
	rawPast   = "direct read, "
	past      = "restore uncached, "
)

// levels is a case with the levels local and global.
type levels struct {
	*workers
	name    string
	setup   Setup
	noBlock error
	// noDirect is the reason why there is no direct access; nil: there is
	noDirect error
}

func (c *levels) run(ctx context.Context, r *bench.Runner) (err error) {
	for _, l := range []string{storage.LevelLocal, storage.LevelGlobal} {
		if err := os.MkdirAll(filepath.Join(c.setup.Dir, l), 0o755); err != nil {
			return err
		}
	}
	defer os.RemoveAll(c.setup.Dir)
	if c.workers, err = startWorkers(ctx, r, c.setup); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.close()) }()
	took, err := bench.Repeat(ctx, r.Runs, c.once)
	if err != nil {
		return err
	}
	r.Add(c.rows(took)...)
	return nil
}

// timed runs a command and adds its wall time.
func (c *levels) timed(took bench.Set, metric, op, level string) result {
	r := c.do(command{Op: op, Level: level})
	took.Add(metric, r.wall)
	return r
}

// once is one run: every metric and its baseline in turn.
func (c *levels) once(took bench.Set) error {
	c.epoch++
	c.steps("touch")
	copied := c.timed(took, memcpy, "memcpy", "")
	c.block(took)
	c.timed(took, rawWrite, "raw-write", "")
	c.steps("raw-clean")
	if c.best(took, direct, command{Op: "direct-write"}); c.noDirect == nil {
		c.steps("raw-clean")
	}
	c.durable(took, copied.cpu)
	c.changed(took)
	c.restore(took, storage.LevelLocal)
	c.steps("forget-local")
	c.restore(took, storage.LevelGlobal)
	c.steps("prune")
	return c.err
}

// block takes a checkpoint through coordinated; each rank is a job. If that fails, there is no such figure.
func (c *levels) block(took bench.Set) {
	if c.noBlock != nil || c.err != nil {
		return
	}
	r := c.do(command{Op: "block"})
	c.steps("block-end")
	if c.noBlock, c.err = c.err, nil; c.noBlock == nil {
		took.Add(blocking, r.value)
	}
}

func (c *levels) durable(took bench.Set, copyCPU float64) {
	put := c.store("put", storage.LevelLocal)
	flush := c.together(storage.LevelGlobal)
	gib := float64(c.setup.Bytes) * float64(c.setup.Size) / (1 << 30)
	took.Add(local, put.wall)
	took.Add(both, put.wall+flush.wall)
	took.Add(cpu, (copyCPU+put.cpu+flush.cpu)/gib)
}

// changed takes another epoch after a tenth of the data has changed.
func (c *levels) changed(took bench.Set) {
	c.epoch++
	c.steps("touch-tenth", "memcpy")
	put := c.store("put", storage.LevelLocal)
	took.Add(increment, float64(put.stored)/float64(c.setup.Bytes)/float64(c.setup.Size))
	// A full epoch follows, so that all that is restored lies in one file.
	c.epoch++
	c.steps("touch", "memcpy")
	put = c.store("put", storage.LevelLocal)
	flush := c.store("flush-node", storage.LevelGlobal)
	took.Add(readBack, put.wall+flush.wall)
}

// restore reads the shards from the page cache, and then from the disk, each time as a restore and directly.
func (c *levels) restore(took bench.Set, level string) {
	c.do(command{Op: "raw-read", Level: level}) // fills the page cache
	c.timed(took, rawRead+level, "raw-read", level)
	c.timed(took, restore+level, "fetch", level)
	if c.steps("compare"); c.noDirect != nil {
		return
	}
	c.do(command{Op: "drop", Level: level})
	c.best(took, rawPast+level, command{Op: "direct-read", Level: level})
	c.do(command{Op: "drop", Level: level})
	c.timed(took, past+level, "fetch", level)
	c.steps("compare")
}

// directLanes are the numbers of requests in flight of each rank of which the best is the baseline.
var directLanes = []int{1, 4, 8}

// best times a command with each number of requests in flight and adds each time. A file system
// without direct access has no such baseline.
func (c *levels) best(took bench.Set, metric string, cmd command) {
	for _, cmd.Lanes = range directLanes {
		if c.err != nil || c.noDirect != nil {
			return
		}
		r := c.do(cmd)
		if c.err != nil && strings.Contains(c.err.Error(), errors.ErrUnsupported.Error()) {
			c.noDirect, c.err = errors.New("the file system refuses O_DIRECT"), nil
			return
		}
		took.Add(laned(metric, cmd.Lanes), r.wall)
	}
}

// laned returns a metric with so many requests in flight.
func laned(metric string, lanes int) string { return fmt.Sprint(metric, ", ", lanes) }

// fastest has the samples of the number of requests in flight that has the least median. The least of
// each run would be the luck of three tries beside one.
func fastest(took bench.Set, metric string) (best bench.Samples) {
	for _, n := range directLanes {
		if s := took[laned(metric, n)]; best == nil || len(s) > 0 && s.Median() < best.Median() {
			best = s
		}
	}
	return best
}

func (c *levels) rows(took bench.Set) []bench.Row {
	row := func(metric, unit string) bench.Row { return bench.Row{Case: c.name, Metric: metric, Unit: unit} }
	blocked := row("blocking / memcpy", "s").Of(took[blocking], took[memcpy], goalBlocking)
	if c.noBlock != nil {
		blocked = bench.Row{Case: c.name, Metric: blocked.Metric, Skipped: c.noBlock.Error()}
	}
	beside := func(metric string, value, base bench.Samples, goal bench.Goal) bench.Row {
		if c.noDirect != nil {
			return bench.Row{Case: c.name, Metric: metric, Skipped: c.noDirect.Error()}
		}
		return row(metric, "s").Of(value, base, goal)
	}
	l, g := storage.LevelLocal, storage.LevelGlobal
	return []bench.Row{
		blocked,
		beside("durable local / parallel O_DIRECT write", took[local], fastest(took, direct), goalDirectWrite),
		beside("restore local, uncached / parallel O_DIRECT read", took[past+l],
			fastest(took, rawPast+l), goalDirectRead),
		beside("restore global, uncached / parallel O_DIRECT read", took[past+g],
			fastest(took, rawPast+g), goalDirectRead),
		row("durable local / raw write+fsync", "s").Of(took[local], took[rawWrite], goalLocal),
		row("durable local+global / raw write+fsync", "s").Of(took[both], took[rawWrite], goalGlobal),
		row("durable local+global, read back / raw", "s").Of(took[readBack], took[rawWrite], nil),
		row("restore local / raw warm read", "s").Of(took[restore+storage.LevelLocal], took[rawRead+storage.LevelLocal],
			goalRestoreLocal),
		row("restore global / raw warm read", "s").Of(took[restore+storage.LevelGlobal],
			took[rawRead+storage.LevelGlobal], goalRestoreGlobal),
		row("CPU capture to global", "s/GiB").Of(took[cpu], nil, goalCPU),
		row("written when a tenth changed", "of bytes").Of(took[increment], nil, goalIncrement),
	}
}

// Package storage measures what checkpoints cost on the file systems at
// hand, as ratios to what the same processes need for raw writes, reads and
// copies of the same bytes in the same run.
package storage

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/holdfast-hpc/holdfast/internal/bench"
	"github.com/holdfast-hpc/holdfast/storage"
)

// Options says what is measured.
type Options struct {
	Dir    string   // where files are written; a directory is made in it and removed
	Self   []string // command line that makes this program a worker
	Ranks  []int    // numbers of processes
	MiB    []int    // per rank
	Runs   int
	Parity bool           // measure parity 4+2 as well
	Note   func(s string) // told of each case as it begins; may be nil
}

// Goals are upper bounds of ratios: to a raw write and fsync, a raw read from
// the page cache, or a copy into warm memory.
const (
	goalBlocking      = 1.3
	goalLocal         = 1.15
	goalGlobal        = 2.1
	goalParity        = 2.3
	goalRestoreLocal  = 1.5
	goalRestoreGlobal = 1.6
	goalCPU           = 0.6  // seconds per GiB, capture to the last level
	goalIncrement     = 0.15 // of the bytes, when a tenth has changed
)

// Run measures all cases.
func Run(ctx context.Context, o Options) ([]bench.Line, error) {
	dir, err := os.MkdirTemp(o.Dir, "holdfast-bench-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	var lines []bench.Line
	for _, ranks := range o.Ranks {
		for _, mib := range o.MiB {
			c := &levels{name: fmt.Sprintf("%d x %d MiB", ranks, mib), setup: Setup{
				Dir: filepath.Join(dir, fmt.Sprintf("%d-%d", ranks, mib)), Size: ranks, Bytes: int64(mib) << 20}}
			o.note(c.name)
			part, err := c.run(ctx, o)
			if err != nil {
				return lines, fmt.Errorf("%s: %w", c.name, err)
			}
			lines = append(lines, part...)
		}
	}
	if o.Parity {
		for _, mib := range o.MiB {
			o.note(fmt.Sprintf("parity, %d MiB", mib))
			part, err := parity(ctx, filepath.Join(dir, fmt.Sprintf("parity-%d", mib)), mib, o.Runs)
			if err != nil {
				return lines, fmt.Errorf("parity: %w", err)
			}
			lines = append(lines, part...)
		}
	}
	return lines, nil
}

func (o *Options) note(s string) {
	if o.Note != nil {
		o.Note(s)
	}
}

// levels is a case with the levels local and global.
type levels struct {
	name  string
	setup Setup
	crew  *crew

	rawWrite, memcpy, block      bench.Samples
	local, both, cpu, increment  bench.Samples
	readBack                     bench.Samples
	rawReadLocal, restoreLocal   bench.Samples
	rawReadGlobal, restoreGlobal bench.Samples
	noBlock                      error
}

func (c *levels) run(ctx context.Context, o Options) (lines []bench.Line, err error) {
	for _, l := range []string{storage.LevelLocal, storage.LevelGlobal} {
		if err := os.MkdirAll(filepath.Join(c.setup.Dir, l), 0o755); err != nil {
			return nil, err
		}
	}
	defer os.RemoveAll(c.setup.Dir)
	if c.crew, err = hire(ctx, o.Self, c.setup); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, c.crew.dismiss()) }()
	for run := range o.Runs + 1 {
		if err := c.once(run > 0); err != nil { // the first run warms up
			return nil, err
		}
	}
	return c.lines(), nil
}

// step runs a command and notes its wall time.
func (c *levels) step(count bool, s *bench.Samples, op, level string) (result, error) {
	r, err := c.crew.do(command{Op: op, Level: level, Epoch: c.crew.epoch})
	if count && s != nil && err == nil {
		*s = append(*s, r.wall)
	}
	return r, err
}

// once is one run: every metric and its baseline in turn.
func (c *levels) once(count bool) error {
	c.crew.epoch++
	if _, err := c.step(false, nil, "touch", ""); err != nil {
		return err
	}
	copied, err := c.step(count, &c.memcpy, "memcpy", "")
	if err != nil {
		return err
	}
	c.blocking(count)
	if _, err := c.step(count, &c.rawWrite, "raw-write", ""); err != nil {
		return err
	}
	if _, err := c.step(false, nil, "raw-clean", ""); err != nil {
		return err
	}
	if err := c.durable(count, copied.cpu); err != nil {
		return err
	}
	if err := c.changed(count); err != nil {
		return err
	}
	return c.restores(count)
}

// blocking takes a checkpoint through coordinated; each rank is a job.
func (c *levels) blocking(count bool) {
	if c.noBlock != nil {
		return
	}
	r, err := c.crew.do(command{Op: "block"})
	if err != nil {
		c.noBlock = err
		return
	}
	if _, err := c.crew.do(command{Op: "block-end"}); err != nil {
		c.noBlock = err
		return
	}
	if count {
		c.block = append(c.block, r.value)
	}
}

func (c *levels) durable(count bool, copyCPU float64) error {
	put, err := c.crew.store("put", storage.LevelLocal)
	if err != nil {
		return err
	}
	flush, err := c.crew.together(storage.LevelGlobal)
	if err != nil {
		return err
	}
	if count {
		gib := float64(c.setup.Bytes) * float64(c.setup.Size) / (1 << 30)
		c.local = append(c.local, put.wall)
		c.both = append(c.both, put.wall+flush.wall)
		c.cpu = append(c.cpu, (copyCPU+put.cpu+flush.cpu)/gib)
	}
	return nil
}

// changed takes a further epoch after a tenth of the data has changed.
func (c *levels) changed(count bool) error {
	c.crew.epoch++
	for _, op := range []string{"touch-tenth", "memcpy"} {
		if _, err := c.step(false, nil, op, ""); err != nil {
			return err
		}
	}
	put, err := c.crew.store("put", storage.LevelLocal)
	if err != nil {
		return err
	}
	if count {
		c.increment = append(c.increment, float64(put.stored)/float64(c.setup.Bytes)/float64(c.setup.Size))
	}
	// A full epoch follows, so that all that is restored lies in one file.
	c.crew.epoch++
	for _, op := range []string{"touch", "memcpy"} {
		if _, err := c.step(false, nil, op, ""); err != nil {
			return err
		}
	}
	if put, err = c.crew.store("put", storage.LevelLocal); err != nil {
		return err
	}
	flush, err := c.crew.store("flush-node", storage.LevelGlobal)
	if count && err == nil {
		c.readBack = append(c.readBack, put.wall+flush.wall)
	}
	return err
}

func (c *levels) restores(count bool) error {
	if err := c.restore(count, storage.LevelLocal, &c.rawReadLocal, &c.restoreLocal); err != nil {
		return err
	}
	if _, err := c.step(false, nil, "forget-local", ""); err != nil {
		return err
	}
	if err := c.restore(count, storage.LevelGlobal, &c.rawReadGlobal, &c.restoreGlobal); err != nil {
		return err
	}
	_, err := c.step(false, nil, "prune", "")
	return err
}

func (c *levels) restore(count bool, level string, raw, ours *bench.Samples) error {
	if _, err := c.step(false, nil, "raw-read", level); err != nil { // fills the page cache
		return err
	}
	if _, err := c.step(count, raw, "raw-read", level); err != nil {
		return err
	}
	if _, err := c.step(count, ours, "fetch", level); err != nil {
		return err
	}
	_, err := c.step(false, nil, "compare", "")
	return err
}

func (c *levels) lines() []bench.Line {
	line := func(metric, unit string) bench.Line {
		return bench.Line{Suite: "storage", Case: c.name, Metric: metric, Unit: unit}
	}
	blocking := line("blocking / memcpy", "s")
	if c.noBlock != nil {
		blocking = bench.Skip(blocking, c.noBlock)
	} else {
		blocking = bench.Against(blocking, c.block, c.memcpy, goalBlocking)
	}
	return []bench.Line{
		blocking,
		bench.Against(line("durable local / raw write+fsync", "s"), c.local, c.rawWrite, goalLocal),
		bench.Against(line("durable local+global / raw write+fsync", "s"), c.both, c.rawWrite, goalGlobal),
		bench.Against(line("durable local+global, read back / raw", "s"), c.readBack, c.rawWrite, 0),
		bench.Against(line("restore local / raw warm read", "s"), c.restoreLocal, c.rawReadLocal, goalRestoreLocal),
		bench.Against(line("restore global / raw warm read", "s"), c.restoreGlobal, c.rawReadGlobal, goalRestoreGlobal),
		bench.Alone(line("CPU capture to global", "s/GiB"), c.cpu, goalCPU),
		bench.Alone(line("written when a tenth changed", "of bytes"), c.increment, goalIncrement),
	}
}

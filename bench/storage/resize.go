package storage

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-hpc/holdfast/bench"
	"github.com/holdfast-hpc/holdfast/coordinated"
	"github.com/holdfast-hpc/holdfast/mpiwrap"
	"github.com/holdfast-hpc/holdfast/mpiwrap/mpitest"
	"github.com/holdfast-hpc/holdfast/storage"
)

// Goals of restarts on another number of ranks.
const (
	goalResize      = bench.AtMost(1.3)  // of the time of a restart on the same number, for the same bytes
	goalResizeBytes = bench.AtMost(1.05) // bytes read, of those that the ranks need
)

// ResizeOptions says which restarts are measured.
type ResizeOptions struct {
	Dir   string // where files are written; a directory is made in it and removed
	Ranks int    // that write the epoch, at least 2
	MiB   int    // of all ranks together
}

// division is a way to divide a matrix of float64 among ranks.
type division struct {
	name string
	of   func(n, ranks, rank int) coordinated.Array
}

// resizeSide is the length of a row. A rank of 16 that has columns has pieces of 8 KiB.
const resizeSide = 16384

func divisions() []division {
	return []division{
		{"rows", func(n, ranks, rank int) coordinated.Array {
			return coordinated.Block([]int{n, resizeSide}, []int{ranks, 1}, rank)
		}},
		{"blocks of 64 rows dealt out", func(n, ranks, rank int) coordinated.Array {
			return coordinated.BlockCyclic([]int{n, resizeSide}, []int{ranks, 1}, []int{64, 1}, rank)
		}},
		{"columns", func(n, ranks, rank int) coordinated.Array {
			return coordinated.Block([]int{n, resizeSide}, []int{1, ranks}, rank)
		}},
	}
}

// Resize measures restarts on half and on twice the ranks that wrote an epoch, beside restarts on as many: the time of
// Restore, and the bytes that are read. The ranks are simulated in this process and share its page cache, in which the
// epoch is. Of the runs the fastest counts.
func Resize(ctx context.Context, r *bench.Runner, o ResizeOptions) error {
	if o.Ranks < 2 || o.MiB < 1 {
		return fmt.Errorf("--resize %d with %d MiB: want 2 ranks or more, and 1 MiB or more", o.Ranks, o.MiB)
	}
	r.Start("storage", len(divisions())+1)
	dir, err := os.MkdirTemp(o.Dir, "holdfast-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	for _, d := range divisions() {
		for _, level := range []string{storage.LevelGlobal, storage.LevelLocal} {
			if level == storage.LevelLocal && d.name != "rows" {
				continue // the difference is the place of the files
			}
			r.Step("%s, %s", d.name, level)
			z := &resize{o: o, of: d.of, level: level, dir: filepath.Join(dir, level)}
			if err := z.run(ctx, r, d.name); err != nil {
				return fmt.Errorf("%s, %s: %w", d.name, level, err)
			}
		}
	}
	return nil
}

// resize is one case: a division at a level.
type resize struct {
	o     ResizeOptions
	of    func(n, ranks, rank int) coordinated.Array
	level string
	dir   string
}

func (z *resize) run(ctx context.Context, r *bench.Runner, name string) (err error) {
	defer func() { err = errors.Join(err, os.RemoveAll(z.dir)) }()
	if err := z.job(ctx, z.o.Ranks, z.write); err != nil {
		return err
	}
	counts := []int{z.o.Ranks, z.o.Ranks / 2, 2 * z.o.Ranks}
	took, err := bench.Repeat(ctx, r.Runs, func(took bench.Set) error {
		for _, n := range counts { // in turn
			m := &measured{}
			err := z.job(ctx, n, func(ctx context.Context, world *mpiwrap.Comm, ck *coordinated.Checkpointer,
				u []float64) error {
				return z.restore(ctx, world, ck, u, m)
			})
			if err != nil {
				return fmt.Errorf("%d ranks: %w", n, err)
			}
			took.Add(fmt.Sprint("time ", n), m.seconds)
			took.Add(fmt.Sprint("read ", n), m.read)
		}
		return nil
	})
	if err != nil {
		return err
	}
	needed := bench.Samples{float64(z.rows()) * resizeSide * 8}
	for _, n := range counts {
		row := bench.Row{Case: fmt.Sprintf("%s, %d MiB of %d ranks, %s", name, z.o.MiB, z.o.Ranks, z.level)}
		row.Metric, row.Unit = fmt.Sprintf("restart on %d ranks / on %d", n, z.o.Ranks), "s"
		if n == z.o.Ranks {
			row.Metric = fmt.Sprintf("restart on %d ranks", n)
			r.Add(row.Fastest(took[fmt.Sprint("time ", n)], nil, nil))
		} else {
			r.Add(row.Fastest(took[fmt.Sprint("time ", n)], took[fmt.Sprint("time ", z.o.Ranks)], goalResize))
		}
		row.Metric, row.Unit = fmt.Sprintf("restart on %d ranks: bytes read / needed", n), "B"
		r.Add(row.Of(took[fmt.Sprint("read ", n)], needed, goalResizeBytes))
	}
	return nil
}

// rows returns how many rows the matrix has.
func (z *resize) rows() int { return max(z.o.MiB<<20/(8*resizeSide), 1) }

// job runs so many ranks that protect the matrix.
func (z *resize) job(ctx context.Context, ranks int, body func(ctx context.Context, world *mpiwrap.Comm,
	ck *coordinated.Checkpointer, u []float64) error) error {
	if err := os.MkdirAll(z.dir, 0o755); err != nil {
		return err
	}
	opt := coordinated.Options{Job: "bench", Elastic: true, Logger: slog.New(slog.DiscardHandler), Global: z.dir}
	if z.level == storage.LevelLocal {
		opt.Local, opt.Global = z.dir, ""
	}
	return mpitest.NewWorld(ranks, mpitest.Options{}).Run(func(world *mpiwrap.Comm) error {
		ck, err := coordinated.Open(ctx, world, opt)
		if err != nil {
			return err
		}
		a := z.of(z.rows(), ranks, world.Rank())
		u := make([]float64, a.Len())
		for i := range u {
			u[i] = 0.5 // the pages are there
		}
		if err = ck.ProtectGlobal("u", a, &u); err == nil {
			err = body(ctx, world, ck, u)
		}
		if err != nil {
			ck.Abort(err)
			return err
		}
		return ck.Close()
	})
}

// write takes the epoch.
func (z *resize) write(ctx context.Context, world *mpiwrap.Comm, ck *coordinated.Checkpointer, u []float64) error {
	if _, err := ck.Restore(ctx); err != nil {
		return err
	}
	for i := range u {
		u[i] = 1 / float64(i+7*world.Rank()+3)
	}
	if world.Rank() == 0 {
		if err := ck.RequestStop(ctx); err != nil {
			return err
		}
	}
	for {
		if err := ck.Point(ctx); errors.Is(err, coordinated.ErrStop) {
			return nil
		} else if err != nil {
			return err
		}
		if err := world.Barrier(); err != nil {
			return err
		}
	}
}

// measured is the cost of one restart: the time of the slowest rank, and the bytes that the process has read.
type measured struct {
	mu      sync.Mutex
	seconds float64
	read    float64
}

// restore reads the epoch.
func (z *resize) restore(ctx context.Context, world *mpiwrap.Comm, ck *coordinated.Checkpointer, u []float64,
	m *measured) error {
	before, err := bytesRead()
	if err != nil {
		return err
	}
	if err := world.Barrier(); err != nil {
		return err
	}
	begin := time.Now()
	ok, err := ck.Restore(ctx)
	if err != nil {
		return err
	}
	seconds := time.Since(begin).Seconds()
	if err := world.Barrier(); err != nil {
		return err
	}
	after, err := bytesRead()
	if !ok || slices.Contains(u, 0.5) {
		return errors.New("not all was restored")
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.seconds = max(m.seconds, seconds)
	if world.Rank() == 0 {
		m.read = float64(after - before)
	}
	return err
}

// bytesRead returns the bytes that the process has read from files and connections, cached or not.
func bytesRead() (n int64, err error) {
	b, err := os.ReadFile("/proc/self/io")
	if err == nil {
		_, err = fmt.Sscanf(string(b), "rchar: %d", &n)
	}
	return n, err
}

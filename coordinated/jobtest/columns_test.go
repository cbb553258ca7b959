package jobtest_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/holdfast-hpc/holdfast/coordinated"
	"github.com/holdfast-hpc/holdfast/coordinated/internal/connect"
	"github.com/holdfast-hpc/holdfast/coordinated/jobtest"
	"github.com/holdfast-hpc/holdfast/gpustate"
	"github.com/holdfast-hpc/holdfast/internal/layout"
	"github.com/holdfast-hpc/holdfast/internal/vfs"
	"github.com/holdfast-hpc/holdfast/mpiwrap"
	"github.com/holdfast-hpc/holdfast/mpiwrap/mpitest"
)

// smallCuts cuts boxes wherever they can be.
var smallCuts = layout.Cuts{Most: 4, Run: 1, Piece: 1, Long: 1 << 30, Runs: 1 << 20}

// withCuts returns a context under which the arrays of Checkpointers are cut so.
func withCuts(ctx context.Context, cuts layout.Cuts) context.Context {
	return connect.WithSeam(ctx, connect.Seam{Cuts: &cuts})
}

// readFS counts what is read of shards and packs.
type readFS struct {
	vfs.OS
	read atomic.Int64
}

func (f *readFS) Open(name string) (vfs.File, error) {
	file, err := f.OS.Open(name)
	if err != nil || !strings.Contains(name, ".shard") {
		return file, err
	}
	return &readFile{file, f}, nil
}

type readFile struct {
	vfs.File
	fs *readFS
}

func (f *readFile) ReadAt(p []byte, off int64) (int, error) {
	n, err := f.File.ReadAt(p, off)
	f.fs.read.Add(int64(n))
	return n, err
}

// columns is a program with a matrix that is divided by columns. It writes an epoch, or restores one.
type columns struct {
	fs      readFS
	whole   bool // its boxes are not cut, as those of builds before 0.2 are not
	restore bool
	device  bool
}

const columnsRows, columnsAll = 512, 4096

func (p *columns) run(t *testing.T, opt coordinated.Options, ranks int) {
	t.Helper()
	opt.Elastic = true
	p.fs.read.Store(0)
	err := mpitest.NewWorld(ranks, mpitest.Options{}).Run(func(world *mpiwrap.Comm) (err error) {
		ctx := vfs.With(context.Background(), &p.fs)
		if p.whole {
			ctx = withCuts(ctx, layout.Cuts{})
		}
		a := coordinated.Block([]int{columnsRows, columnsAll}, []int{1, ranks}, world.Rank()).Ghosts(0, 3)
		s := &share{array: a, mem: make([]float64, a.Len())}
		if p.device {
			dev, err := gpustate.Open(gpustate.Select{Kind: "fake"})
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, dev.Close()) }()
			if err := s.onDevice(dev, "u"); err != nil {
				return err
			}
		}
		ck, err := coordinated.Open(ctx, world, opt)
		if err != nil {
			return err
		}
		if err = s.protect(ck, "u"); err == nil {
			err = p.body(ctx, world, ck, s)
		}
		if err != nil && !errors.Is(err, coordinated.ErrStop) {
			ck.Abort(err)
			return err
		}
		return ck.Close()
	})
	if err != nil {
		t.Fatalf("%d ranks: %v", ranks, err)
	}
}

func (p *columns) body(ctx context.Context, world *mpiwrap.Comm, ck *coordinated.Checkpointer, s *share) error {
	want := make([]float64, len(s.mem)) // by rows: three ghosts, the rank's columns, three ghosts
	first, own := s.array.Boxes[0].Start[1], s.array.Boxes[0].Count[1]
	for row := range columnsRows {
		of := want[row*(own+6)+3:][:own]
		for c := range of {
			of[c] = float64(1 + row*columnsAll + first + c)
		}
	}
	restored, err := ck.Restore(ctx)
	if err != nil || restored != p.restore {
		return fmt.Errorf("restored %v: %w", restored, err)
	}
	if restored {
		if err := s.pull(); err != nil {
			return err
		}
		if !slices.Equal(s.mem, want) {
			return errors.New("what was restored is not what was saved")
		}
		return nil
	}
	copy(s.mem, want)
	if err := s.push(); err != nil {
		return err
	}
	if world.Rank() == 0 {
		if err := ck.RequestStop(ctx); err != nil {
			return err
		}
	}
	if err := world.Barrier(); err != nil {
		return err
	}
	return jobtest.UntilTaken(ctx, ck) // a Point may be too early
}

// TestColumnsAreReadOnce: ranks that take a part of what a rank had, in rows shorter than a chunk, read little else.
func TestColumnsAreReadOnce(t *testing.T) {
	const bytes = columnsRows * columnsAll * 8
	for _, c := range []struct {
		name string
		p    *columns
		most map[int]float64 // bytes read of those needed, by the number of ranks
	}{
		{"in memory", &columns{}, map[int]float64{1: 1.05, 2: 1.05, 3: 1.3, 4: 1.05, 8: 1.05}},
		{"on a device", &columns{device: true}, map[int]float64{1: 1.05, 2: 1.05, 4: 1.05}},
		{"not cut", &columns{whole: true}, map[int]float64{1: 1.05, 2: 1.05, 4: 2.05}},
	} {
		t.Run(c.name, func(t *testing.T) {
			opt := jobtest.Options(t)
			p := c.p
			p.run(t, opt, 2)
			if read := p.fs.read.Load(); read > bytes/10 && !p.device {
				t.Errorf("%d bytes of shards were read to copy them to the global directory: they are in memory", read)
			}
			if err := os.RemoveAll(opt.Global); err != nil {
				t.Fatal(err)
			}
			opt.Global = "" // a run ends with a checkpoint, unless nothing has changed since the last one
			for ranks, most := range c.most {
				again := &columns{restore: true, device: p.device}
				again.run(t, opt, ranks)
				ratio := float64(again.fs.read.Load()) / bytes
				if ratio < 0.99 || ratio > most {
					t.Errorf("%d ranks read %.3f of the bytes that they need, want at most %.2f", ranks, ratio, most)
				}
				if p.whole && ranks == 4 && ratio < 1.9 {
					t.Errorf("4 ranks read %.3f of the bytes that they need: does the test count?", ratio)
				}
			}
		})
	}
}

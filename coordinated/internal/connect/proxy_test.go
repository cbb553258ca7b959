package connect_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-hpc/holdfast/coordinated"
	"github.com/holdfast-hpc/holdfast/internal/endpoint"
	"github.com/holdfast-hpc/holdfast/internal/program"
	"github.com/holdfast-hpc/holdfast/internal/vfs"
	"github.com/holdfast-hpc/holdfast/storage"
)

// farRank is a rank of a program in another process, as its agent sees it. It protects one array.
type farRank struct {
	rank, size int
	exchange   *farExchange
	points     atomic.Uint64
	armed      atomic.Bool
	data       []byte
}

// farExchange is how the ranks of the program reach each other.
type farExchange struct {
	mu    sync.Mutex // guards what follows
	round *farRound
}

type farRound struct {
	parts map[int][]byte
	done  chan struct{}
}

func (r *farRank) Rank() int                 { return r.rank }
func (r *farRank) Size() int                 { return r.size }
func (r *farRank) Points() uint64            { return r.points.Load() }
func (r *farRank) Arm(armed bool)            { r.armed.Store(armed) }
func (r *farRank) Signals() <-chan os.Signal { return nil }
func (r *farRank) Map(n int) ([]byte, error) { return make([]byte, n), nil }
func (r *farRank) Unmap([]byte) error        { return nil }
func (r *farRank) Load(m program.Move)       { copy(r.data, m.Shared) }
func (r *farRank) FreePrevious()             {}
func (r *farRank) Messages(program.Exchange) endpoint.Endpoint {
	return nil
}
func (r *farRank) Previous() *storage.MemoryShard {
	return nil
}

func (r *farRank) Meet(context.Context) ([]int, error) {
	return nil, r.Allgather(make([]byte, r.size), []byte{0})
}

func (r *farRank) Save(moves []program.Move) (func(context.Context) error, error) {
	for _, m := range moves {
		copy(m.Shared, r.data)
	}
	return nil, nil
}

func (r *farRank) Allgather(all, mine []byte) error {
	x := r.exchange
	x.mu.Lock()
	if x.round == nil {
		x.round = &farRound{map[int][]byte{}, make(chan struct{})}
	}
	now := x.round
	if now.parts[r.rank] = bytes.Clone(mine); len(now.parts) == r.size { // the caller may write to mine again
		x.round = nil
		close(now.done)
	}
	x.mu.Unlock()
	<-now.done
	for i, part := range now.parts {
		copy(all[i*len(mine):], part)
	}
	return nil
}

// listingFS counts how often directories below one are listed.
type listingFS struct {
	vfs.FS
	dir   string
	lists *atomic.Int64
}

func (f listingFS) ReadDir(name string) ([]vfs.Entry, error) {
	if strings.HasPrefix(name, f.dir) {
		f.lists.Add(1)
	}
	return f.FS.ReadDir(name)
}

// TestElsewhereLooksOnce: of a program in other processes, as of one in Go, rank 0 alone lists the directories that
// all share when it opens, restores and takes checkpoints.
func TestElsewhereLooksOnce(t *testing.T) {
	const ranks = 3
	dir := t.TempDir()
	start := func(want bool) *[ranks]atomic.Int64 {
		x, lists := &farExchange{}, &[ranks]atomic.Int64{}
		var all sync.WaitGroup
		for r := range ranks {
			all.Go(func() {
				p := &farRank{rank: r, size: ranks, exchange: x, data: make([]byte, 4096)}
				opt := coordinated.Options{Job: "far", Global: dir, Logger: slog.New(slog.DiscardHandler),
					CopyWorkers: 1}
				ctx := vfs.With(t.Context(), listingFS{vfs.OS{}, dir, &lists[r]})
				if err := runFar(ctx, p, opt, want); err != nil {
					t.Errorf("rank %d: %v", r, err)
				}
			})
		}
		all.Wait()
		return lists
	}
	for _, restores := range []bool{false, true} {
		lists := start(restores)
		for r := range lists {
			if n := lists[r].Load(); (n > 0) != (r == 0) {
				t.Errorf("restores %t: rank %d lists directories below %s %d times", restores, r, filepath.Base(dir), n)
			}
		}
	}
}

// runFar restores, or finds that it must not, and takes a checkpoint.
func runFar(ctx context.Context, p *farRank, opt coordinated.Options, restores bool) error {
	c, err := coordinated.OpenProxy(ctx, p, opt)
	if err != nil {
		return err
	}
	array := &program.Array{Layout: "uint8", Elem: 1, Count: func() int64 { return int64(len(p.data)) }}
	if err := c.Protect("data", array); err != nil {
		return err
	}
	if got, err := c.Restore(ctx); err != nil || got != restores || got && p.data[0] != byte(p.rank+1) {
		return fmt.Errorf("restored %t and %d (%v), want %t and %d", got, p.data[0], err, restores, p.rank+1)
	}
	p.data[0] = byte(p.rank + 1)
	if p.rank == 0 {
		if err := c.Request(ctx); err != nil {
			return err
		}
	}
	for len(c.Stats().Epochs) == 0 {
		if !p.armed.Load() {
			time.Sleep(time.Millisecond) // the agent arms
			continue
		}
		p.points.Add(1)
		if err := c.Point(ctx); err != nil {
			return err
		}
	}
	return c.Close()
}

// TestGivenUpElsewhere: an epoch that is given up says how far a program in another process is, and no line of the
// code of this one.
func TestGivenUpElsewhere(t *testing.T) {
	opt := coordinated.Options{Job: "far", Global: t.TempDir(), Logger: slog.New(slog.DiscardHandler), CopyWorkers: 1,
		CutTimeout: 10 * time.Millisecond}
	p := &farRank{size: 1, exchange: &farExchange{}, data: make([]byte, 8)}
	c, err := coordinated.OpenProxy(t.Context(), p, opt)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Restore(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := c.Request(t.Context()); err != nil {
		t.Fatal(err)
	}
	for len(c.Stats().Epochs) == 0 { // it comes to no Point
		time.Sleep(time.Millisecond)
	}
	err = c.Stats().Epochs[0].Err
	if err == nil || !strings.HasSuffix(err.Error(), "rank 0: computing, 0 point(s) passed") {
		t.Errorf("got %v", err)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
}

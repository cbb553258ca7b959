package jobtest_test

import (
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/holdfast-hpc/holdfast/coordinated"
	"github.com/holdfast-hpc/holdfast/coordinated/internal/connect"
	"github.com/holdfast-hpc/holdfast/coordinated/jobtest"
	"github.com/holdfast-hpc/holdfast/internal/vfs"
	"github.com/holdfast-hpc/holdfast/mpiwrap"
	"github.com/holdfast-hpc/holdfast/mpiwrap/mpitest"
)

// manifestFS notes who makes manifests, by rank.
type manifestFS struct {
	vfs.FS
	made func(name string)
}

func (f manifestFS) Create(name string, direct bool) (vfs.File, error) {
	if filepath.Base(name)[0] == 'm' {
		f.made(name)
	}
	return f.FS.Create(name, direct)
}

func (f manifestFS) Identity(dir string) string { return vfs.Identity(f.FS, dir) }

// TestOneWriter: ranks of a node that share a directory leave its manifests to the first of them, a rank with one of
// its own writes them itself, and a restart finds each epoch whole.
func TestOneWriter(t *testing.T) {
	const ranks = 5
	shared := jobtest.Options(t)
	dirs := make([]string, ranks)
	for r := range dirs {
		dirs[r] = filepath.Join(filepath.Dir(shared.Local), []string{"n0", "n1", "n0", "n1", "alone"}[r])
		if err := os.MkdirAll(dirs[r], 0o755); err != nil {
			t.Fatal(err)
		}
	}
	options := func(rank int) coordinated.Options {
		opt := shared
		opt.Local, opt.Global = dirs[rank], ""
		return opt
	}
	var mu sync.Mutex
	made := map[int][]string{} // manifests by rank
	for run := range 2 {
		p := ring{Steps: 12, Asker: 1, AskAt: 5, Stop: run == 0}
		err := mpitest.NewWorld(ranks, mpitest.Options{Seed: 5}).Run(func(world *mpiwrap.Comm) error {
			ctx := connect.WithSeam(t.Context(),
				connect.Seam{Host: []string{"n0", "n1", "n0", "n1", "n0"}[world.Rank()]})
			if run == 0 {
				ctx = vfs.With(ctx, manifestFS{vfs.OS{}, func(name string) {
					mu.Lock()
					defer mu.Unlock()
					made[world.Rank()] = append(made[world.Rank()], name)
				}})
			}
			return p.RunUnder(ctx, world, options(world.Rank()))
		})
		if err != nil && (run == 1 || !errors.Is(err, coordinated.ErrStop)) {
			t.Fatalf("run %d: %v", run, err)
		}
		if run == 1 && p.Restored.Load() != ranks {
			t.Errorf("%d of %d ranks restored", p.Restored.Load(), ranks)
		}
	}
	for r, want := range []int{1, 1, 0, 0, 1} {
		if len(made[r]) != want {
			t.Errorf("rank %d made manifests %v, want %d", r, made[r], want)
		}
	}
	for _, d := range dirs {
		if found, err := filepath.Glob(filepath.Join(d, "epoch-*", "manifest")); err != nil || len(found) != 1 {
			t.Errorf("got manifests %v in %s, %v, want one", found, d, err)
		}
	}
}

package coordinated

import (
	"context"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-hpc/holdfast/internal/vfs"
	"github.com/holdfast-hpc/holdfast/mpiwrap"
	"github.com/holdfast-hpc/holdfast/mpiwrap/mpitest"
)

// noManifest is a file system on which the manifest of one epoch cannot be
// written.
type noManifest struct {
	vfs.OS
	epoch string
}

func (f noManifest) Rename(from, to string) error {
	if filepath.Base(to) == "manifest" && strings.Contains(to, f.epoch) {
		return &fs.PathError{Op: "rename", Path: to, Err: fs.ErrPermission}
	}
	return f.OS.Rename(from, to)
}

// TestFailedManifestKeepsTwo fails one rank's manifest at each epoch in turn, at
// the local level and at the global one. All ranks have the same two epochs in
// the end, and continue from the newest.
func TestFailedManifestKeepsTwo(t *testing.T) {
	const ranks, epochs = 2, 6
	for _, where := range []string{"local", "global"} {
		for bad := 1; bad < epochs; bad++ {
			t.Run(fmt.Sprint(where, " ", bad), func(t *testing.T) {
				base := testOptions(t)
				base.Logger, base.Keep = slog.New(slog.DiscardHandler), 2
				opt := func(rank int) Options {
					o := base
					o.Local = filepath.Join(base.Local, fmt.Sprint(rank))
					if where == "global" && rank == 0 || where == "local" && rank == 1 {
						o.files = noManifest{epoch: fmt.Sprintf("%s/epoch-%010d", where, bad)}
						if where == "local" {
							o.files = noManifest{epoch: fmt.Sprintf("1/epoch-%010d", bad)}
						}
					}
					return o
				}
				for r := range ranks {
					if err := os.Mkdir(filepath.Join(base.Local, fmt.Sprint(r)), 0o755); err != nil {
						t.Fatal(err)
					}
				}
				err := mpitest.NewWorld(ranks, mpitest.Options{Seed: 5}).Run(func(world *mpiwrap.Comm) error {
					return takeEpochs(t.Context(), world, opt(world.Rank()), epochs)
				})
				if err != nil {
					t.Fatal(err)
				}
				dirs := []string{opt(0).Local, opt(1).Local, base.Global}
				second := 5
				if bad == second {
					second = 4
				}
				for _, d := range dirs { // epoch 1 may be there for what has not changed since
					got := committedIn(t, d)
					if where == "global" && d != base.Global {
						continue
					}
					if where == "local" && d == base.Global { // where an epoch goes that the local level refuses
						if !slices.Contains(got, 5) || !slices.Contains(got, 6) {
							t.Errorf("%s has epochs %v, want 5 and 6", d, got)
						}
						continue
					}
					if !slices.Contains(got, second) || !slices.Contains(got, 6) || slices.Contains(got, bad) &&
						bad > 1 {
						t.Errorf("%s has epochs %v, want %d and 6 and not %d", d, got, second, bad)
					}
				}
				if got := committedIn(t, dirs[0]); !slices.Equal(got, committedIn(t, dirs[1])) {
					t.Errorf("rank 0 has epochs %v, rank 1 has %v", got, committedIn(t, dirs[1]))
				}
			})
		}
	}
}

// takeEpochs takes so many epochs, one after the other, each with new bytes.
func takeEpochs(ctx context.Context, world *mpiwrap.Comm, opt Options, epochs int) error {
	ck, step, err := openStep(ctx, world, opt)
	if err != nil {
		return err
	}
	for ; *step < epochs; *step++ {
		if world.Rank() == 0 {
			if err := ck.Request(ctx); err != nil {
				return err
			}
		}
		for n := len(ck.Stats().Epochs); len(ck.Stats().Epochs) == n; {
			if err := ck.Point(ctx); err != nil {
				return err
			}
		}
		if err := world.Barrier(); err != nil {
			return err
		}
		ck.awaitWriters()
	}
	return ck.Close()
}

// awaitWriters waits until nothing is written any more.
func (c *Checkpointer) awaitWriters() { <-c.persist.Over() }

func committedIn(t *testing.T, dir string) (out []int) {
	t.Helper()
	list, err := filepath.Glob(filepath.Join(dir, "epoch-*", "manifest"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range list {
		var e int
		if _, err := fmt.Sscanf(filepath.Base(filepath.Dir(name)), "epoch-%d", &e); err != nil {
			t.Fatal(err)
		}
		out = append(out, e)
	}
	slices.Sort(out)
	return out
}

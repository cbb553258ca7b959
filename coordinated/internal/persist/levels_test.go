package persist_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/holdfast-hpc/holdfast/coordinated"
	"github.com/holdfast-hpc/holdfast/coordinated/internal/connect"
	"github.com/holdfast-hpc/holdfast/coordinated/jobtest"
	"github.com/holdfast-hpc/holdfast/internal/vfs"
	"github.com/holdfast-hpc/holdfast/mpiwrap"
	"github.com/holdfast-hpc/holdfast/mpiwrap/mpitest"
	"github.com/holdfast-hpc/holdfast/storage"
	"github.com/holdfast-hpc/holdfast/test/crashfs"
	"github.com/holdfast-hpc/holdfast/test/testbuf"
)

// fail makes a level's directory fail in a way.
func (b *bulk) fail(level, how string) {
	dir := "/" + level
	b.fs.SetRule(func(op crashfs.Op) error {
		if level != "" && op.Name != dir && !strings.HasPrefix(op.Name, dir+"/") {
			return nil
		}
		writes := !slices.Contains([]string{"open", "read", "readdir", "stat", "size", "statfs"}, op.Kind)
		switch {
		case how == "read-only" && writes:
			return &fs.PathError{Op: op.Kind, Path: op.Name, Err: syscall.EROFS}
		case how == "full" && (op.Kind == "create" || op.Kind == "write" || op.Kind == "link" || op.Kind == "mkdir"):
			return &fs.PathError{Op: op.Kind, Path: op.Name, Err: syscall.ENOSPC}
		case how == "broken":
			return &fs.PathError{Op: op.Kind, Path: op.Name, Err: syscall.EIO}
		}
		return nil
	})
	switch how { // a level whose directory is gone has no files to fail
	case "missing":
		b.fs.RemoveAll(dir)
	case "empty":
		b.fs.RemoveAll(dir)
		b.fs.MkdirAll(dir)
	}
}

var levelFaults = []string{"full", "read-only", "broken", "missing", "empty"}

// TestRestartWithoutALevel takes an epoch, makes one level fail, and starts again: the
// job continues from the epoch and takes more at what is left, loudly.
func TestRestartWithoutALevel(t *testing.T) {
	for _, level := range []string{storage.LevelLocal, storage.LevelGlobal} {
		for _, how := range levelFaults {
			t.Run(level+" "+how, func(t *testing.T) {
				b := newBulk(t, storage.LevelLocal, storage.LevelGlobal)
				if err := b.run(); err != nil {
					t.Fatal(err)
				}
				b.fail(level, how)
				if level == storage.LevelGlobal && how == "empty" { // for all that the job knows it is another one's
					err := b.run()
					if err == nil || !strings.Contains(err.Error(), "HOLDFAST_EPOCH=1 to continue it") {
						t.Errorf("got %v, want the new directory refused", err)
					}
					b.opt.Epoch = 1
				}
				var log testbuf.Buffer
				b.opt.Logger = slog.New(slog.NewTextHandler(&log, nil))
				if err := b.run(); err != nil {
					t.Fatalf("%v\n%s", err, &log)
				}
				if b.restored[0] == 0 || b.stats[0].Restore.Epoch != 1 {
					t.Errorf("restored epoch %d at step %d", b.stats[0].Restore.Epoch, b.restored[0])
				}
				other := map[string]string{storage.LevelLocal: storage.LevelGlobal,
					storage.LevelGlobal: storage.LevelLocal}[level]
				es := b.stats[0].Epochs[len(b.stats[0].Epochs)-1]
				if _, ok := es.Durable[other]; !ok || es.Err != nil && how != "empty" {
					t.Errorf("the next epoch is at %v, %v; want it at %s", es.Durable, es.Err, other)
				}
				loud := strings.Contains(log.String(), "some checkpoint levels are unusable")
				if loud != (how != "empty") {
					t.Errorf("it says so: %v\n%s", loud, &log)
				}
			})
		}
	}
}

// TestFirstStartWithoutALevel: a disk that is full does not keep a job from starting,
// and a directory that is not there does: it is a slip of the pen.
func TestFirstStartWithoutALevel(t *testing.T) {
	for _, how := range levelFaults[:4] {
		t.Run(how, func(t *testing.T) {
			b := newBulk(t, storage.LevelLocal, storage.LevelGlobal)
			b.fail(storage.LevelLocal, how)
			err := b.run()
			if how == "missing" {
				var failed *coordinated.RanksError
				if !errors.As(err, &failed) ||
					!strings.Contains(err.Error(), "create it, mount it, or correct the path") {
					t.Errorf("got %v, want it refused with the remedy", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if _, ok := b.stats[0].Epochs[0].Durable[storage.LevelGlobal]; !ok {
				t.Errorf("the epoch is at %v", b.stats[0].Epochs[0].Durable)
			}
		})
	}
}

// TestLevelFailsInARun: the first level fails while the job runs. Epochs come to the
// other one.
func TestLevelFailsInARun(t *testing.T) {
	for _, how := range levelFaults[:3] {
		t.Run(how, func(t *testing.T) {
			b := newBulk(t, storage.LevelLocal, storage.LevelGlobal)
			b.epochs = 3
			b.ask = func(taken []coordinated.EpochStats) bool {
				if len(taken) == 1 {
					if _, ok := taken[0].Durable[storage.LevelGlobal]; !ok {
						return false
					}
					b.fail(storage.LevelLocal, how)
				}
				return true
			}
			if err := b.run(); err != nil {
				t.Fatal(err)
			}
			for _, es := range b.stats[0].Epochs {
				if _, ok := es.Durable[storage.LevelGlobal]; !ok {
					t.Errorf("epoch %d is at %v: %v", es.Epoch, es.Durable, es.Err)
				}
			}
			b.fs.SetRule(nil)
			b.fail(storage.LevelLocal, "empty")
			b.epochs = 0
			if err := b.run(); err != nil || b.stats[0].Restore.Epoch != 3 {
				t.Errorf("restored %d, %v", b.stats[0].Restore.Epoch, err)
			}
		})
	}
}

// TestNoLevelAtAll: with all levels failing the start is refused with each reason.
func TestNoLevelAtAll(t *testing.T) {
	b := newBulk(t, storage.LevelLocal, storage.LevelGlobal)
	if err := b.run(); err != nil {
		t.Fatal(err)
	}
	b.fail("", "broken")
	err := b.run()
	if err == nil || !strings.Contains(err.Error(), "local") || !strings.Contains(err.Error(), "global") {
		t.Errorf("got %v", fmt.Sprint(err))
	}
}

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
				base := jobtest.Options(t)
				base.Logger, base.Keep = slog.New(slog.DiscardHandler), 2
				opt := func(rank int) coordinated.Options {
					o := base
					o.Local = filepath.Join(base.Local, fmt.Sprint(rank))
					return o
				}
				files := func(ctx context.Context, rank int) context.Context {
					switch {
					case where == "global" && rank == 0:
						return vfs.With(ctx, noManifest{epoch: fmt.Sprintf("global/epoch-%010d", bad)})
					case where == "local" && rank == 1:
						return vfs.With(ctx, noManifest{epoch: fmt.Sprintf("1/epoch-%010d", bad)})
					}
					return ctx
				}
				for r := range ranks {
					if err := os.Mkdir(filepath.Join(base.Local, fmt.Sprint(r)), 0o755); err != nil {
						t.Fatal(err)
					}
				}
				err := mpitest.NewWorld(ranks, mpitest.Options{Seed: 5}).Run(func(world *mpiwrap.Comm) error {
					return takeEpochs(files(t.Context(), world.Rank()), world, opt(world.Rank()), epochs)
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

// takeEpochs takes epochs, one after the other, each with new bytes.
func takeEpochs(ctx context.Context, world *mpiwrap.Comm, opt coordinated.Options, epochs int) error {
	var p connect.Inside
	ctx = connect.WithSeam(ctx, connect.Seam{Opened: func(of connect.Inside) { p = of }})
	ck, step, err := jobtest.OpenStep(ctx, world, opt)
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
		<-p.Idle() // nothing is written any more
	}
	return ck.Close()
}

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

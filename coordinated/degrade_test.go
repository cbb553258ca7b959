package coordinated

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/holdfast-hpc/holdfast/internal/crashfs"
	"github.com/holdfast-hpc/holdfast/internal/testbuf"
	"github.com/holdfast-hpc/holdfast/storage"
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
					err, refused := b.run(), (*storage.NewDirError)(nil)
					if !errors.As(err, &refused) || !strings.Contains(err.Error(), "HOLDFAST_EPOCH=1 to continue it") {
						t.Errorf("got %v, want a *storage.NewDirError", err)
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
				var failed *RanksError
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
			b.ask = func(taken []EpochStats) bool {
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

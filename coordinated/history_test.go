package coordinated

import (
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"

	"github.com/holdfast-hpc/holdfast/coordinated/internal/vote"
	"github.com/holdfast-hpc/holdfast/internal/crashfs"
	"github.com/holdfast-hpc/holdfast/storage"
)

// TestNeverStartsOverByItself: all epochs of a job are gone from some or all of its levels.
// As long as one of them tells that there were some the job does not start over.
func TestNeverStartsOverByItself(t *testing.T) {
	for _, c := range []struct {
		gone       string // what is removed: all of a level's directory, or its epochs only
		startsOver bool
	}{
		{"local global/epochs", false},
		{"local/epochs global", false},
		{"local/epochs global/epochs", false},
		{"local global", true}, // nothing tells it any more
	} {
		t.Run(c.gone, func(t *testing.T) {
			b := newBulk(t, storage.LevelLocal, storage.LevelGlobal)
			if err := b.run(); err != nil {
				t.Fatal(err)
			}
			for _, what := range strings.Fields(c.gone) {
				dir, epochs := strings.CutSuffix("/"+what, "/epochs")
				if epochs {
					b.fs.RemoveAll(dir + "/epoch-0000000001")
					continue
				}
				b.fs.RemoveAll(dir)
				b.fs.MkdirAll(dir)
			}
			b.opt.OnLost, b.restored = func(*LostError) {}, [3]int{}
			err := b.run()
			var lost *LostEpochsError
			if got := err == nil; got != c.startsOver || !c.startsOver && !errors.As(err, &lost) {
				t.Fatalf("starts over: %v, %v", got, err)
			}
			if !c.startsOver && !strings.Contains(err.Error(), "committed epoch 1 at level local") {
				t.Errorf("it does not say what there was: %v", err)
			}
			b.opt.Fresh = true
			if err := b.run(); err != nil || b.restored[0] != 0 {
				t.Errorf("told to start over: %v, restored at step %d", err, b.restored[0])
			}
		})
	}
}

// TestFirstCommitCutOff: the job dies while its first epoch is committed, and a shard is
// lost with it. It never had a checkpoint, so it starts over; had it had one before, it
// would not.
func TestFirstCommitCutOff(t *testing.T) {
	for _, before := range []int{0, 1} {
		t.Run(fmt.Sprint("epochs before ", before), func(t *testing.T) {
			b := newBulk(t, storage.LevelLocal)
			if before > 0 {
				if err := b.run(); err != nil {
					t.Fatal(err)
				}
			}
			b.fs.SetRule(func(op crashfs.Op) error { // the death comes before this note
				if op.Kind == "rename" && strings.Contains(op.Name, "holdfast.begun") {
					return syscall.EIO
				}
				return nil
			})
			if err := b.run(); err != nil {
				t.Fatal(err)
			}
			b.fs.SetRule(nil)
			for e := range before + 1 {
				if err := b.fs.Remove(shardOf(e+1, 1)); err != nil {
					t.Fatal(err)
				}
			}
			b.opt.OnLost, b.restored = func(*LostError) {}, [3]int{}
			err := b.run()
			var none *NoCommonEpochError
			if startsOver := err == nil; startsOver != (before == 0) || !startsOver && !errors.As(err, &none) {
				t.Errorf("starts over: %v, %v", startsOver, err)
			}
		})
	}
}

// TestOldBuildTellsNothing: a directory of a build that did not note what it had is not
// taken for one that had nothing.
func TestOldBuildTellsNothing(t *testing.T) {
	b := newBulk(t, storage.LevelLocal)
	if err := b.run(); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(b.fs.Remove("/local/holdfast.begun"), b.fs.Remove(shardOf(1, 1))); err != nil {
		t.Fatal(err)
	}
	b.opt.OnLost = func(*LostError) {}
	var none *NoCommonEpochError
	if err := b.run(); !errors.As(err, &none) {
		t.Errorf("got %v, want a *NoCommonEpochError", err)
	}
}

func TestNoCommon(t *testing.T) {
	var nc *NoCommonEpochError
	if err := noCommon([][]vote.Candidate{{{Epoch: 5}}, nil}, nil, nil); !errors.As(err, &nc) ||
		!strings.Contains(err.Error(), "rank(s) 1 find none") {
		t.Errorf("got %v", err)
	}
}

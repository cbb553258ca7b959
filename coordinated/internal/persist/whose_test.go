package persist_test

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/holdfast-hpc/holdfast/coordinated"
	"github.com/holdfast-hpc/holdfast/internal/job"
	"github.com/holdfast-hpc/holdfast/slurm"
	"github.com/holdfast-hpc/holdfast/storage"
	"github.com/holdfast-hpc/holdfast/test/crashfs"
)

// TestFreshIsANewRun: a run that starts over restores nothing of the one before, even if it dies before its first
// epoch and is started again without HOLDFAST_FRESH; its epochs replace the others in time.
func TestFreshIsANewRun(t *testing.T) {
	b := newBulk(t, storage.LevelLocal, storage.LevelGlobal)
	b.epochs = 3
	if err := b.run(); err != nil {
		t.Fatal(err)
	}
	b.opt.Fresh, b.epochs = true, 0 // it takes no epoch
	for range 2 {
		if err := b.run(); err != nil || b.restored[0] != 0 {
			t.Fatalf("told to start over: restored step %d, %v", b.restored[0], err)
		}
	}
	b.opt.Fresh, b.epochs, b.opt.Keep = false, 2, 2
	if err := b.run(); err != nil || b.restored[0] != 0 {
		t.Fatalf("the new run began at step %d of the one before, %v", b.restored[0], err)
	}
	b.restored[0] = -1
	if err := b.run(); err != nil || b.restored[0] < 1 || b.stats[0].Restore.Epoch < 4 {
		t.Fatalf("the new run restored epoch %d at step %d, %v", b.stats[0].Restore.Epoch, b.restored[0], err)
	}
	for _, dir := range []string{"/local", "/global"} {
		if _, err := b.fs.Stat(dir + "/epoch-0000000002"); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: the epochs of the run before are still there: %v", dir, err)
		}
	}
}

// TestFreshIsForTheFirstStart: a start that a supervisor makes after a checkpoint of the job continues, whatever is
// set, and one that Slurm makes is refused.
func TestFreshIsForTheFirstStart(t *testing.T) {
	s, err := job.Supervise("127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	value := func(continues bool) string { return s.Var(false, continues)[len(coordinated.SupervisorVar)+1:] }
	for _, tc := range []struct {
		name       string
		set        func(*coordinated.Options)
		first      int // epochs of the first start
		supervisor string
		restarts   int
		restored   storage.Epoch
		refused    string
	}{
		{"start over, first", func(o *coordinated.Options) { o.Fresh = true }, 3, value(false), 0, 0, ""},
		{"start over, later", func(o *coordinated.Options) { o.Fresh = true }, 3, value(true), 0, 3, ""},
		{"go back, first", func(o *coordinated.Options) { o.Epoch = 2 }, 3, value(false), 0, 2, ""},
		{"go back, later", func(o *coordinated.Options) { o.Epoch = 2 }, 3, value(true), 0, 3, ""},
		{"start over, supervised in a requeued job", func(o *coordinated.Options) { o.Fresh = true }, 3, value(false),
			1, 0, ""},
		{"start over, requeued", func(o *coordinated.Options) { o.Fresh = true }, 3, "", 1, 0, "Fresh"},
		{"start over, requeued, nothing there", func(o *coordinated.Options) { o.Fresh = true }, 0, "", 1, 0, ""},
		{"go back, requeued", func(o *coordinated.Options) { o.Epoch = 2 }, 3, "", 1, 0, "Epoch"},
		{"to the newest, requeued", func(o *coordinated.Options) { o.Epoch = 3 }, 3, "", 1, 3, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := newBulk(t, storage.LevelLocal, storage.LevelGlobal)
			b.epochs, b.opt.Keep = tc.first, 3
			if err := b.run(); err != nil {
				t.Fatal(err)
			}
			b.opt.Supervisor, b.seam.Slurm, b.epochs = tc.supervisor, &slurm.Job{Restarts: tc.restarts}, 0
			tc.set(&b.opt)
			err := b.run()
			if tc.refused != "" {
				if err == nil || !strings.Contains(err.Error(), "option "+tc.refused+": it would") {
					t.Errorf("want a refusal of %s, got %v", tc.refused, err)
				}
				return
			}
			if err != nil || b.stats[0].Restore.Epoch != tc.restored {
				t.Errorf("restored epoch %d, %v, want %d", b.stats[0].Restore.Epoch, err, tc.restored)
			}
		})
	}
}

// TestFreshDiesAtEachStep: a start that starts over dies at each change of a file until it is open. The next start,
// which is not told to, continues the run before or the new one, and never fails.
func TestFreshDiesAtEachStep(t *testing.T) {
	died := errors.New("dead")
	for at := 1; ; at++ {
		b := newBulk(t, storage.LevelLocal, storage.LevelGlobal)
		if err := b.run(); err != nil {
			t.Fatal(err)
		}
		n := 0
		b.fs.SetRule(func(op crashfs.Op) error {
			switch op.Kind {
			case "rename", "link", "write", "create", "remove", "mkdir":
				if n++; n >= at {
					return died
				}
			}
			return nil
		})
		b.opt.Fresh, b.epochs, b.opt.OnLost = true, 0, func(*coordinated.LostError) {}
		err := b.run()
		b.fs.SetRule(nil)
		over := n < at
		if err == nil && !over && b.restored[0] != 0 {
			t.Fatalf("death %d: restored step %d in spite of it", at, b.restored[0])
		}
		b.opt.Fresh, b.epochs, b.restored = false, 1, [3]int{}
		if err := b.run(); err != nil {
			t.Fatalf("death %d: the start after it: %v", at, err)
		}
		if b.restored[0] != b.restored[1] || b.restored[0] != b.restored[2] {
			t.Fatalf("death %d: the ranks continue from %v", at, b.restored)
		}
		if over {
			return
		}
	}
}

// TestRunsAreNotMixed: the local directory of one run and the global one of another are refused, with both named.
func TestRunsAreNotMixed(t *testing.T) {
	a := newBulk(t, storage.LevelLocal, storage.LevelGlobal)
	a.fs.MkdirAll("/other")
	if err := a.run(); err != nil {
		t.Fatal(err)
	}
	a.opt.Local, a.opt.Global = "", "/other"
	if err := a.run(); err != nil {
		t.Fatal(err)
	}
	a.opt.Local = "/local"
	err := a.run()
	if err == nil || strings.Count(err.Error(), "the run that began") < 2 || !strings.Contains(err.Error(), "/other") ||
		!strings.Contains(err.Error(), "/local") {
		t.Errorf("got %v, want both directories and runs", err)
	}
}

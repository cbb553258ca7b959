package checkpoints_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-hpc/holdfast/internal/vfs"
	"github.com/holdfast-hpc/holdfast/storage"
	"github.com/holdfast-hpc/holdfast/storage/checkpoints"
	"github.com/holdfast-hpc/holdfast/storage/internal/format"
	"github.com/holdfast-hpc/holdfast/storage/internal/level"
	"github.com/holdfast-hpc/holdfast/storage/storagetest/jobtest"
	"github.com/holdfast-hpc/holdfast/test/crashfs"
)

// openKeeping opens a world where no level prunes any of the few epochs of a test.
func openKeeping(t *testing.T, f *crashfs.FS) *jobtest.World {
	t.Helper()
	w, err := jobtest.OpenWorld(f, func(l *storage.LevelConfig) { l.Keep = 10 })
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func TestPruneDirs(t *testing.T) {
	f := jobtest.NewWorldFS()
	w := openKeeping(t, f)
	defer w.Stop()
	for e := storage.Epoch(1); e <= 6; e++ {
		if err := w.TakeEpoch(e, func(storage.Epoch) {}); err != nil {
			t.Fatal(err)
		}
	}
	dry, err := checkpoints.Prune(vfs.With(t.Context(), f), []string{"/local0", "/global"},
		checkpoints.PruneRules{Keep: 1, KeepEvery: 2, DryRun: true})
	// Epoch 3 holds chunks of epochs 4 and 5; nothing of 5 is needed by 6.
	if err != nil || fmt.Sprint(dry["/local0"]) != fmt.Sprint(dry["/global"]) {
		t.Errorf("got %v, %v", dry, err)
	}
	before := f.String()
	got, err := checkpoints.Prune(vfs.With(t.Context(), f), []string{"/local0", "/global"},
		checkpoints.PruneRules{Keep: 1, KeepEvery: 2})
	if err != nil || fmt.Sprint(got) != fmt.Sprint(dry) || f.String() == before {
		t.Errorf("got %v, %v, want what the dry run said: %v", got, err, dry)
	}
	for _, e := range []storage.Epoch{2, 4, 6} {
		if err := w.Check(e); err != nil {
			t.Errorf("epoch %d was to be kept: %v", e, err)
		}
	}
	var bad *storage.OptionError
	if _, err := checkpoints.Prune(vfs.With(t.Context(), f), []string{"/global"},
		checkpoints.PruneRules{}); !errors.As(err, &bad) {
		t.Errorf("keep 0: got %v", err)
	}
}

// TestCrashOfPrune goes down at every operation of 'holdfast prune': what the
// rules keep is whole, and a second run ends the work. See TestCrashOfFlushDirs
// for the lock.
func TestCrashOfPrune(t *testing.T) { synctest.Test(t, crashOfPrune) }

func crashOfPrune(t *testing.T) {
	master := jobtest.NewWorldFS()
	w := openKeeping(t, master)
	for e := storage.Epoch(1); e <= 5; e++ {
		if err := w.TakeEpoch(e, func(storage.Epoch) {}); err != nil {
			t.Fatal(err)
		}
	}
	w.Stop()
	prepare := func() *crashfs.FS { return copyWorldOf(master) }
	prune := func(f *crashfs.FS) error {
		_, err := checkpoints.Prune(vfs.With(context.Background(), f), []string{"/local0", "/local1", "/global"},
			checkpoints.PruneRules{Keep: 2})
		return err
	}
	n := jobtest.CrashEverywhere(t, prepare, prune, func(f *crashfs.FS, at int) {
		w, err := jobtest.OpenWorld(f)
		if err != nil {
			t.Fatal(err)
		}
		defer w.Stop()
		for again := range 2 {
			for e := storage.Epoch(4); e <= 5; e++ {
				if err := w.Check(e); err != nil {
					t.Fatalf("op %d, run %d: epoch %d: %v\n%s", at, again, e, err, f)
				}
			}
			if err := prune(f); err != nil {
				t.Fatalf("op %d: again: %v", at, err)
			}
		}
		if list, err := w.At(0, 1).Epochs(); err != nil || len(list) > 3 { // 3 holds chunks of 4 and 5
			t.Fatalf("op %d: got epochs %v, %v", at, list, err)
		}
	})
	if n < 30 {
		t.Errorf("only %d operations", n)
	}
}

// TestToolsAndRuns lets 'holdfast prune' and 'holdfast flush' meet a live run.
func TestToolsAndRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := jobtest.FullWorld(t, 3)
		s, err := storage.Open(vfs.With(t.Context(),
			w.FS), storage.Options{Job: "crash", Rank: 0, Size: jobtest.WorldSize, Run: "live",
			Levels: []storage.LevelConfig{{Name: storage.LevelLocal, Dir: "/local0"}}})
		if err != nil {
			t.Fatal(err)
		}
		var busy *storage.BusyError
		dirs := []string{"/local0", "/local1"}
		if _, err := checkpoints.Prune(vfs.With(t.Context(), w.FS), dirs,
			checkpoints.PruneRules{Keep: 1}); !errors.As(err, &busy) ||
			busy.Dir != "/local0" {
			t.Errorf("prune: got %v", err)
		}
		if _, err := checkpoints.Flush(vfs.With(t.Context(), w.FS), dirs, "/global", 0); !errors.As(err, &busy) {
			t.Errorf("flush: got %v", err)
		}
		if _, err := checkpoints.Prune(vfs.With(t.Context(), w.FS), dirs,
			checkpoints.PruneRules{Keep: 1, DryRun: true}); err != nil {
			t.Errorf("a look: got %v", err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		if gone, err := checkpoints.Prune(vfs.With(t.Context(), w.FS), dirs,
			checkpoints.PruneRules{Keep: 1}); err != nil ||
			len(gone["/local0"]) != 2 {
			t.Errorf("got %v, %v", gone, err)
		}
		if _, err := w.FS.Stat("/local0/" + format.LockName); err == nil {
			t.Error("the lock was left")
		}
	})
}

func TestToolsWithoutDirectories(t *testing.T) {
	f := jobtest.NewWorldFS()
	var bad *storage.OptionError
	if _, err := checkpoints.Prune(vfs.With(t.Context(), f), nil,
		checkpoints.PruneRules{Keep: 1}); !errors.As(err, &bad) {
		t.Errorf("prune: got %v", err)
	}
	if _, err := checkpoints.Flush(vfs.With(t.Context(), f), nil, "/global", 0); !errors.As(err, &bad) {
		t.Errorf("flush: got %v", err)
	}
	for _, r := range []checkpoints.PruneRules{{Keep: -1}, {}, {Keep: 1, KeepEvery: -2}} {
		if _, err := checkpoints.Prune(vfs.With(t.Context(), f), []string{"/global"}, r); !errors.As(err, &bad) {
			t.Errorf("%+v: got %v", r, err)
		}
	}
}

// TestBadManifestAtTheWidestLevel: epochs that the global level does not have,
// because what it has of a newer one cannot be read, stay at local when the tool prunes.
func TestBadManifestAtTheWidestLevel(t *testing.T) {
	w := jobtest.Unflushed(t) // epoch 1 at both levels, 2 at local
	w.FS.MkdirAll("/global/" + format.EpochName(9))
	if err := level.WriteFile(w.FS, "/global/"+format.EpochName(9)+"/manifest", []byte("rubbish")); err != nil {
		t.Fatal(err)
	}
	for e := storage.Epoch(3); e <= 5; e++ {
		infos, err := w.Stores.InTurn(func(s *storage.Store, r int) (storage.ShardInfo, error) {
			return s.Put(t.Context(), e, storage.LevelLocal, jobtest.SmallSections(r, e))
		})
		if err == nil {
			err = w.Stores.Commit(e, storage.LevelLocal, infos)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	left := w.At(0, 0)
	w.Stop()
	dirs := []string{"/local0", "/local1", "/global"}
	_, err := checkpoints.Prune(vfs.With(t.Context(), w.FS), dirs, checkpoints.PruneRules{Keep: 1})
	if err == nil || !strings.Contains(err.Error(), "not removed: /global") {
		t.Errorf("got %v, want the bad manifest to be named", err)
	}
	if epochs, err := left.Epochs(); err != nil || len(epochs) < 4 {
		t.Errorf("got epochs %v, %v at local, want those that the global level lacks", epochs, err)
	}
}

// TestKeepSparesOrigins: checkpoints.Prune and Prune leave what is kept and what that refers to, and take
// both when it is kept no longer; a damaged record keeps its epoch, too.
func TestKeepSparesOrigins(t *testing.T) {
	w := jobtest.FullWorld(t, 4) // epochs 3 and 4 share chunks
	ctx := vfs.With(t.Context(), w.FS)
	global := w.At(0, 1)
	have := func() []storage.Epoch {
		t.Helper()
		list, err := global.Epochs()
		if err != nil {
			t.Fatal(err)
		}
		slices.Sort(list)
		return list
	}
	before := have()
	oldest := before[0]
	if err := checkpoints.PinEpoch(ctx, "/global", oldest, "first"); err != nil {
		t.Fatal(err)
	}
	if err := checkpoints.PinEpoch(ctx, "/global", 77, ""); !errors.Is(err, storage.ErrNotCommitted) {
		t.Errorf("no such epoch: got %v", err)
	}
	err := checkpoints.PinEpoch(ctx, "/local0", oldest, "")
	if err == nil || !strings.Contains(err.Error(), "only level global") {
		t.Errorf("a local directory: got %v", err)
	}
	w.Stop()
	if _, err := checkpoints.Prune(ctx, []string{"/global"}, checkpoints.PruneRules{Keep: 1}); err != nil {
		t.Fatal(err)
	}
	if got := have(); got[0] != oldest || jobtest.WholeEpoch(global, oldest) != nil {
		t.Errorf("after prune: %v, want %d among them", got, oldest)
	}
	name := "/global/" + format.PinName(oldest)
	if err := w.FS.Flip(name, 30, 1); err != nil {
		t.Fatal(err)
	}
	if _, err := checkpoints.Prune(ctx, []string{"/global"}, checkpoints.PruneRules{Keep: 1}); err != nil {
		t.Fatal(err)
	}
	if got := have(); got[0] != oldest {
		t.Errorf("with a damaged record: %v", got)
	}
	list, err := checkpoints.Pins(ctx, "/global")
	if !errors.Is(err, storage.ErrCorrupt) || len(list) != 1 || list[0].Epoch != oldest {
		t.Errorf("got %v, %v, want the epoch and what is wrong with its record", list, err)
	}
	if err := checkpoints.UnpinEpoch(ctx, "/global", oldest); err != nil {
		t.Fatal(err)
	}
	if err := checkpoints.UnpinEpoch(ctx, "/global", oldest); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("again: got %v", err)
	}
	if _, err := checkpoints.Prune(ctx, []string{"/global"}, checkpoints.PruneRules{Keep: 1}); err != nil {
		t.Fatal(err)
	}
	if got := have(); slices.Contains(got, oldest) && len(got) == len(before) {
		t.Errorf("kept no longer: still %v", got)
	}
}

// TestKeepWhilePruning: a record that appears after prune has decided stops it, so that an epoch
// that the kept one refers to does not go.
func TestKeepWhilePruning(t *testing.T) {
	w := jobtest.FullWorld(t, 6)
	defer w.Stop()
	global := w.At(0, 1)
	kept, err := level.PinsAt(global)
	if err != nil {
		t.Fatal(err)
	}
	if same, err := level.SamePins(global, kept); err != nil || !same {
		t.Errorf("nothing changed: got %v, %v", same, err)
	}
	if err := level.WritePin(global, &checkpoints.Pin{Epoch: 6, Name: "x"}); err != nil {
		t.Fatal(err)
	}
	if same, err := level.SamePins(global, kept); err != nil || same {
		t.Errorf("a record was added: got %v, %v", same, err)
	}
}

// pausing is a file system whose user stops before its operation number at until it is let go on.
type pausing struct {
	vfs.FS
	n       atomic.Int64
	at      int64
	reached chan struct{} // closed then
	resume  chan struct{}
}

func (p *pausing) step() {
	if p.n.Add(1) == p.at {
		close(p.reached)
		<-p.resume
	}
}

func (p *pausing) Create(name string, direct bool) (vfs.File, error) {
	p.step()
	return p.FS.Create(name, direct)
}

func (p *pausing) Open(name string) (vfs.File, error) {
	p.step()
	return p.FS.Open(name)
}

func (p *pausing) ReadDir(name string) ([]vfs.Entry, error) {
	p.step()
	return p.FS.ReadDir(name)
}

func (p *pausing) Stat(name string) (vfs.Entry, error) {
	p.step()
	return p.FS.Stat(name)
}

func (p *pausing) Rename(from, to string) error {
	p.step()
	return p.FS.Rename(from, to)
}

func (p *pausing) Remove(name string) error {
	p.step()
	return p.FS.Remove(name)
}

func (p *pausing) SyncDir(name string) error {
	p.step()
	return p.FS.SyncDir(name)
}

// TestKeepAgainstPrune stops who prunes before each of its operations while another one keeps an epoch that is to go,
// and then the other way round: the epoch stays whole, or keep fails and leaves no record.
func TestKeepAgainstPrune(t *testing.T) { synctest.Test(t, keepAgainstPrune) }

func keepAgainstPrune(t *testing.T) {
	master := copyWorld(t) // of 3 epochs
	dirs := []string{"/global"}
	for _, first := range []string{"prune", "keep"} {
		stayed, gone := 0, 0
		for at := int64(1); ; at++ {
			f := copyWorldOf(master)
			p := &pausing{FS: f, at: at, reached: make(chan struct{}), resume: make(chan struct{})}
			var kerr error
			prune := func(fsys vfs.FS) {
				_, err := checkpoints.Prune(vfs.With(context.Background(), fsys), dirs, checkpoints.PruneRules{Keep: 1})
				if err != nil {
					t.Errorf("%s stopped at %d: prune: %v", first, at, err)
				}
			}
			keep := func(fsys vfs.FS) {
				kerr = checkpoints.PinEpoch(vfs.With(context.Background(), fsys), "/global", 1, "x")
			}
			one, two := prune, keep
			if first == "keep" {
				one, two = keep, prune
			}
			var both sync.WaitGroup
			ended := make(chan struct{})
			both.Go(func() { one(p); close(ended) })
			over := false
			select {
			case <-p.reached:
			case <-ended:
				over = true
			}
			both.Go(func() { two(f) })
			synctest.Wait() // the other has ended, or waits for this one
			close(p.resume)
			both.Wait()
			d := level.NewDir(f, storage.LevelGlobal, "/global", 0)
			kept, err := level.ReadPins(d)
			if err != nil {
				t.Fatal(err)
			}
			whole := jobtest.WholeEpoch(d, 1)
			switch {
			case kerr == nil && whole == nil && kept[1].Epoch == 1:
				stayed++
			case kerr != nil && len(kept) == 0:
				gone++
			default:
				t.Fatalf("%s stopped at %d: keep says %v, the epoch is %v, kept %v\n%s", first, at, kerr, whole, kept,
					f)
			}
			if left, err := level.Announced(level.Of(f, "/global", &format.Marker{Level: storage.LevelGlobal}), 1, 2,
				3); left {
				t.Fatalf("%s stopped at %d: an announcement is left: %v", first, at, err)
			}
			if over {
				break
			}
		}
		if first == "prune" && (stayed < 3 || gone < 3) || stayed+gone < 10 {
			t.Errorf("%s first: the epoch stayed %d times, and went %d times", first, stayed, gone)
		}
		t.Logf("%s first: stayed %d, went %d", first, stayed, gone)
	}
}

// TestKeepAfterADeadPrune: an announcement of a process that has died makes keep fail, and goes with the next prune.
func TestKeepAfterADeadPrune(t *testing.T) { synctest.Test(t, keepAfterADeadPrune) }

func keepAfterADeadPrune(t *testing.T) {
	f := copyWorldOf(copyWorld(t))
	ctx := vfs.With(context.Background(), f)
	l := level.Of(f, "/global", &format.Marker{Job: "crash", Size: jobtest.WorldSize, Level: storage.LevelGlobal})
	if _, err := level.Announce(l, []storage.Epoch{1}); err != nil {
		t.Fatal(err)
	}
	if err := checkpoints.PinEpoch(ctx, "/global", 3, ""); err != nil { // which does not refer to 1 any more
		t.Errorf("another epoch: %v", err)
	}
	err := checkpoints.PinEpoch(ctx, "/global", 1, "")
	if err == nil || !strings.Contains(err.Error(), "holdfast prune") {
		t.Errorf("got %v", err)
	}
	if _, err := checkpoints.Prune(ctx, []string{"/global"}, checkpoints.PruneRules{Keep: 9}); err != nil {
		t.Fatal(err)
	}
	if err := checkpoints.PinEpoch(ctx, "/global", 1, ""); err != nil {
		t.Errorf("after prune: %v", err)
	}
}

// TestKeepByRule: of the epochs that come to the level, each at least so far from the last kept.
func TestKeepByRule(t *testing.T) {
	w, err := jobtest.OpenWorld(jobtest.NewWorldFS())
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	s := w.Stores[0]
	for _, e := range []storage.Epoch{1, 4, 5, 6, 11, 12, 15, 16} {
		if err := s.PinByRule(t.Context(), e, storage.LevelGlobal, 5, 0); err != nil {
			t.Fatal(err)
		}
	}
	kept, err := level.ReadPins(w.At(0, 1))
	if err != nil || len(kept) != 3 || !kept[5].Auto || !kept[11].Auto || !kept[16].Auto {
		t.Errorf("got %v, %v, want 5, 11 and 16", kept, err)
	}
	if err := s.PinByRule(t.Context(), 17, storage.LevelGlobal, 0, time.Hour); err != nil {
		t.Fatal(err)
	}
	if kept, err = level.ReadPins(w.At(0, 1)); err != nil || len(kept) != 3 {
		t.Errorf("within the hour: got %v, %v", kept, err)
	}
	if err := s.PinByRule(t.Context(), 18, storage.LevelGlobal, 0, time.Nanosecond); err != nil {
		t.Fatal(err)
	}
	if kept, err = level.ReadPins(w.At(0, 1)); err != nil || len(kept) != 4 {
		t.Errorf("after it: got %v, %v", kept, err)
	}
}

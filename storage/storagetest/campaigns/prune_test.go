package campaigns

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/holdfast-hpc/holdfast/internal/vfs"
	"github.com/holdfast-hpc/holdfast/storage"
	"github.com/holdfast-hpc/holdfast/storage/checkpoints"
	"github.com/holdfast-hpc/holdfast/storage/internal/format"
	"github.com/holdfast-hpc/holdfast/storage/internal/level"
	"github.com/holdfast-hpc/holdfast/storage/storagetest/jobtest"
	"github.com/holdfast-hpc/holdfast/test/crashfs"
)

// putStray makes a file that is no store's.
func putStray(t *testing.T, f *crashfs.FS, name string) {
	t.Helper()
	if err := level.WriteFile(f, name, []byte("stray")); err != nil {
		t.Fatal(err)
	}
}

// TestPruneGoesOn puts what is not ours into epochs that are to go. The rest of
// them goes, at all levels, and so do the other epochs.
func TestPruneGoesOn(t *testing.T) {
	w := jobtest.FullWorld(t, 5)
	w.FS.MkdirAll("/local0/epoch-0000000001/directory")
	putStray(t, w.FS, "/local0/epoch-0000000002/.nfs0000000000000001")
	putStray(t, w.FS, "/global/epoch-0000000003/notes.txt")
	if err := w.FS.Remove("/global/epoch-0000000002/manifest"); err != nil {
		t.Fatal(err)
	}
	w.FS.MkdirAll("/global/epoch-0000000002/manifest/in")
	w.Prune(t)
	if got := fmt.Sprint(w.EpochsAt(t, 0, 0)); got != "[5 4 2 1]" {
		t.Errorf("local: got %s", got)
	}
	if got := fmt.Sprint(w.EpochsAt(t, 1, 0)); got != "[5 4]" {
		t.Errorf("local of rank 1: got %s", got)
	}
	for dir, want := range map[string]string{
		"/local0/epoch-0000000001": "[directory]",
		"/local0/epoch-0000000002": "[.nfs0000000000000001]",
		"/global/epoch-0000000003": "[notes.txt]",
		"/global/epoch-0000000002": "[manifest]",
	} {
		list, err := w.FS.ReadDir(dir)
		var names []string
		for _, x := range list {
			names = append(names, x.Name)
		}
		if err != nil || fmt.Sprint(names) != want {
			t.Errorf("%s: got %v, %v, want %s", dir, names, err, want)
		}
	}
}

// TestPruneGoesOnAfterErrors lets the removal of one file fail.
func TestPruneGoesOnAfterErrors(t *testing.T) {
	w := jobtest.FullWorld(t, 5)
	bad := "/local0/epoch-0000000002/" + format.ShardName(0)
	w.FS.SetRule(func(op crashfs.Op) error {
		if op.Kind == "remove" && op.Name == bad {
			return fs.ErrPermission
		}
		return nil
	})
	removed, err := w.Stores[0].Prune(t.Context())
	if !errors.Is(err, fs.ErrPermission) || !strings.Contains(err.Error(), "epoch=2") {
		t.Errorf("got %v, want what failed", err)
	}
	if fmt.Sprint(removed) != "[1 2 3]" {
		t.Errorf("got %v removed", removed)
	}
	w.FS.SetRule(nil)
	w.Prune(t)
	if got := fmt.Sprint(w.EpochsAt(t, 0, 0)); got != "[5 4]" {
		t.Errorf("in the end: got %s", got)
	}
}

// TestPrunePastDamagedManifests flips a bit in manifests of epochs that stay:
// they do not count, what their shards refer to stays, and older ones still go.
func TestPrunePastDamagedManifests(t *testing.T) {
	w := jobtest.FullWorld(t, 6, func(l *storage.LevelConfig) {
		if l.Name == storage.LevelGlobal {
			l.KeepEvery = 3
		}
	})
	for _, name := range []string{"/global/epoch-0000000003/manifest", "/global/epoch-0000000006/manifest",
		"/local0/epoch-0000000005/manifest"} {
		if err := w.FS.Flip(name, 20, 1); err != nil {
			t.Fatal(err)
		}
	}
	w.Prune(t)
	if got := fmt.Sprint(w.EpochsAt(t, 0, 1)); got != "[6 5 4 3]" {
		t.Errorf("global: got %s", got)
	}
	if got := fmt.Sprint(w.EpochsAt(t, 0, 0)); got != "[6 5 4]" {
		t.Errorf("local: got %s", got)
	}
	gone, err := checkpoints.Prune(vfs.With(t.Context(), w.FS), []string{"/local0", "/local1", "/global"},
		checkpoints.PruneRules{Keep: 1, KeepEvery: 3})
	if err == nil || !strings.Contains(err.Error(), "not removed: /") {
		t.Errorf("got %v, want what was left", err)
	}
	if fmt.Sprint(gone["/local1"]) != "[5]" {
		t.Errorf("got %v gone", gone)
	}
}

// TestDamagedManifestKeepsItsOrigins prunes beside an increment whose manifest is
// damaged here and may be had from another rank.
func TestDamagedManifestKeepsItsOrigins(t *testing.T) {
	w, err := jobtest.OpenWorld(jobtest.NewWorldFS())
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	for e := storage.Epoch(3); e <= 5; e++ { // 4 and 5 refer to 3
		if err := w.TakeEpoch(e, func(storage.Epoch) {}); err != nil {
			t.Fatal(err)
		}
	}
	for _, l := range []string{"/local0", "/global"} {
		if err := w.FS.Flip(l+"/epoch-0000000005/manifest", 20, 1); err != nil {
			t.Fatal(err)
		}
	}
	w.Prune(t)
	for level := range 2 {
		if got := w.EpochsAt(t, 0, level); !slices.Contains(got, 3) {
			t.Errorf("level %d: got %v, and 5 refers to 3", level, got)
		}
	}
}

// TestPruneSparesWhatIsMade prunes beside the traces of work on an older epoch.
func TestPruneSparesWhatIsMade(t *testing.T) {
	w := jobtest.FullWorld(t, 4)
	s := w.Stores[0]
	making := "/local0/epoch-0000000001/" + level.TempName(format.ShardName(0), 0)
	if err := w.FS.Remove("/local0/epoch-0000000001/manifest"); err != nil {
		t.Fatal(err)
	}
	putStray(t, w.FS, making)
	release := s.Retain(t.Context(), 2)
	w.Prune(t)
	if got := fmt.Sprint(w.EpochsAt(t, 0, 0)); got != "[4 3 2 1]" {
		t.Errorf("got %s while 1 is made and 2 retained", got)
	}
	release()
	release()
	if err := w.FS.Remove(making); err != nil {
		t.Fatal(err)
	}
	sh, err := s.Fetch(t.Context(), 2)
	if err != nil {
		t.Fatal(err)
	}
	w.Prune(t)
	if got := fmt.Sprint(w.EpochsAt(t, 0, 0)); got != "[4 3 2]" {
		t.Errorf("got %s while 2 is read", got)
	}
	if err := sh.Close(); err != nil {
		t.Fatal(err)
	}
	w.Prune(t)
	if got := fmt.Sprint(w.EpochsAt(t, 0, 0)); got != "[4 3]" {
		t.Errorf("got %s in the end", got)
	}
}

// TestPruneAroundABadEpoch: one epoch on a bad spot of the disk must not keep all
// others for ever, nor cost one that is needed.
func TestPruneAroundABadEpoch(t *testing.T) {
	w, err := jobtest.OpenWorld(jobtest.NewWorldFS())
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	w.FS.SetRule(func(op crashfs.Op) error {
		manifest := "/global/" + format.EpochName(2) + "/manifest"
		if (op.Kind == "stat" || op.Kind == "open") && op.Name == manifest && op.N > 0 {
			return syscall.EIO
		}
		return nil
	})
	_ = w.TakeEpoch(1, func(storage.Epoch) {})
	for e := storage.Epoch(2); e <= 7; e++ {
		if err := w.TakeEpoch(e, func(storage.Epoch) {}); err != nil && e != 2 {
			t.Fatalf("epoch %d: %v", e, err)
		}
	}
	left, err := w.At(0, 1).Epochs()
	if err != nil || len(left) > 4 {
		t.Errorf("got epochs %v, %v at the global level, want the old ones to go", left, err)
	}
	w.FS.SetRule(nil)
	if err := w.Check(7); err != nil {
		t.Error(err)
	}
}

// hookFS calls hook before its n-th operation on a name.
type hookFS struct {
	*crashfs.FS
	n    *atomic.Int64 // counts down
	hook func()
}

func (f hookFS) at() {
	if f.n.Add(-1) == 0 {
		f.hook()
	}
}

func (f hookFS) Create(name string, direct bool) (vfs.File, error) {
	f.at()
	return f.FS.Create(name, direct)
}

func (f hookFS) Open(name string) (vfs.File, error) { f.at(); return f.FS.Open(name) }

func (f hookFS) Mkdir(name string) error { f.at(); return f.FS.Mkdir(name) }

func (f hookFS) Rename(from, to string) error { f.at(); return f.FS.Rename(from, to) }

func (f hookFS) SyncDir(name string) error { f.at(); return f.FS.SyncDir(name) }

func (f hookFS) ReadDir(name string) ([]vfs.Entry, error) { f.at(); return f.FS.ReadDir(name) }

func (f hookFS) Stat(name string) (vfs.Entry, error) { f.at(); return f.FS.Stat(name) }

// TestPruneDuringWork lets all ranks prune at every few operations of a rebuild,
// a flush and a read of an epoch that no keep rule holds any more. All ranks
// retain it, as a job does; nothing of it may go.
func TestPruneDuringWork(t *testing.T) {
	levels := []storage.LevelConfig{jobtest.SmallLocal, jobtest.SmallCopies, jobtest.SmallParity,
		{Name: storage.LevelGlobal, Keep: 1}}
	ctx := context.Background()
	for name, work := range map[string]func(c *jobtest.Cluster) error{
		"rebuild": func(c *jobtest.Cluster) error {
			for _, l := range []string{storage.LevelLocal, storage.LevelPartner, storage.LevelParity} {
				if _, err := c.Stores.Each(func(s *storage.Store, _ int) (i storage.ShardInfo, err error) {
					return i, s.Rebuild(ctx, 2, l)
				}); err != nil {
					return err
				}
			}
			return nil
		},
		"flush": func(c *jobtest.Cluster) error {
			_, err := c.Stores.Each(func(s *storage.Store, _ int) (storage.ShardInfo, error) {
				return s.Flush(ctx, 2, storage.LevelLocal, storage.LevelGlobal, nil)
			})
			return err
		},
		"read": func(c *jobtest.Cluster) error { _, err := c.Stores.Restore(2, jobtest.Little); return err },
	} {
		t.Run(name, func(t *testing.T) {
			for at := int64(1); ; at += int64(jobtest.CrashStep(11)) {
				c := jobtest.NewCluster(t, jobtest.NodeNames(3)...)
				n := &atomic.Int64{}
				hook := hookFS{FS: c.FS, n: n, hook: func() {
					for _, s := range c.Stores {
						if _, err := s.Prune(ctx); err != nil {
							t.Errorf("operation %d: prune: %v", at, err)
						}
					}
				}}
				c.Wrap = hook
				c.Start(levels...)
				for e := storage.Epoch(1); e <= 4; e++ {
					to := []string{storage.LevelLocal, storage.LevelPartner, storage.LevelParity}
					if e == 4 {
						to = append(to, storage.LevelGlobal)
					}
					if err := c.TryTake(e, jobtest.Little, to...); err != nil {
						t.Fatal(err)
					}
				}
				c.Stop()
				c.FS.RemoveAll("/n1/local/epoch-0000000002")
				c.FS.RemoveAll("/n2/partner/epoch-0000000002")
				c.Start(levels...)
				var release []func()
				for _, s := range c.Stores {
					release = append(release, s.Retain(ctx, 2))
				}
				n.Store(at)
				if err := work(c); err != nil {
					t.Fatalf("operation %d: %v\n%s", at, err, c.FS)
				}
				done := n.Swap(0) > 0 // it took fewer operations
				if _, err := c.FS.Stat("/n0/partner/epoch-0000000003"); err == nil && !done {
					t.Fatalf("operation %d: nothing was pruned\n%s", at, c.FS)
				}
				if _, err := c.Stores.Restore(2, jobtest.Little); err != nil {
					t.Fatalf("operation %d: epoch 2: %v\n%s", at, err, c.FS)
				}
				for _, r := range release {
					r()
				}
				c.Stop()
				if done {
					t.Log(fmt.Sprint(at, " operations"))
					break
				}
			}
		})
	}
}

// TestNoEpochsWait takes epochs while nothing reaches the global level: the newest go
// there when it works again, so no more of them are kept than else.
func TestNoEpochsWait(t *testing.T) {
	w, err := jobtest.OpenWorld(jobtest.NewWorldFS(), func(l *storage.LevelConfig) { l.Full = true })
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	const epochs = 9
	s := w.Stores[0]
	for e := storage.Epoch(1); e <= epochs; e++ {
		infos, err := w.Stores.InTurn(func(s *storage.Store, r int) (storage.ShardInfo, error) {
			return s.Put(t.Context(), e, storage.LevelLocal, jobtest.SmallSections(r, e))
		})
		if err == nil {
			err = w.Stores.Commit(e, storage.LevelLocal, infos)
		}
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Prune(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if left := w.EpochsAt(t, 0, 0); len(left) != 1 || left[0] != epochs {
		t.Errorf("got epochs %v, want the newest alone", left)
	}
}

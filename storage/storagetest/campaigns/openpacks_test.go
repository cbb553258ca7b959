package campaigns

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/holdfast-hpc/holdfast/internal/vfs"
	"github.com/holdfast-hpc/holdfast/storage"
	"github.com/holdfast-hpc/holdfast/storage/internal/format"
	"github.com/holdfast-hpc/holdfast/storage/internal/level"
	"github.com/holdfast-hpc/holdfast/storage/storagetest/jobtest"
)

// sharingFS counts how often packs are opened by name, and how many were handed over.
type sharingFS struct {
	vfs.OS
	opened, adopted atomic.Int64
}

func (f *sharingFS) Create(name string, direct bool) (vfs.File, error) {
	if strings.HasPrefix(filepath.Base(name), "pack-") {
		f.opened.Add(1)
	}
	return f.OS.Create(name, direct)
}

func (f *sharingFS) Share(name string, direct bool) (vfs.File, error) {
	f.opened.Add(1)
	return f.OS.Share(name, direct)
}

func (f *sharingFS) Adopt(file *os.File, name string) (vfs.File, error) {
	f.adopted.Add(1)
	return f.OS.Adopt(file, name)
}

// TestPackIsOpenedOnce: the ranks of a node write their pack by one open file, and by their own where that cannot be
// had; what they write is the same. That the flusher cannot be reached is found out once.
func TestPackIsOpenedOnce(t *testing.T) {
	for name, c := range map[string]struct {
		private, alone  bool // no file can be handed over; no rank leads
		far             bool // the flusher cannot be reached
		opened, adopted int64
	}{
		"handed over":  {opened: 1, adopted: 2},
		"cannot be":    {private: true, opened: 3},
		"far away":     {far: true, opened: 1 + 3},
		"nobody leads": {alone: true, opened: 3},
	} {
		t.Run(name, func(t *testing.T) {
			f, dir := &sharingFS{}, t.TempDir()
			var files vfs.FS = f
			if c.private {
				files = privateSharer{f}
			}
			var stores []*storage.Store
			for r := range packRanks {
				s, err := storage.Open(jobtest.WithPools(vfs.With(t.Context(), files)),
					storage.Options{Job: "pack", Rank: r, Size: 3, Node: "n",
						Levels: []storage.LevelConfig{{Name: storage.LevelLocal, Dir: filepath.Join(dir, "l"),
							Create: true},
							{Name: storage.LevelGlobal, Dir: filepath.Join(dir, "g"), Create: true}}})
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { s.Close() })
				stores = append(stores, s)
			}
			secs := func(r int) []storage.Section { return mixedSections(r, 1) }
			jobtest.Take(t, stores, 1, storage.LevelLocal, secs)
			infos, err := ledTogether(t, stores, secs, !c.alone, c.far)
			if c.far {
				if err == nil {
					t.Error("the flusher cannot be reached, and its pack was written")
				}
				infos, err = ledTogether(t, stores, secs, true, false)
			}
			if err != nil {
				t.Fatal(err)
			}
			settle(t, stores, 1, infos)
			if got, want := f.opened.Load(), c.opened; got != want {
				t.Errorf("the pack was opened %d times, want %d", got, want)
			}
			if got, want := f.adopted.Load(), c.adopted; got != want {
				t.Errorf("the pack was handed over %d times, want %d", got, want)
			}
			if err := os.RemoveAll(filepath.Join(dir, "l", "epoch-0000000001")); err != nil {
				t.Fatal(err)
			}
			for r, s := range stores {
				jobtest.WantShard(t, s, 1, secs(r))
			}
		})
	}
}

// ledTogether writes the pack of epoch 1 as the ranks of a node do, led by rank 0 or by none. A leader that is far
// away has another address.
func ledTogether(t *testing.T, stores []*storage.Store, secs func(r int) []storage.Section, led,
	far bool) ([]storage.ShardInfo, error) {
	t.Helper()
	n := storage.NodePack{Epoch: 1, From: storage.LevelLocal, To: storage.LevelGlobal, Ranks: packRanks}
	parts := make([]*storage.Part, len(stores))
	for r, s := range stores {
		var err error
		if parts[r], err = s.NewPart(t.Context(), 1, n.From, n.To, secs(r)); err != nil {
			t.Fatal(err)
		}
		defer parts[r].Close()
		if r == 0 && led {
			if err := parts[r].Lead(); err != nil {
				t.Fatal(err)
			}
		}
		n.Sizes = append(n.Sizes, parts[r].Size())
	}
	if far {
		n.Sizes[0] = append(n.Sizes[0][:16], "@holdfast-nowhere"...)
	}
	errs := make([]error, len(parts))
	var all sync.WaitGroup
	for r, p := range parts {
		all.Go(func() { _, errs[r] = p.Write(t.Context(), n) })
	}
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		return nil, errors.Join(err, stores[0].DropPacks(n))
	}
	return parts[0].Seal(t.Context(), n)
}

// privateSharer opens files that are no syscall.Conn.
type privateSharer struct{ *sharingFS }

func (f privateSharer) Create(name string, direct bool) (vfs.File, error) {
	file, err := f.sharingFS.Create(name, direct)
	return struct{ vfs.File }{file}, err
}

func (f privateSharer) Share(name string, direct bool) (vfs.File, error) {
	file, err := f.sharingFS.Share(name, direct)
	return struct{ vfs.File }{file}, err
}

// TestPackLeftBehind: a pack that an attempt has left under its name is replaced by the next one, whatever is in it,
// and one that is committed never is.
func TestPackLeftBehind(t *testing.T) {
	f := jobtest.NewPackFS()
	stores := openPacking(t, f)
	secs := func(r int) []storage.Section { return jobtest.SmallSections(r, 1) }
	jobtest.Take(t, stores, 1, storage.LevelLocal, secs)
	global := level.NewDir(f, storage.LevelGlobal, "/g", 0)
	file, err := global.Make(1, format.PackName(0), 0)
	if err == nil {
		_, err = file.WriteAt(jobtest.Random(1, 1<<20), 0) // longer than what comes
		err = errors.Join(err, file.Sync(), file.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
	n := storage.NodePack{Epoch: 1, From: storage.LevelLocal, To: storage.LevelGlobal}
	var infos []storage.ShardInfo
	for r, s := range stores { // each a node of its own
		p, err := s.NewPart(t.Context(), 1, storage.LevelLocal, storage.LevelGlobal, secs(r))
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		n.Ranks, n.Sizes = []int{r}, [][]byte{p.Size()}
		_, err = p.Write(t.Context(), n)
		part, serr := p.Seal(t.Context(), n)
		if err := errors.Join(err, serr); err != nil {
			t.Fatal(err)
		}
		infos = append(infos, part...)
	}
	settle(t, stores, 1, infos)
	if found := jobtest.Findings(t, f, "/l", "/g"); found != 0 {
		t.Errorf("%d findings", found)
	}
	if file, err := global.Make(1, format.PackName(0), 0); !errors.Is(err, storage.ErrCommitted) {
		t.Errorf("made a committed pack anew: %v, %v", file, err)
	}
	f.RemoveAll("/l")
	f.MkdirAll("/l")
	for r, s := range stores {
		jobtest.WantShard(t, s, 1, secs(r))
	}
}

// TestPartClosed: who asks a flusher that has gone has an error, and nothing is opened for a flusher that has closed
// its part. What is left is removed.
func TestPartClosed(t *testing.T) {
	f := jobtest.NewPackFS()
	stores := openPacking(t, f)
	jobtest.Take(t, stores, 1, storage.LevelLocal, func(r int) []storage.Section { return jobtest.SmallSections(r, 1) })
	n := storage.NodePack{Epoch: 1, From: storage.LevelLocal, To: storage.LevelGlobal, Ranks: packRanks}
	var parts []*storage.Part
	for r, s := range stores {
		p, err := s.NewPart(t.Context(), 1, storage.LevelLocal, storage.LevelGlobal, jobtest.SmallSections(r, 1))
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		if r == 0 {
			if err := p.Lead(); err != nil {
				t.Fatal(err)
			}
		}
		parts, n.Sizes = append(parts, p), append(n.Sizes, p.Size())
	}
	if err := errors.Join(parts[0].Close(), parts[0].Close()); err != nil {
		t.Fatal(err)
	}
	if _, err := parts[1].Write(t.Context(), n); err == nil {
		t.Error("the flusher has gone, and its pack was written")
	}
	if _, err := parts[0].Write(t.Context(), n); !errors.Is(err, storage.ErrClosed) {
		t.Errorf("closed: got %v, want ErrClosed", err)
	}
	if err := stores[0].DropPacks(n); err != nil || strings.Contains(fmt.Sprint(f), "pack-") {
		t.Errorf("%v, left behind:\n%s", err, f)
	}
}

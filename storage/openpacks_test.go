package storage

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
)

// sharingFS counts how often packs are opened by name, and how many were handed over.
type sharingFS struct {
	vfs.OS
	shared, adopted atomic.Int64
}

func (f *sharingFS) Share(name string, direct bool) (vfs.File, error) {
	f.shared.Add(1)
	return f.OS.Share(name, direct)
}

func (f *sharingFS) Adopt(file *os.File, name string) (vfs.File, error) {
	f.adopted.Add(1)
	return f.OS.Adopt(file, name)
}

// TestPackIsOpenedOnce: the ranks of a node write their pack by one open file, and by their own where that cannot be
// had; what they write is the same.
func TestPackIsOpenedOnce(t *testing.T) {
	for name, c := range map[string]struct {
		private, alone  bool // no file can be handed over; nobody leads
		shared, adopted int64
	}{
		"handed over":  {shared: 1, adopted: 2},
		"cannot be":    {private: true, shared: 3},
		"nobody leads": {alone: true, shared: 3},
	} {
		t.Run(name, func(t *testing.T) {
			f, dir := &sharingFS{}, t.TempDir()
			var files vfs.FS = f
			if c.private {
				files = privateSharer{f}
			}
			var stores []*Store
			for r := range packRanks {
				s, err := Open(t.Context(), Options{Job: "pack", Rank: r, Size: 3, Node: "n", fs: files, pool: testPool,
					Levels: []LevelConfig{{Name: LevelLocal, Dir: filepath.Join(dir, "l"), Create: true},
						{Name: LevelGlobal, Dir: filepath.Join(dir, "g"), Create: true}}})
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { s.Close() })
				stores = append(stores, s)
			}
			secs := func(r int) []Section { return mixedSections(r, 1) }
			take(t, stores, 1, LevelLocal, secs)
			n := NodePack{Epoch: 1, From: LevelLocal, To: LevelGlobal, Ranks: packRanks}
			parts := make([]*Part, len(stores))
			for r, s := range stores {
				var err error
				if parts[r], err = s.NewPart(t.Context(), 1, n.From, n.To, secs(r)); err != nil {
					t.Fatal(err)
				}
				defer parts[r].Close()
				if r == 0 && !c.alone {
					if err := parts[r].Lead(); err != nil {
						t.Fatal(err)
					}
				}
				n.Sizes = append(n.Sizes, parts[r].Size())
			}
			errs := make([]error, len(parts))
			var all sync.WaitGroup
			for r, p := range parts {
				all.Go(func() { _, errs[r] = p.Write(t.Context(), n) })
			}
			all.Wait()
			infos, err := parts[0].Seal(t.Context(), n)
			if err := errors.Join(append(errs, err)...); err != nil {
				t.Fatal(err)
			}
			settle(t, stores, 1, infos)
			if got, want := f.shared.Load(), c.shared; got != want {
				t.Errorf("the pack was opened %d times, want %d", got, want)
			}
			if got, want := f.adopted.Load(), c.adopted; got != want {
				t.Errorf("the pack was handed over %d times, want %d", got, want)
			}
			if err := os.RemoveAll(filepath.Join(dir, "l", "epoch-0000000001")); err != nil {
				t.Fatal(err)
			}
			for r, s := range stores {
				wantShard(t, s, 1, secs(r))
			}
		})
	}
}

// privateSharer opens files that are no syscall.Conn.
type privateSharer struct{ *sharingFS }

func (f privateSharer) Share(name string, direct bool) (vfs.File, error) {
	file, err := f.sharingFS.Share(name, direct)
	return struct{ vfs.File }{file}, err
}

// TestPartClosed: who asks a flusher that has gone opens the pack by itself, and nothing is opened for a flusher
// that has closed its part.
func TestPartClosed(t *testing.T) {
	f := newPackFS()
	stores := packWorld(t, f)
	take(t, stores, 1, LevelLocal, func(r int) []Section { return smallSections(r, 1) })
	n := NodePack{Epoch: 1, From: LevelLocal, To: LevelGlobal, Ranks: packRanks}
	var parts []*Part
	for r, s := range stores {
		p, err := s.NewPart(t.Context(), 1, LevelLocal, LevelGlobal, smallSections(r, 1))
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
	if _, err := parts[1].Write(t.Context(), n); err != nil {
		t.Errorf("the flusher has gone: %v", err)
	}
	if _, err := parts[0].Write(t.Context(), n); !errors.Is(err, ErrClosed) {
		t.Errorf("closed: got %v, want ErrClosed", err)
	}
	if err := stores[0].DropPacks(n); err != nil || strings.Contains(fmt.Sprint(f), ".tmp") {
		t.Errorf("%v, left behind:\n%s", err, f)
	}
}

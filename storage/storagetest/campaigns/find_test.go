package campaigns

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/holdfast-hpc/holdfast/internal/vfs"
	"github.com/holdfast-hpc/holdfast/storage"
	"github.com/holdfast-hpc/holdfast/storage/checkpoints"
	"github.com/holdfast-hpc/holdfast/storage/internal/format"
	"github.com/holdfast-hpc/holdfast/storage/internal/level"
	"github.com/holdfast-hpc/holdfast/storage/storagetest/jobtest"
)

// stepping is a shard of eight chunks of which each epoch changes one, so that the newest
// ones refer to many earlier epochs.
func stepping(rank int, e storage.Epoch) []storage.Section {
	const chunks, chunk = 8, 256 << 10
	b := make(storage.Bytes, chunks*chunk)
	for c := range chunks {
		last := uint64(0) // epoch that changed it last
		for x := uint64(1); x <= uint64(e); x++ {
			if x%chunks == uint64(c) {
				last = x
			}
		}
		rand.NewChaCha8([32]byte{byte(rank), byte(c), byte(last)}).Read(b[c*chunk : (c+1)*chunk])
	}
	return []storage.Section{{Name: "x", Size: int64(len(b)), Source: b}}
}

// TestEpochsPassedOver takes epochs of which only some come to the outer level, prunes after
// each, loses a node, and restores the newest that came there: whatever it refers to
// must be there.
func TestEpochsPassedOver(t *testing.T) {
	for _, c := range []struct {
		outer  storage.LevelConfig
		failed bool // a flush that does not end, in place of one left out
	}{{jobtest.Parity, false}, {jobtest.Parity, true}, {jobtest.Partner, false}} {
		t.Run(fmt.Sprint(c.outer.Name, " ", c.failed), func(t *testing.T) {
			outer := c.outer
			outer.Data, outer.Parity, outer.Keep = 2, 1, 2
			w := jobtest.NewCluster(t, jobtest.NodeNames(3)...)
			w.Start(jobtest.Local, outer)
			var newest storage.Epoch
			for e := storage.Epoch(1); e <= 9; e++ {
				levels := []string{storage.LevelLocal}
				if e%3 == 1 || e == 8 {
					levels, newest = append(levels, outer.Name), e
				}
				if err := w.TryTake(e, stepping, levels...); err != nil {
					t.Fatal(err)
				}
				if c.failed && e%3 == 2 && newest != e {
					if _, err := w.All(func(s *storage.Store, _ int) (storage.ShardInfo, error) {
						return s.Flush(t.Context(), e, storage.LevelLocal, outer.Name, nil)
					}); err != nil {
						t.Fatal(err)
					}
					if _, err := w.All(func(s *storage.Store, _ int) (info storage.ShardInfo, err error) {
						return info, s.Discard(t.Context(), e, outer.Name)
					}); err != nil {
						t.Fatal(err)
					}
				}
				for _, s := range w.Stores {
					if _, err := s.Prune(t.Context()); err != nil {
						t.Fatal(err)
					}
				}
			}
			w.Stop()
			w.LoseNode("n1")
			w.Start(jobtest.Local, outer)
			levels, err := w.RestoreAs(newest, stepping)
			if err != nil {
				t.Fatal(err)
			}
			t.Log("epoch", newest, "restored from", levels)
		})
	}
}

// TestBaseHasRows: a shard still refers to earlier epochs where parity has all of them, or
// every third one.
func TestBaseHasRows(t *testing.T) {
	for _, every := range []storage.Epoch{1, 3} {
		t.Run(fmt.Sprint("every ", every), func(t *testing.T) {
			group := storage.LevelConfig{Name: storage.LevelParity, Data: 2, Parity: 1, Keep: 2}
			w := jobtest.NewCluster(t, jobtest.NodeNames(3)...)
			w.Start(jobtest.Local, group)
			for e := storage.Epoch(1); e <= 7; e++ {
				levels := []string{storage.LevelLocal}
				if e%every == 1%every {
					levels = append(levels, storage.LevelParity)
				}
				if err := w.TryTake(e, stepping, levels...); err != nil {
					t.Fatal(err)
				}
				m, err := checkpoints.Open(vfs.With(t.Context(), w.FS), "/n0/local")
				if err != nil {
					t.Fatal(err)
				}
				list, err := m.Epochs(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				const chunk = 256 << 10
				changed := (e - 2) % every // since the epoch before the last that came to parity
				if stored := list[0].Shards[0].Stored; e > 1 && stored > int64(changed+1)*chunk {
					t.Errorf("epoch %d: %d chunks were written, want at most %d", e, stored/chunk, changed+1)
				}
			}
		})
	}
}

// TestNewerEpochIsNotPassedOver: a build that cannot read the newest epoch, because a later one has written it, does
// not go back to an older one behind the user's back, and removes nothing that it may refer to.
func TestNewerEpochIsNotPassedOver(t *testing.T) {
	w := jobtest.FullWorld(t, 5)
	raise := func(e storage.Epoch, dir string) {
		t.Helper()
		file := dir + "/" + format.EpochName(e) + "/" + format.ManifestName
		b, err := level.ReadFile(w.FS, file, 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		b[10] = 99
		binary.LittleEndian.PutUint32(b[len(b)-4:], format.CRC(b[:len(b)-4]))
		if err := errors.Join(w.FS.Remove(file), level.WriteFile(w.FS, file, b)); err != nil {
			t.Fatal(err)
		}
	}
	raise(5, "/local0")
	if list, _, err := w.Stores[0].Candidates(t.Context()); err != nil || list[0].Epoch != 5 {
		t.Errorf("it is at another level: got %v, %v", list, err)
	}
	raise(4, "/global")
	raise(4, "/local0")
	if _, _, err := w.Stores[0].Candidates(t.Context()); err != nil {
		t.Errorf("epoch 5 can be read: %v", err)
	}
	raise(5, "/global")
	list, _, err := w.Stores[0].Candidates(t.Context())
	var newer *storage.VersionError
	if !errors.As(err, &newer) || !strings.Contains(err.Error(), "the newest epoch is 5") || len(list) != 3 {
		t.Errorf("got %v, %v; want a *VersionError and three older ones", list, err)
	}
	w.Prune(t)
	if got := fmt.Sprint(w.EpochsAt(t, 0, 1)); got != "[5 4 3 2 1]" {
		t.Errorf("global: got %s", got)
	}
}

// TestStrayEpochNumber: a directory with a number at the end of all numbers does not make
// the epochs that follow ones that nobody finds.
func TestStrayEpochNumber(t *testing.T) {
	f := jobtest.NewWorldFS()
	w, err := jobtest.OpenWorld(f)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	if err := w.TakeEpoch(7, func(storage.Epoch) {}); err != nil {
		t.Fatal(err)
	}
	for _, n := range []storage.Epoch{1 << 61, 1<<61 + 1, 1<<62 - 1, 1 << 62} {
		f.MkdirAll("/local0/" + format.EpochName(n))
		want := storage.Epoch(7)
		if n <= format.MaxCounted {
			want = n
		}
		if h, err := w.Stores[0].Highest(t.Context()); err != nil || h != want {
			t.Errorf("with epoch %d: got %d, %v, want %d", n, h, err, want)
		}
		if _, ok := format.ParseEpochName(format.EpochName(want + 1)); !ok {
			t.Errorf("the epoch after %d would not be found", want)
		}
		f.RemoveAll("/local0/" + format.EpochName(n))
	}
}

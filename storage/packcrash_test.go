package storage_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"

	"github.com/holdfast-hpc/holdfast/internal/crashfs"
	"github.com/holdfast-hpc/holdfast/storage"
	"github.com/holdfast-hpc/holdfast/storage/internal/format"
	"github.com/holdfast-hpc/holdfast/storage/internal/jobtest"
)

// packAlone does what ranks do that are each a node of its own: their packs have their final names while they are
// written.
func packAlone(ctx context.Context, stores []*storage.Store, e storage.Epoch,
	secs func(r int) []storage.Section) (infos []storage.ShardInfo, err error) {
	for r, s := range stores {
		p, err := s.NewPart(ctx, e, storage.LevelLocal, storage.LevelGlobal, secs(r))
		if err != nil {
			return nil, err
		}
		defer p.Close()
		n := storage.NodePack{Epoch: e, From: storage.LevelLocal, To: storage.LevelGlobal, Ranks: []int{r},
			Sizes: [][]byte{p.Size()}}
		if _, err := p.Write(ctx, n); err != nil {
			return nil, err
		}
		part, err := p.Seal(ctx, n)
		if err != nil {
			return nil, err
		}
		infos = append(infos, part...)
	}
	return infos, nil
}

// TestPackUnderItsNameCrash ends at every operation of packs that have their final names from the start: the machine,
// which leaves any sectors of them, or the process alone. The next start takes what is there for complete only if it
// is, and then it is durable.
func TestPackUnderItsNameCrash(t *testing.T) {
	secs := func(r int) []storage.Section { return jobtest.SmallSections(r, 1) }
	killed := errors.New("killed")
	for _, end := range []error{killed, crashfs.ErrCrashed} {
		syncs := 0
		for at := 0; ; at++ {
			f := jobtest.NewPackFS()
			stores := jobtest.OpenPacking(t, f)
			jobtest.Take(t, stores, 1, storage.LevelLocal, secs)
			start, kind := f.Ops(), ""
			f.SetRule(func(op crashfs.Op) error {
				if op.N == start+at {
					kind = op.Kind
				}
				if op.N >= start+at {
					return end
				}
				return nil
			})
			_, err := packAlone(context.Background(), stores, 1, secs)
			f.SetRule(nil)
			if err == nil {
				break
			}
			if !errors.Is(err, end) {
				t.Fatalf("op %d: %v", at, err)
			}
			if end == killed {
				completes(t, f, fmt.Sprintf("%s at op %d, %s", end, at, kind), secs)
				continue
			}
			seeds := uint64(4)
			if kind == "sync" {
				syncs++
			}
			if kind == "sync" && syncs <= 2 { // what the first pack consists of is written, and need not be there
				seeds = 300
			}
			for seed := range seeds {
				what := fmt.Sprintf("%s at op %d, %s, seed %d", end, at, kind, seed)
				completes(t, f.Crash(crashfs.Torn, seed), what, secs)
			}
		}
	}
}

// completes has the next start complete a flush, and loses what is not durable once it is committed.
func completes(t *testing.T, f *crashfs.FS, what string, secs func(r int) []storage.Section) {
	t.Helper()
	stores := jobtest.OpenPacking(t, f)
	var infos []storage.ShardInfo
	for r := range stores {
		part, err := stores[r].FlushNode(t.Context(), 1, storage.LevelLocal, storage.LevelGlobal, []int{r})
		if err != nil {
			t.Fatalf("%s, again: %v", what, err)
		}
		infos = append(infos, part...)
	}
	settle(t, stores, 1, infos)
	g := f.Crash(crashfs.LoseAll, 0)
	g.RemoveAll("/l/" + format.EpochName(1))
	if found := jobtest.Findings(t, g, "/g"); found != 0 {
		t.Errorf("%s: %d findings", what, found)
	}
	for r, s := range jobtest.OpenPacking(t, g) {
		jobtest.WantShard(t, s, 1, secs(r))
	}
	if t.Failed() {
		t.FailNow()
	}
}

// TestUnsyncedPackGoes: a pack that the disk has refused to take is gone, though it can be read for a while: the next
// start would take it for complete.
func TestUnsyncedPackGoes(t *testing.T) {
	for nth := 1; nth <= 2; nth++ {
		f := jobtest.NewPackFS()
		stores := jobtest.OpenPacking(t, f)
		secs := func(r int) []storage.Section { return jobtest.SmallSections(r, 1) }
		jobtest.Take(t, stores, 1, storage.LevelLocal, secs)
		syncs := 0
		f.SetRule(func(op crashfs.Op) error {
			if op.Kind != "sync" {
				return nil
			}
			if syncs++; syncs == nth {
				return syscall.EIO
			}
			return nil
		})
		if _, err := packAlone(t.Context(), stores, 1, secs); !errors.Is(err, syscall.EIO) {
			t.Fatalf("sync %d: got %v, want EIO", nth, err)
		}
		if strings.Contains(f.String(), "pack-") {
			t.Errorf("sync %d: left behind:\n%s", nth, f)
		}
	}
}

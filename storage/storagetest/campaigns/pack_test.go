package campaigns

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-hpc/holdfast/internal/vfs"
	"github.com/holdfast-hpc/holdfast/storage"
	"github.com/holdfast-hpc/holdfast/storage/checkpoints"
	"github.com/holdfast-hpc/holdfast/storage/internal/format"
	"github.com/holdfast-hpc/holdfast/storage/storagetest/jobtest"
	"github.com/holdfast-hpc/holdfast/test/crashfs"
)

func TestFlushNodePacks(t *testing.T) {
	f := jobtest.NewPackFS()
	stores := openPacking(t, f)
	for e := storage.Epoch(1); e <= 3; e++ {
		jobtest.Take(t, stores, e, storage.LevelLocal,
			func(r int) []storage.Section { return jobtest.SmallSections(r, e) })
		flusher := stores[int(e)%2] // another one each time
		infos, err := flusher.FlushNode(t.Context(), e, storage.LevelLocal, storage.LevelGlobal, []int{2, 0, 1})
		if err != nil {
			t.Fatal(err)
		}
		if infos[0].Rank != 2 || infos[2].Rank != 1 {
			t.Errorf("got ranks %d %d %d, want the order asked for", infos[0].Rank, infos[1].Rank, infos[2].Rank)
		}
		jobtest.CommitAll(t, stores, e, storage.LevelGlobal, infos)
		if strings.Contains(f.String(), "/g/"+format.EpochName(e)+"/rank-") {
			t.Errorf("shards were written one by one:\n%s", f)
		}
	}
	f.RemoveAll("/l/" + format.EpochName(3))
	for r, s := range stores {
		jobtest.WantShard(t, s, 3, jobtest.SmallSections(r, 3))
	}
	v, err := checkpoints.Open(vfs.With(context.Background(), f), "/g")
	if err != nil {
		t.Fatal(err)
	}
	if found, err := v.Verify(t.Context(), 3); err != nil || len(found) != 0 {
		t.Errorf("got %v, %v from verify", found, err)
	}
}

// TestEveryByteOfAPackFlipped restores from a pack with each byte flipped: right
// bytes, or an error that says corrupt.
func TestEveryByteOfAPackFlipped(t *testing.T) {
	f := jobtest.NewPackFS()
	stores := openPacking(t, f)
	jobtest.Take(t, stores, 1, storage.LevelLocal, func(r int) []storage.Section { return jobtest.SmallSections(r, 1) })
	infos, err := stores[0].FlushNode(t.Context(), 1, storage.LevelLocal, storage.LevelGlobal, []int{0, 1, 2})
	if err != nil {
		t.Fatal(err)
	}
	jobtest.CommitAll(t, stores, 1, storage.LevelGlobal, infos)
	file := "/g/" + format.EpochName(1) + "/" + format.PackName(0)
	v, err := checkpoints.Open(vfs.With(context.Background(), f), "/g")
	if err != nil {
		t.Fatal(err)
	}
	for at := int64(0); at < jobtest.FileSize(t, f, file); at++ {
		if testing.Short() && at%67 != 0 {
			continue
		}
		f.Flip(file, at, 2)
		found, err := v.Verify(t.Context(), 1)
		if err != nil || len(found) == 0 {
			t.Fatalf("byte %d: got %v, %v, want a finding", at, found, err)
		}
		if at%11 == 0 {
			for r, s := range stores {
				jobtest.WantShard(t, s, 1, jobtest.SmallSections(r, 1)) // from local where it is damaged
			}
		}
		f.Flip(file, at, 2)
	}
}

// TestFlushNodeCrash goes down at every operation of a packed flush, and lets
// another rank complete it.
func TestFlushNodeCrash(t *testing.T) {
	for at := 0; ; at++ {
		f := jobtest.NewPackFS()
		stores := openPacking(t, f)
		jobtest.Take(t, stores, 1, storage.LevelLocal,
			func(r int) []storage.Section { return jobtest.SmallSections(r, 1) })
		start := f.Ops()
		f.SetRule(func(op crashfs.Op) error {
			if op.N == start+at {
				return crashfs.ErrCrashed
			}
			return nil
		})
		_, err := stores[0].FlushNode(context.Background(), 1, storage.LevelLocal, storage.LevelGlobal, []int{0, 1, 2})
		if err == nil {
			t.Logf("%d operations", at)
			return
		}
		if !errors.Is(err, crashfs.ErrCrashed) {
			t.Fatalf("op %d: %v", at, err)
		}
		stores = openPacking(t, f.Crash(crashfs.Torn, uint64(at)))
		infos, err := stores[1].FlushNode(t.Context(), 1, storage.LevelLocal, storage.LevelGlobal, []int{0, 1, 2})
		if err != nil {
			t.Fatalf("op %d, again: %v", at, err)
		}
		jobtest.CommitAll(t, stores, 1, storage.LevelGlobal, infos)
		for r, s := range stores {
			jobtest.WantShard(t, s, 1, jobtest.SmallSections(r, 1))
		}
	}
}

func TestFlushNodeResumes(t *testing.T) {
	f := jobtest.NewPackFS()
	stores := openPacking(t, f)
	jobtest.Take(t, stores, 1, storage.LevelLocal, func(r int) []storage.Section { return jobtest.SmallSections(r, 1) })
	first, err := stores[0].FlushNode(t.Context(), 1, storage.LevelLocal, storage.LevelGlobal, []int{0, 1, 2})
	if err != nil {
		t.Fatal(err)
	}
	f.SetRule(func(op crashfs.Op) error {
		if op.Kind == "write" {
			return fs.ErrPermission
		}
		return nil
	})
	second, err := stores[2].FlushNode(t.Context(), 1, storage.LevelLocal, storage.LevelGlobal, []int{0, 1, 2})
	if err != nil || fmt.Sprint(first) != fmt.Sprint(second) {
		t.Errorf("got %v, %v, want the pack that is there", second, err)
	}
}

func TestThrottle(t *testing.T) {
	dir := t.TempDir()
	s, err := storage.Open(jobtest.WithPools(t.Context()), storage.Options{Job: "j", Size: 1,
		Levels: []storage.LevelConfig{
			{Name: storage.LevelLocal, Dir: filepath.Join(dir, "l"), Create: true},
			{Name: storage.LevelGlobal, Dir: filepath.Join(dir, "g"), Create: true}}})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	jobtest.Take(t, []*storage.Store{s}, 1, storage.LevelLocal,
		func(r int) []storage.Section { return jobtest.SmallSections(r, 1) })
	release := s.PauseCopies()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		_, err := s.Flush(ctx, 1, storage.LevelLocal, storage.LevelGlobal, nil)
		done <- err
	}()
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("held: got %v, want it to wait until it is cancelled", err)
	}
	release()
	if _, err := s.Flush(t.Context(), 1, storage.LevelLocal, storage.LevelGlobal, nil); err != nil {
		t.Error(err)
	}
}

// TestFlushNodeCommitted: what is committed is not packed again, and nothing else
// takes its place.
func TestFlushNodeCommitted(t *testing.T) {
	f := jobtest.NewPackFS()
	stores := openPacking(t, f)
	jobtest.Take(t, stores, 1, storage.LevelLocal, func(r int) []storage.Section { return jobtest.SmallSections(r, 1) })
	infos, err := stores[0].FlushNode(t.Context(), 1, storage.LevelLocal, storage.LevelGlobal,
		packRanks)
	if err != nil {
		t.Fatal(err)
	}
	jobtest.CommitAll(t, stores, 1, storage.LevelGlobal, infos)
	again, err := stores[1].FlushNode(t.Context(), 1, storage.LevelLocal, storage.LevelGlobal,
		packRanks)
	if err != nil || fmt.Sprint(again) != fmt.Sprint(infos) {
		t.Errorf("again: got %v, %v", again, err)
	}
	// Another epoch 1 at local, as after somebody copied directories about.
	f.RemoveAll("/l/" + format.EpochName(1))
	jobtest.Take(t, stores, 1, storage.LevelLocal, func(r int) []storage.Section { return jobtest.SmallSections(r, 2) })
	if _, err := stores[0].FlushNode(t.Context(), 1, storage.LevelLocal, storage.LevelGlobal,
		packRanks); !errors.Is(err,
		storage.ErrCommitted) {
		t.Errorf("other contents: got %v, want ErrCommitted", err)
	}
	var bad *storage.OptionError
	if _, err := stores[0].FlushNode(t.Context(), 1, storage.LevelLocal, "nowhere", packRanks); !errors.As(err,
		&bad) {
		t.Errorf("no such level: %v", err)
	}
	if _, err := stores[0].NewPart(t.Context(), 1, storage.LevelLocal, "nowhere", nil); !errors.As(err, &bad) {
		t.Errorf("part at no such level: %v", err)
	}
}

// TestRateLimit copies at a limited rate, by a clock of its own; the ranks of a
// node keep the limit together.
func TestRateLimit(t *testing.T) {
	const rate = 100_000 // bytes per second; a shard here has three pages, two ranks twice that
	for _, together := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			f := jobtest.NewPackFS()
			var stores []*storage.Store
			for r := range packRanks {
				s, err := storage.Open(vfs.With(t.Context(), f),
					storage.Options{Job: "pack", Rank: r, Size: 3, Node: "n",
						Levels: []storage.LevelConfig{{Name: storage.LevelLocal, Dir: "/l"},
							{Name: storage.LevelGlobal, Dir: "/g", BytesPerSec: rate}}})
				if err != nil {
					t.Fatal(err)
				}
				defer s.Close()
				stores = append(stores, s)
			}
			start := time.Now()
			const epochs = 12
			written := int64(0)
			for e := storage.Epoch(1); e <= epochs; e++ {
				secs := func(r int) []storage.Section { return jobtest.SmallSections(r, e) }
				jobtest.Take(t, stores, e, storage.LevelLocal, secs)
				var infos []storage.ShardInfo
				var err error
				if together {
					infos, _, err = packTogether(t.Context(), stores, e, secs)
				} else {
					infos, err = stores[0].FlushNode(t.Context(), e, storage.LevelLocal, storage.LevelGlobal,
						packRanks)
				}
				if err != nil {
					t.Fatal(err)
				}
				settle(t, stores, e, infos)
				for _, i := range infos {
					written += i.ShardBytes
				}
			}
			least := time.Duration(float64(written)/rate*float64(time.Second)) * 8 / 10
			if took := time.Since(start); took < least || took > 2*least {
				t.Errorf("together %v: %d bytes in %v, want about %v", together, written, took, least)
			}
		})
	}
}

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
			stores := openPacking(t, f)
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
			if testing.Short() {
				seeds = min(seeds, 20)
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
	stores := openPacking(t, f)
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
	for r, s := range openPacking(t, g) {
		jobtest.WantShard(t, s, 1, secs(r))
	}
	if t.Failed() {
		t.FailNow()
	}
}

// TestUnsyncedPackGoes: a pack that the disk has refused to take is gone, though it can still be read: the next
// start would take it for complete.
func TestUnsyncedPackGoes(t *testing.T) {
	for nth := 1; nth <= 2; nth++ {
		f := jobtest.NewPackFS()
		stores := openPacking(t, f)
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

// TestPackBytes: a set length divides the ranks of a node among packs, whoever writes them, and what is restored does
// not depend on it.
func TestPackBytes(t *testing.T) {
	for _, together := range []bool{true, false} {
		f := jobtest.NewPackFS()
		var stores []*storage.Store
		for r := range packRanks {
			s, err := storage.Open(jobtest.WithPools(vfs.With(t.Context(), f)),
				storage.Options{Job: "pack", Rank: r, Size: 3, Node: "n",
					Levels: []storage.LevelConfig{{Name: storage.LevelLocal, Dir: "/l"},
						{Name: storage.LevelGlobal, Dir: "/g", PackBytes: 2_000_000}}})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { s.Close() })
			stores = append(stores, s)
		}
		secs := func(r int) []storage.Section { return mixedSections(r, 1) }
		jobtest.Take(t, stores, 1, storage.LevelLocal, secs)
		var infos []storage.ShardInfo
		var err error
		if together {
			infos, _, err = packTogether(t.Context(), stores, 1, secs)
		} else {
			infos, err = stores[0].FlushNode(t.Context(), 1, storage.LevelLocal, storage.LevelGlobal,
				packRanks)
		}
		if err != nil {
			t.Fatal(err)
		}
		settle(t, stores, 1, infos)
		var packs []int
		for _, i := range infos {
			packs = append(packs, i.Pack)
		}
		if len(packs) != 3 || packs[0] != 0 || packs[1] != 1 || packs[2] != 2 {
			t.Errorf("together %v: the shards are in packs %v, want one for each rank", together, packs)
		}
		f.RemoveAll("/l/epoch-0000000001")
		for r, s := range stores {
			jobtest.WantShard(t, s, 1, secs(r))
		}
		if n := jobtest.Findings(t, f, "/g"); n != 0 {
			t.Errorf("verify has %d findings", n)
		}
	}
	var bad *storage.OptionError
	l := storage.LevelConfig{Name: storage.LevelGlobal, Dir: t.TempDir(), PackBytes: -1}
	if _, err := storage.Open(t.Context(), storage.Options{Job: "j", Size: 1,
		Levels: []storage.LevelConfig{l}}); !errors.As(err, &bad) {
		t.Errorf("%+v: got %v, want an *OptionError", l, err)
	}
}

package campaigns

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/holdfast-hpc/holdfast/internal/vfs"
	"github.com/holdfast-hpc/holdfast/storage"
	"github.com/holdfast-hpc/holdfast/storage/internal/format"
	"github.com/holdfast-hpc/holdfast/storage/internal/level"
	"github.com/holdfast-hpc/holdfast/storage/storagetest/jobtest"
	"github.com/holdfast-hpc/holdfast/test/crashfs"
)

// TestNodePack writes packs by all ranks of a node together and by the flusher
// alone, in turn, and restores every epoch from them.
func TestNodePack(t *testing.T) {
	for name, cfg := range map[string]storage.LevelConfig{
		"plain": {}, "full": {Full: true}, "compressed": {CompressAlways: true},
	} {
		t.Run(name, func(t *testing.T) {
			f := jobtest.NewPackFS()
			var stores []*storage.Store
			for r := range packRanks {
				cfg.Name, cfg.Dir, cfg.Keep = storage.LevelGlobal, "/g", 9
				s, err := storage.Open(jobtest.WithPools(vfs.With(t.Context(), f)),
					storage.Options{Job: "pack", Rank: r, Size: 3, Node: "n",
						Levels: []storage.LevelConfig{{Name: storage.LevelLocal, Dir: "/l", Keep: 9}, cfg}})
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { s.Close() })
				stores = append(stores, s)
			}
			for e := storage.Epoch(1); e <= 6; e++ {
				secs := func(r int) []storage.Section { return mixedSections(r, e) }
				jobtest.Take(t, stores, e, storage.LevelLocal, secs)
				var infos []storage.ShardInfo
				var err error
				if e%3 == 0 {
					infos, err = stores[0].FlushNode(t.Context(), e, storage.LevelLocal, storage.LevelGlobal,
						packRanks)
				} else {
					infos, _, err = packTogether(t.Context(), stores, e, secs)
				}
				if err != nil {
					t.Fatal(err)
				}
				for _, i := range infos {
					if refers := len(i.Origins) > 0; refers != (e > 1 && !cfg.Full) {
						t.Errorf("epoch %d, rank %d refers to epochs %v", e, i.Rank, i.Origins)
					}
				}
				settle(t, stores, e, infos)
			}
			f.RemoveAll("/l")
			f.MkdirAll("/l")
			for e := storage.Epoch(1); e <= 6; e++ {
				for r, s := range stores {
					jobtest.WantShard(t, s, e, mixedSections(r, e))
				}
				if n := jobtest.Findings(t, f, "/g"); n != 0 {
					t.Errorf("verify has %d findings", n)
				}
			}
			if left := f.String(); strings.Contains(left, format.TempSuffix) ||
				strings.Contains(left, "/g/"+format.EpochName(1)+"/rank-") {
				t.Errorf("left behind:\n%s", left)
			}
		})
	}
}

// TestNodePackIsExact compares the room that is set aside with what is needed:
// without compression the shards follow each other as in a pack by one rank.
func TestNodePackIsExact(t *testing.T) {
	var packs [][]byte
	for _, together := range []bool{true, false} {
		f := jobtest.NewPackFS()
		stores := openPacking(t, f)
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
		b, err := level.ReadFile(f, "/g/"+format.EpochName(1)+"/"+format.PackName(0), 1<<30)
		if err != nil {
			t.Fatal(err)
		}
		for _, i := range infos {
			clear(b[i.Base : i.Base+format.HeaderLen]) // has the time of writing
		}
		packs = append(packs, b)
	}
	if !bytes.Equal(packs[0], packs[1]) {
		t.Errorf("packs of %d and %d bytes differ", len(packs[0]), len(packs[1]))
	}
}

// TestNodePackCrash goes down at every operation of a pack that is written
// together; at the next start another rank completes the flush alone.
func TestNodePackCrash(t *testing.T) {
	for _, mode := range []crashfs.Survival{crashfs.LoseAll, crashfs.KeepAll, crashfs.Torn} {
		for at := 0; ; at++ {
			f := jobtest.NewPackFS()
			stores := openPacking(t, f)
			secs := func(r int) []storage.Section { return jobtest.SmallSections(r, 1) }
			jobtest.Take(t, stores, 1, storage.LevelLocal, secs)
			start := f.Ops()
			f.SetRule(func(op crashfs.Op) error {
				if op.N == start+at {
					return crashfs.ErrCrashed
				}
				return nil
			})
			_, _, err := packTogether(context.Background(), stores, 1, secs)
			if err == nil {
				if at < 40 {
					t.Errorf("only %d operations", at)
				}
				break
			}
			if !errors.Is(err, crashfs.ErrCrashed) {
				t.Fatalf("op %d: %v", at, err)
			}
			g := f.Crash(mode, uint64(at))
			stores = openPacking(t, g)
			infos, err := stores[1].FlushNode(t.Context(), 1, storage.LevelLocal, storage.LevelGlobal,
				packRanks)
			if err != nil {
				t.Fatalf("op %d, again: %v", at, err)
			}
			settle(t, stores, 1, infos)
			g.RemoveAll("/l/" + format.EpochName(1))
			for r, s := range stores {
				jobtest.WantShard(t, s, 1, jobtest.SmallSections(r, 1))
			}
			if strings.Contains(g.String(), format.TempSuffix) {
				t.Fatalf("op %d: left behind:\n%s", at, g)
			}
		}
	}
}

// TestNodePackFault lets every operation fail once: the parts are dropped and
// the flusher does the work alone, or the packs are complete.
func TestNodePackFault(t *testing.T) {
	for at := 0; ; at++ {
		f := jobtest.NewPackFS()
		stores := openPacking(t, f)
		secs := func(r int) []storage.Section { return jobtest.SmallSections(r, 1) }
		jobtest.Take(t, stores, 1, storage.LevelLocal, secs)
		start, injected := f.Ops(), errors.New("injected")
		f.SetRule(func(op crashfs.Op) error {
			if op.N == start+at {
				return injected
			}
			return nil
		})
		infos, n, err := packTogether(t.Context(), stores, 1, secs)
		f.SetRule(nil)
		if f.Ops() <= start+at {
			return
		}
		if err != nil {
			if !errors.Is(err, injected) {
				t.Fatalf("op %d: got %v", at, err)
			}
			if len(n.Sizes) == len(packRanks) {
				if err := stores[0].DropPacks(n); err != nil {
					t.Fatalf("op %d: drop: %v", at, err)
				}
			}
			infos, err = stores[0].FlushNode(t.Context(), 1, storage.LevelLocal, storage.LevelGlobal,
				packRanks)
		}
		if err != nil {
			t.Fatalf("op %d: %v", at, err)
		}
		settle(t, stores, 1, infos)
		if left := f.String(); strings.Contains(left, format.TempSuffix) {
			t.Fatalf("op %d: left behind:\n%s", at, left)
		}
		if found := jobtest.Findings(t, f, "/l", "/g"); found != 0 {
			t.Fatalf("op %d: %d findings", at, found)
		}
	}
}

// TestPartGivesWay cancels a part while it waits for a capture; the memory is
// free when Write returns, and nothing of the pack stays.
func TestPartGivesWay(t *testing.T) {
	f := jobtest.NewPackFS()
	stores := openPacking(t, f)
	jobtest.Take(t, stores, 1, storage.LevelLocal, func(r int) []storage.Section { return mixedSections(r, 1) })
	n := storage.NodePack{Epoch: 1, From: storage.LevelLocal, To: storage.LevelGlobal, Ranks: packRanks}
	var parts []*storage.Part
	for r, s := range stores {
		p, err := s.NewPart(t.Context(), 1, storage.LevelLocal, storage.LevelGlobal, mixedSections(r, 1))
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		parts, n.Sizes = append(parts, p), append(n.Sizes, p.Size())
	}
	release := stores[2].PauseCopies()
	defer release()
	ctx, cancel := context.WithCancel(t.Context())
	held := make(chan error)
	go func() { _, err := parts[2].Write(ctx, n); held <- err }()
	for r := range 2 {
		if _, err := parts[r].Write(t.Context(), n); err != nil {
			t.Fatal(err)
		}
	}
	cancel()
	if err := <-held; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want that it gave way", err)
	}
	if _, err := parts[0].Seal(t.Context(), n); err == nil {
		t.Error("sealed a pack without the part of rank 2")
	}
	if err := stores[0].DropPacks(n); err != nil || strings.Contains(f.String(), format.TempSuffix) {
		t.Errorf("%v, left behind:\n%s", err, f)
	}
}

// TestPartRefuses gives parts what is not what was committed.
func TestPartRefuses(t *testing.T) {
	f := jobtest.NewPackFS()
	stores := openPacking(t, f)
	secs := func(r int) []storage.Section { return mixedSections(r, 1) }
	jobtest.Take(t, stores, 1, storage.LevelLocal, secs)
	changed := mixedSections(1, 1)
	changed[4].Source.(storage.Bytes)[5]++
	filled := mixedSections(1, 1)
	copy(filled[5].Source.(storage.Bytes), jobtest.Random(3, 300_000)) // takes room where zeros took none
	for name, bad := range map[string][]storage.Section{"a byte changed": changed, "zeros became data": filled} {
		_, _, err := packTogether(t.Context(), stores, 1, func(r int) []storage.Section {
			if r == 1 {
				return bad
			}
			return secs(r)
		})
		if err == nil || !strings.Contains(err.Error(), "rank=1") {
			t.Errorf("%s: got %v, want an error of rank 1", name, err)
		}
		if strings.Contains(f.String(), format.PackName(0)) {
			t.Errorf("%s: left behind:\n%s", name, f)
		}
	}
	if _, err := stores[1].NewPart(t.Context(), 1, storage.LevelLocal, storage.LevelGlobal, secs(1)[1:]); err != nil {
		t.Errorf("fewer sections are found out by the digest: %v", err)
	}
	if _, err := stores[1].NewPart(t.Context(), 2, storage.LevelLocal, storage.LevelGlobal, secs(1)); !errors.Is(err,
		storage.ErrNotCommitted) {
		t.Errorf("epoch that is nowhere: %v", err)
	}
	infos, _, err := packTogether(t.Context(), stores, 1, secs)
	if err != nil {
		t.Fatal(err)
	}
	settle(t, stores, 1, infos)
	if _, err := stores[1].NewPart(t.Context(), 1, storage.LevelLocal, storage.LevelGlobal, secs(1)); !errors.Is(err,
		storage.ErrCommitted) {
		t.Errorf("committed already: %v", err)
	}
}

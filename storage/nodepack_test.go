package storage

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/holdfast-hpc/holdfast/internal/crashfs"
	"github.com/holdfast-hpc/holdfast/storage/internal/format"
	"github.com/holdfast-hpc/holdfast/storage/internal/level"
)

var packRanks = []int{0, 1, 2}

// packTogether does what the ranks of a node do: sizes, parts, seal.
func packTogether(ctx context.Context, stores []*Store, e Epoch, secs func(r int) []Section) ([]ShardInfo, NodePack,
	error) {
	n := NodePack{Epoch: e, From: LevelLocal, To: LevelGlobal, Ranks: packRanks}
	parts := make([]*Part, len(stores))
	for r, s := range stores {
		var err error
		if parts[r], err = s.NewPart(ctx, e, LevelLocal, LevelGlobal, secs(r)); err != nil {
			return nil, n, err
		}
		defer parts[r].Close()
		n.Sizes = append(n.Sizes, parts[r].Size())
	}
	errs, stored := make([]error, len(parts)), make([]int64, len(parts))
	var wg sync.WaitGroup
	for r := range parts {
		wg.Go(func() {
			info, err := parts[r].Write(ctx, n)
			errs[r], stored[r] = err, info.Stored
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return nil, n, errors.Join(err, stores[0].DropPacks(n))
	}
	infos, err := parts[0].Seal(ctx, n)
	for r := range infos {
		if got, want := stored[r], infos[r].Stored; got != want {
			err = errors.Join(err, fmt.Errorf("rank %d says it stored %d bytes, its shard has %d", r, got, want))
		}
	}
	return infos, n, err
}

func settle(t *testing.T, stores []*Store, e Epoch, infos []ShardInfo) {
	t.Helper()
	if err := stores[0].Commit(t.Context(), e, LevelGlobal, infos); err != nil {
		t.Fatal(err)
	}
	for _, s := range stores[1:] {
		if err := s.Committed(e, LevelGlobal); err != nil {
			t.Fatal(err)
		}
	}
}

// mixedSections has everything a shard can have: zeros, repeats, what compresses,
// sections that start on a page and such that do not.
func mixedSections(rank int, e Epoch) []Section {
	soft := make(Bytes, 400_000)
	for i := range soft {
		soft[i] = byte(int(e) + i/512)
	}
	secs := append(smallSections(rank, e), Section{Name: "soft", Source: soft},
		Section{Name: "big", Source: Bytes(random(uint64(rank)+7, 700_000+rank*4096))},
		Section{Name: "hole", Source: make(Bytes, 300_000)}, Section{Name: "end", Source: Bytes("x")})
	for i := range secs {
		secs[i].Size = int64(len(secs[i].Source.(Bytes)))
	}
	return secs
}

// TestNodePack writes packs by all ranks of a node together and by the flusher
// alone, in turn, and restores every epoch from them.
func TestNodePack(t *testing.T) {
	for name, cfg := range map[string]LevelConfig{
		"plain": {}, "full": {Full: true}, "compressed": {CompressAlways: true},
	} {
		t.Run(name, func(t *testing.T) {
			f := newPackFS()
			var stores []*Store
			for r := range packRanks {
				cfg.Name, cfg.Dir, cfg.Keep = LevelGlobal, "/g", 9
				s, err := Open(t.Context(), Options{Job: "pack", Rank: r, Size: 3, Node: "n", fs: f, pool: testPool,
					Levels: []LevelConfig{{Name: LevelLocal, Dir: "/l", Keep: 9}, cfg}})
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { s.Close() })
				stores = append(stores, s)
			}
			for e := Epoch(1); e <= 6; e++ {
				secs := func(r int) []Section { return mixedSections(r, e) }
				take(t, stores, e, LevelLocal, secs)
				var infos []ShardInfo
				var err error
				if e%3 == 0 {
					infos, err = stores[0].FlushNode(t.Context(), e, LevelLocal, LevelGlobal, packRanks)
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
			for e := Epoch(1); e <= 6; e++ {
				for r, s := range stores {
					wantShard(t, s, e, mixedSections(r, e))
				}
				if n := findings(t, f, "/g"); n != 0 {
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
		f := newPackFS()
		stores := packWorld(t, f)
		secs := func(r int) []Section { return mixedSections(r, 1) }
		take(t, stores, 1, LevelLocal, secs)
		var infos []ShardInfo
		var err error
		if together {
			infos, _, err = packTogether(t.Context(), stores, 1, secs)
		} else {
			infos, err = stores[0].FlushNode(t.Context(), 1, LevelLocal, LevelGlobal, packRanks)
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
			f := newPackFS()
			stores := packWorld(t, f)
			secs := func(r int) []Section { return smallSections(r, 1) }
			take(t, stores, 1, LevelLocal, secs)
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
			stores = packWorld(t, g)
			infos, err := stores[1].FlushNode(t.Context(), 1, LevelLocal, LevelGlobal, packRanks)
			if err != nil {
				t.Fatalf("op %d, again: %v", at, err)
			}
			settle(t, stores, 1, infos)
			g.RemoveAll("/l/" + format.EpochName(1))
			for r, s := range stores {
				wantShard(t, s, 1, smallSections(r, 1))
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
		f := newPackFS()
		stores := packWorld(t, f)
		secs := func(r int) []Section { return smallSections(r, 1) }
		take(t, stores, 1, LevelLocal, secs)
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
			infos, err = stores[0].FlushNode(t.Context(), 1, LevelLocal, LevelGlobal, packRanks)
		}
		if err != nil {
			t.Fatalf("op %d: %v", at, err)
		}
		settle(t, stores, 1, infos)
		if left := f.String(); strings.Contains(left, format.TempSuffix) {
			t.Fatalf("op %d: left behind:\n%s", at, left)
		}
		if found := findings(t, f, "/l", "/g"); found != 0 {
			t.Fatalf("op %d: %d findings", at, found)
		}
	}
}

// TestPartGivesWay cancels a part while it waits for a capture; the memory is
// free when Write returns, and nothing of the pack stays.
func TestPartGivesWay(t *testing.T) {
	f := newPackFS()
	stores := packWorld(t, f)
	take(t, stores, 1, LevelLocal, func(r int) []Section { return mixedSections(r, 1) })
	n := NodePack{Epoch: 1, From: LevelLocal, To: LevelGlobal, Ranks: packRanks}
	var parts []*Part
	for r, s := range stores {
		p, err := s.NewPart(t.Context(), 1, LevelLocal, LevelGlobal, mixedSections(r, 1))
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		parts, n.Sizes = append(parts, p), append(n.Sizes, p.Size())
	}
	release := stores[2].Hold()
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
	f := newPackFS()
	stores := packWorld(t, f)
	secs := func(r int) []Section { return mixedSections(r, 1) }
	take(t, stores, 1, LevelLocal, secs)
	changed := mixedSections(1, 1)
	changed[4].Source.(Bytes)[5]++
	filled := mixedSections(1, 1)
	copy(filled[5].Source.(Bytes), random(3, 300_000)) // takes room where zeros took none
	for name, bad := range map[string][]Section{"a byte changed": changed, "zeros became data": filled} {
		_, n, err := packTogether(t.Context(), stores, 1, func(r int) []Section {
			if r == 1 {
				return bad
			}
			return secs(r)
		})
		if err == nil || !strings.Contains(err.Error(), "rank=1") {
			t.Errorf("%s: got %v, want an error of rank 1", name, err)
		}
		if strings.Contains(f.String(), n.nameOf(&nodePackFile{ranks: packRanks}, "")) {
			t.Errorf("%s: left behind:\n%s", name, f)
		}
	}
	if _, err := stores[1].NewPart(t.Context(), 1, LevelLocal, LevelGlobal, secs(1)[1:]); err != nil {
		t.Errorf("fewer sections are found out by the digest: %v", err)
	}
	if _, err := stores[1].NewPart(t.Context(), 2, LevelLocal, LevelGlobal, secs(1)); !errors.Is(err, ErrNotCommitted) {
		t.Errorf("epoch that is nowhere: %v", err)
	}
	infos, _, err := packTogether(t.Context(), stores, 1, secs)
	if err != nil {
		t.Fatal(err)
	}
	settle(t, stores, 1, infos)
	if _, err := stores[1].NewPart(t.Context(), 1, LevelLocal, LevelGlobal, secs(1)); !errors.Is(err, ErrCommitted) {
		t.Errorf("committed already: %v", err)
	}
}

func TestNodePackFiles(t *testing.T) {
	const room = 3 * 4096
	n := NodePack{Ranks: []int{2, 5, 7, 9}, Sizes: [][]byte{partSize(800, room), partSize(400, room),
		partSize(400, room), partSize(1, room)}}
	files, err := n.files(800)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, k := range files {
		got = append(got, fmt.Sprint(k.ranks, k.base, k.end))
	}
	if s := strings.Join(got, " "); s != "[2] [0] 12288 [5 7] [0 12288] 24576 [9] [0] 12288" {
		t.Errorf("got %s", s)
	}
	for _, bad := range []NodePack{
		{}, {Ranks: []int{1, 0}, Sizes: n.Sizes[:2]}, {Ranks: []int{0}},
		{Ranks: []int{0}, Sizes: [][]byte{partSize(1, 100)}},
		{Ranks: []int{0}, Sizes: [][]byte{partSize(1, room)[:15]}},
	} {
		if _, err := bad.files(800); err == nil {
			t.Errorf("%+v was accepted", bad)
		}
	}
}

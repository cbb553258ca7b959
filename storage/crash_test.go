package storage

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/holdfast-hpc/holdfast/internal/crashfs"
	"github.com/holdfast-hpc/holdfast/storage/internal/level"
	"github.com/holdfast-hpc/holdfast/storage/internal/shard"
)

// testPool is shared by all stores of the tests.
var testPool = shard.NewPool(64)

// world is a job of two ranks on a file system that can lose power. Each rank
// has its own local directory; both share the global one.
type world struct {
	fs     *crashfs.FS
	stores []*Store
}

const worldSize = 2

func newWorldFS() *crashfs.FS {
	f := crashfs.New()
	f.SetDirect(true)
	f.MkdirAll("/global")
	for r := range worldSize {
		f.MkdirAll(fmt.Sprintf("/local%d", r))
	}
	return f
}

func openWorld(f *crashfs.FS) (*world, error) {
	w := &world{fs: f}
	for r := range worldSize {
		s, err := Open(context.Background(), Options{Job: "crash", Rank: r, Size: worldSize, fs: f, pool: testPool,
			Levels: []LevelConfig{
				{Name: LevelLocal, Dir: fmt.Sprintf("/local%d", r), Keep: 1},
				{Name: LevelGlobal, Dir: "/global", Keep: 1, CompressAlways: true},
			}})
		if err != nil {
			return w, err
		}
		w.stores = append(w.stores, s)
	}
	return w, nil
}

// openKeeping is openWorld where no level prunes any of the few epochs of a test.
func openKeeping(t *testing.T, f *crashfs.FS) *world {
	t.Helper()
	w, err := openWorld(f)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range w.stores {
		for _, l := range s.levels {
			l.cfg.Keep = 10
		}
	}
	return w
}

func (w *world) close() {
	for _, s := range w.stores {
		s.Close()
	}
}

// each collects what one call per rank says of its shard.
func (w *world) each(do func(s *Store) (ShardInfo, error)) ([]ShardInfo, error) {
	var infos []ShardInfo
	for _, s := range w.stores {
		info, err := do(s)
		if err != nil {
			return nil, err
		}
		infos = append(infos, info)
	}
	return infos, nil
}

func (w *world) commit(e Epoch, level string, infos []ShardInfo) error {
	for _, s := range w.stores {
		if err := s.Commit(context.Background(), e, level, infos); err != nil {
			return err
		}
	}
	return nil
}

// smallSections has a part that changes with every epoch and one that changes
// with every third, so that chunks are referred to.
func smallSections(rank int, e Epoch) []Section {
	secs := []Section{
		{Name: "fast", Source: Bytes(random(uint64(e)*8+uint64(rank), 3000))},
		{Name: "slow", Source: Bytes(random(1000+uint64(e)/3*8+uint64(rank), 5000))},
		{Name: "zero", Source: Bytes(make([]byte, 700))},
	}
	for i := range secs {
		secs[i].Size = int64(len(secs[i].Source.(Bytes)))
	}
	return secs
}

// takeEpoch does everything a job does for an epoch. done is told of each level
// at which the epoch is committed for sure.
func (w *world) takeEpoch(e Epoch, done func(e Epoch)) error {
	ctx := context.Background()
	infos, err := w.each(func(s *Store) (ShardInfo, error) {
		return s.Put(ctx, e, LevelLocal, smallSections(s.opt.Rank, e))
	})
	if err == nil {
		err = w.commit(e, LevelLocal, infos)
	}
	if err != nil {
		return err
	}
	done(e)
	infos, err = w.each(func(s *Store) (ShardInfo, error) { return s.Flush(ctx, e, LevelLocal, LevelGlobal, nil) })
	if err == nil {
		err = w.commit(e, LevelGlobal, infos)
	}
	if err != nil {
		return err
	}
	for _, s := range w.stores {
		if _, err := s.Prune(ctx); err != nil {
			return err
		}
	}
	return nil
}

// newest agrees on the newest epoch that all ranks can restore.
func (w *world) newest() (Epoch, error) {
	type key struct {
		e  Epoch
		id [16]byte
	}
	count := map[key]int{}
	var best Epoch
	for _, s := range w.stores {
		list, _, err := s.Candidates(context.Background())
		if err != nil {
			return 0, err
		}
		for _, c := range list {
			if c.Deaths >= maxDeaths {
				continue
			}
			k := key{c.Epoch, c.ID}
			if count[k]++; count[k] == worldSize {
				best = max(best, c.Epoch)
			}
		}
	}
	return best, nil
}

// check restores e on all ranks and compares it.
func (w *world) check(e Epoch) error {
	for r, s := range w.stores {
		got, err := fetchAll(context.Background(), s, e)
		if err != nil {
			return fmt.Errorf("rank %d: %w", r, err)
		}
		for _, want := range smallSections(r, e) {
			if !bytes.Equal(got[want.Name], want.Source.(Bytes)) {
				return fmt.Errorf("rank %d: section %s of epoch %d differs", r, want.Name, e)
			}
		}
	}
	return nil
}

const crashEpochs = 4

// runJob takes epochs until the machine goes down. It returns the newest epoch
// that was committed for sure.
func runJob(f *crashfs.FS) (sure Epoch, err error) {
	w, err := openWorld(f)
	defer w.close()
	for e := Epoch(1); err == nil && e <= crashEpochs; e++ {
		err = w.takeEpoch(e, func(e Epoch) { sure = e })
	}
	return sure, err
}

func TestCrashAtEveryOperation(t *testing.T) {
	f := newWorldFS()
	if _, err := runJob(f); err != nil {
		t.Fatal(err)
	}
	total := f.Ops()
	t.Logf("%d operations", total)
	modes := map[string]crashfs.Survival{"lose": crashfs.LoseAll, "keep": crashfs.KeepAll, "torn": crashfs.Torn}
	for name, mode := range modes {
		t.Run(name, func(t *testing.T) {
			for at := range total {
				if testing.Short() && at%7 != 0 {
					continue
				}
				crashOnce(t, at, mode)
			}
		})
	}
}

// crashOnce takes the machine down before operation at, starts the job again
// and checks that nothing that was committed is lost and that it can go on.
func crashOnce(t *testing.T, at int, mode crashfs.Survival) {
	t.Helper()
	f := newWorldFS()
	var last crashfs.Op
	f.SetRule(func(op crashfs.Op) error {
		if op.N == at {
			last = op
			return crashfs.ErrCrashed
		}
		return nil
	})
	sure, err := runJob(f)
	if err == nil {
		return // this run needed fewer operations
	}
	if !errors.Is(err, crashfs.ErrCrashed) {
		t.Fatalf("crash before op %d: got %v, want ErrCrashed", at, err)
	}
	checkCrashed(t, f.Crash(mode, uint64(at)), at, last, sure)
	if n := f.Unsynced(); mode == crashfs.Torn && n <= allOutcomes {
		for names := range uint64(1) << n {
			checkCrashed(t, f.CrashNames(names, uint64(at)), at, last, sure)
		}
	}
}

// allOutcomes is up to how many unsynced changes of names all outcomes are tried.
const allOutcomes = 3

// wholeEpochs makes sure that whatever has a manifest has its shards, and those
// that it refers to, at that level.
func (w *world) wholeEpochs() error {
	for r, s := range w.stores {
		for _, l := range s.levels {
			epochs, err := l.Epochs()
			if err != nil {
				return err
			}
			for _, e := range epochs {
				m, err := l.ReadManifest(e)
				if errors.Is(err, ErrNotCommitted) {
					continue
				}
				if err == nil {
					err = level.Probe(l, m, r)
				}
				if err == nil {
					err = level.CheckOrigins(l, m.Shards[r].Origins)
				}
				if err != nil {
					return fmt.Errorf("rank %d: epoch %d has a manifest at %s: %w", r, e, l.Name(), err)
				}
			}
		}
	}
	return nil
}

// checkCrashed starts the job again on what a crash left.
func checkCrashed(t *testing.T, g *crashfs.FS, at int, last crashfs.Op, sure Epoch) {
	t.Helper()
	fail := func(format string, args ...any) {
		t.Helper()
		t.Fatalf("crash before op %d (%s %s), %d sure: %s\nleft:\n%s", at, last.Kind, last.Name, sure,
			fmt.Sprintf(format, args...), g)
	}
	w, err := openWorld(g)
	defer w.close()
	if err != nil {
		fail("reopen: %v", err)
	}
	if err := w.wholeEpochs(); err != nil {
		fail("%v", err)
	}
	newest, err := w.newest()
	if err != nil {
		fail("candidates: %v", err)
	}
	if newest < sure {
		fail("newest is %d", newest)
	}
	if newest > 0 {
		if err := w.check(newest); err != nil {
			fail("restore %d: %v", newest, err)
		}
	}
	next := Epoch(0)
	for _, s := range w.stores {
		h, err := s.Highest(context.Background())
		if err != nil {
			fail("highest: %v", err)
		}
		next = max(next, h+1)
	}
	if err := w.takeEpoch(next, func(Epoch) {}); err != nil {
		fail("continuing with epoch %d: %v", next, err)
	}
	if err := w.check(next); err != nil {
		fail("restore %d after going on: %v", next, err)
	}
}

package campaigns

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/holdfast-hpc/holdfast/storage"
	"github.com/holdfast-hpc/holdfast/storage/internal/format"
	"github.com/holdfast-hpc/holdfast/storage/storagetest/jobtest"
	"github.com/holdfast-hpc/holdfast/test/crashfs"
)

// again closes the stores of a job that are open and opens them again, as a restart does.
func again(t *testing.T, stores []*storage.Store, levels func(rank int) []storage.LevelConfig) []*storage.Store {
	t.Helper()
	for _, s := range stores {
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	return jobtest.OpenStores(t, len(stores), levels)
}

// readAll restores an epoch: it reads every section and adopts the shard.
func readAll(t *testing.T, s *storage.Store, e storage.Epoch, want []storage.Section) (adopted bool) {
	t.Helper()
	sh, err := s.Fetch(t.Context(), e)
	if err != nil {
		t.Fatal(err)
	}
	defer sh.Close()
	for _, w := range want {
		got := make([]byte, w.Size)
		if err := sh.ReadAt(t.Context(), w.Name, got, 0); err != nil {
			t.Fatal(err)
		}
	}
	return s.Adopt(sh)
}

// TestAdopt: after a restart, and one after that, the first epoch has only what has changed since the restored one,
// which stays as long as anything refers to it. A source that knows what has not changed is asked about the restored
// epoch.
func TestAdopt(t *testing.T) {
	const n = 20
	levels := func(dir string) func(int) []storage.LevelConfig {
		return func(int) []storage.LevelConfig {
			return []storage.LevelConfig{{Name: storage.LevelLocal, Dir: dir, Keep: 1}}
		}
	}(t.TempDir())
	d := newDevice(t, n, levels(0)[0])
	secs := func() []storage.Section {
		return []storage.Section{{Name: "gpu", Size: int64(len(d.bytes)), Source: d.bytes}}
	}
	d.take(1, n)
	for e := storage.Epoch(2); e <= 6; e += 2 {
		d.store = again(t, []*storage.Store{d.store}, levels)[0]
		if !readAll(t, d.store, e-1, secs()) {
			t.Fatalf("epoch %d is not adopted", e-1)
		}
		d.change(e, int(e)%n, int(e+7)%n)
		info := d.take(e, 2)
		if info.Stored > 2*format.ChunkBytes {
			t.Errorf("epoch %d: %d bytes were written, want two chunks at most", e, info.Stored)
		}
		if len(d.asked) != 1 || d.asked[0] != e-1 {
			t.Errorf("epoch %d: asked about %v, want the restored epoch", e, d.asked)
		}
		if _, err := d.store.Prune(t.Context()); err != nil {
			t.Fatal(err)
		}
		d.change(e+1, int(e+1)%n)
		d.take(e+1, 1)
		if _, err := d.store.Prune(t.Context()); err != nil {
			t.Fatal(err)
		}
		jobtest.WantShard(t, d.store, e+1, secs())
	}
}

// TestAdoptNot: what must not be referred to, or cannot be, and that the next shard is whole then.
func TestAdoptNot(t *testing.T) {
	const n = 8
	secs := jobtest.Changing(n)
	for name, c := range map[string]struct {
		global bool                                                          // the epoch is there, too
		before func(t *testing.T, local string)                              // before the restore
		read   func(t *testing.T, s *storage.Store, sh *storage.Shard) error // nil: all of it
		want   bool                                                          // it is adopted
		after  func(t *testing.T, local string, s *storage.Store)            // the restore
	}{
		"a chunk that nobody read": {read: func(t *testing.T, _ *storage.Store, sh *storage.Shard) error {
			return sh.ReadAt(t.Context(), "x", make([]byte, (n-1)*format.ChunkBytes), 0)
		}},
		"a damaged chunk": {global: true, before: func(t *testing.T, local string) {
			name := filepath.Join(local, format.EpochName(1), format.ShardName(0))
			flipByte(t, name, 3*format.ChunkBytes)
		}},
		"only at global": {global: true, before: func(t *testing.T, local string) {
			if err := os.RemoveAll(filepath.Join(local, format.EpochName(1))); err != nil {
				t.Fatal(err)
			}
		}},
		"removed afterwards": {want: true, after: func(t *testing.T, local string, _ *storage.Store) {
			if err := os.RemoveAll(filepath.Join(local, format.EpochName(1))); err != nil {
				t.Fatal(err)
			}
		}},
		"a later epoch that failed": {want: true, after: func(t *testing.T, _ string, s *storage.Store) {
			info, err := s.Put(t.Context(), 2, storage.LevelLocal, secs(0, 2))
			if err != nil {
				t.Fatal(err)
			}
			jobtest.CommitAll(t, []*storage.Store{s}, 2, storage.LevelLocal, []storage.ShardInfo{info})
			if err := s.Withdraw(2, storage.LevelLocal); err != nil {
				t.Fatal(err)
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			local, global := t.TempDir(), t.TempDir()
			levels := func(int) []storage.LevelConfig {
				return []storage.LevelConfig{{Name: storage.LevelLocal, Dir: local, Keep: 2},
					{Name: storage.LevelGlobal, Dir: global, Keep: 2}}
			}
			stores := jobtest.OpenStores(t, 1, levels)
			jobtest.Take(t, stores, 1, storage.LevelLocal, func(r int) []storage.Section { return secs(r, 1) })
			if c.global {
				info, err := stores[0].Flush(t.Context(), 1, storage.LevelLocal, storage.LevelGlobal, nil)
				if err != nil {
					t.Fatal(err)
				}
				jobtest.CommitAll(t, stores, 1, storage.LevelGlobal, []storage.ShardInfo{info})
			}
			stores = again(t, stores, levels)
			if c.before != nil {
				c.before(t, local)
			}
			s := stores[0]
			sh, err := s.Fetch(t.Context(), 1)
			if err != nil {
				t.Fatal(err)
			}
			if c.read == nil {
				c.read = func(t *testing.T, _ *storage.Store, sh *storage.Shard) error { return sh.Verify(t.Context()) }
			}
			if err := c.read(t, s, sh); err != nil {
				t.Fatal(err)
			}
			if got := s.Adopt(sh); got != c.want {
				t.Errorf("adopted: %v, want %v", got, c.want)
			}
			if err := sh.Close(); err != nil {
				t.Fatal(err)
			}
			if c.after != nil {
				c.after(t, local, s)
			}
			infos := jobtest.Take(t, stores, 3, storage.LevelLocal, func(r int) []storage.Section { return secs(r, 3) })
			if len(infos[0].Origins) > 0 {
				t.Errorf("the next epoch refers to %v, want nothing", infos[0].Origins)
			}
			jobtest.WantShard(t, s, 3, secs(0, 3))
		})
	}
}

// TestAdoptedIsKept: an epoch that was restored although there are newer ones, which do not count, stays while the
// first epoch that refers to it is written, whatever is pruned meanwhile, and afterwards.
func TestAdoptedIsKept(t *testing.T) {
	dir := t.TempDir()
	levels := func(int) []storage.LevelConfig {
		return []storage.LevelConfig{{Name: storage.LevelLocal, Dir: dir, Keep: 1}}
	}
	stores := jobtest.OpenStores(t, 1, levels)
	secs := jobtest.Changing(10)
	for e := storage.Epoch(1); e <= 3; e++ { // whole each: nothing keeps the first one
		jobtest.Take(t, stores, e, storage.LevelLocal, func(r int) []storage.Section { return secs(r, e) })
		stores = again(t, stores, levels)
	}
	s := stores[0]
	if !readAll(t, s, 1, secs(0, 1)) {
		t.Fatal("epoch 1 is not adopted")
	}
	prune := func() {
		if _, err := s.Prune(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	prune()
	info, err := s.Put(t.Context(), 4, storage.LevelLocal, secs(0, 4))
	if err != nil {
		t.Fatal(err)
	}
	if len(info.Origins) != 1 || info.Origins[0] != 1 {
		t.Fatalf("epoch 4 refers to %v, want epoch 1", info.Origins)
	}
	prune()
	jobtest.CommitAll(t, stores, 4, storage.LevelLocal, []storage.ShardInfo{info})
	for e := storage.Epoch(5); e <= 7; e++ {
		prune()
		jobtest.WantShard(t, s, e-1, secs(0, e-1))
		jobtest.Take(t, stores, e, storage.LevelLocal, func(r int) []storage.Section { return secs(r, e) })
	}
	for e := storage.Epoch(8); e <= 12; e++ { // all chunks change
		jobtest.Take(t, stores, e, storage.LevelLocal,
			func(r int) []storage.Section { return jobtest.SectionsOf(r, e) })
		prune()
	}
	if kept, err := levelIn(storage.LevelLocal, dir).Epochs(); err != nil || len(kept) != 1 {
		t.Errorf("epochs %v are left (%v), want one: nothing refers to the others", kept, err)
	}
}

// restartedJob takes an epoch, restarts, restores what there is, and takes more of them, until the machine goes down.
func restartedJob(f *crashfs.FS) (sure storage.Epoch, err error) {
	for n := range 3 {
		if err = restartedOnce(f, 1+n%2, func(e storage.Epoch) { sure = e }); err != nil {
			return sure, err
		}
	}
	return sure, nil
}

// restartedOnce is a start of a job that restores the newest epoch, adopts it, and takes more epochs.
func restartedOnce(f *crashfs.FS, epochs int, done func(e storage.Epoch)) error {
	w, err := jobtest.OpenWorld(f)
	defer w.Stop()
	if err != nil {
		return err
	}
	e, err := w.Stores.Newest()
	if err == nil && e > 0 {
		err = adopt(w, e)
	}
	for _, s := range w.Stores {
		if err == nil {
			var h storage.Epoch
			h, err = s.Highest(context.Background())
			e = max(e, h)
		}
	}
	for range epochs {
		if e++; err == nil {
			err = takeLocal(w, e, done)
		}
	}
	return err
}

// takeLocal is takeEpoch at the first level alone.
func takeLocal(w *jobtest.World, e storage.Epoch, done func(e storage.Epoch)) error {
	infos, err := w.Stores.InTurn(func(s *storage.Store, r int) (storage.ShardInfo, error) {
		return s.Put(context.Background(), e, storage.LevelLocal, jobtest.SmallSections(r, e))
	})
	if err == nil {
		err = w.Stores.Commit(e, storage.LevelLocal, infos)
	}
	if err != nil {
		return err
	}
	done(e)
	_, err = w.Stores.InTurn(func(s *storage.Store, _ int) (storage.ShardInfo, error) {
		_, err := s.Prune(context.Background(), storage.LevelLocal)
		return storage.ShardInfo{}, err
	})
	return err
}

// adopt restores an epoch on all ranks and adopts it.
func adopt(w *jobtest.World, e storage.Epoch) error {
	var list []*storage.Shard
	var err error
	for _, s := range w.Stores {
		var sh *storage.Shard
		if sh, err = s.Fetch(context.Background(), e); err != nil {
			break
		}
		list = append(list, sh)
		if err = sh.Verify(context.Background()); err != nil {
			break
		}
	}
	for r, sh := range list {
		if err == nil {
			w.Stores[r].Adopt(sh)
		}
		err = errors.Join(err, sh.Close())
	}
	return err
}

// TestAdoptCrash kills a job that is restarted twice before each of its operations: it alone, or with the machine. The
// start after it restores what was committed for sure, adopts it, and takes an epoch that refers to it. Then the power
// fails, so that only what is durable is left: that epoch restores.
func TestAdoptCrash(t *testing.T) {
	f := jobtest.NewWorldFS()
	if _, err := restartedJob(f); err != nil {
		t.Fatal(err)
	}
	total := f.Ops()
	t.Logf("%d operations", total)
	for name, after := range map[string]func(f *crashfs.FS, at int) *crashfs.FS{
		"killed": func(f *crashfs.FS, _ int) *crashfs.FS { f.SetRule(nil); return f },
		"lose":   func(f *crashfs.FS, at int) *crashfs.FS { return f.Crash(crashfs.LoseAll, uint64(at)) },
		"torn":   func(f *crashfs.FS, at int) *crashfs.FS { return f.Crash(crashfs.Torn, uint64(at)) },
	} {
		t.Run(name, func(t *testing.T) {
			refers, step := 0, 3
			if testing.Short() {
				step = 41
			}
			for at := 0; at < total; at += step {
				refers += adoptAfterCrash(t, at, after)
			}
			if refers == 0 {
				t.Error("no epoch refers to the one that was restored")
			}
		})
	}
}

var errKilled = errors.New("the process is dead")

// adoptAfterCrash ends a job before an operation; it returns 1 if the epoch taken after that refers to another one.
func adoptAfterCrash(t *testing.T, at int, after func(f *crashfs.FS, at int) *crashfs.FS) (refers int) {
	t.Helper()
	f := jobtest.NewWorldFS()
	f.SetRule(func(op crashfs.Op) error {
		if op.N >= at {
			return errKilled
		}
		return nil
	})
	sure, err := restartedJob(f)
	if err == nil {
		return 0 // this run needed fewer operations
	}
	var again storage.Epoch
	check := func(what string, err error) {
		t.Helper()
		if err != nil {
			t.Fatalf("killed before op %d, epoch %d sure, %d after it: %s: %v", at, sure, again, what, err)
		}
	}
	if !errors.Is(err, errKilled) {
		check("before it", err)
	}
	g := after(f, at)
	check("restart", restartedOnce(g, 1, func(e storage.Epoch) { again = e }))
	if again <= sure {
		check("restart", fmt.Errorf("it committed epoch %d", again))
	}
	w, err := jobtest.OpenWorld(g.Crash(crashfs.LoseAll, 1))
	defer w.Stop()
	check("second restart", err)
	check("second restart", errors.Join(w.WholeEpochs(), w.Check(again)))
	m, err := w.At(0, 0).ReadManifest(again)
	check("second restart", err)
	return min(len(m.Shards[0].Origins), 1)
}

// TestAdoptElsewhere: a rank adopts the epoch that lies on its own node. One that was placed on another node reads the
// same epoch from there and does not, and with parity no rank does: which epochs have rows is not known.
func TestAdoptElsewhere(t *testing.T) {
	for _, c := range []struct {
		name   string
		nodes  []string // after the restart
		levels []storage.LevelConfig
		want   []bool
	}{
		{"the same nodes", nil, []storage.LevelConfig{jobtest.Local, jobtest.Partner}, []bool{true, true, true}},
		{"two change places", []string{"n1", "n0", "n2"}, []storage.LevelConfig{jobtest.Local, jobtest.Partner},
			[]bool{false, false, true}},
		{"parity", nil, []storage.LevelConfig{jobtest.Local, jobtest.Parity}, []bool{false, false, false}},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := jobtest.NewCluster(t, jobtest.NodeNames(3)...)
			for i := range c.levels {
				c.levels[i].Data, c.levels[i].Parity, c.levels[i].Keep = 2, 1, 2
			}
			w.Start(c.levels...)
			if err := w.TryTake(1, stepping, storage.LevelLocal, c.levels[1].Name); err != nil {
				t.Fatal(err)
			}
			w.Stop()
			if c.nodes != nil {
				w.Nodes = c.nodes
			}
			w.Start(c.levels...)
			for r, s := range w.Stores {
				sh, err := s.Fetch(t.Context(), 1)
				if err != nil {
					t.Fatal(err)
				}
				if err := sh.Verify(t.Context()); err != nil {
					t.Fatal(err)
				}
				if got := s.Adopt(sh); got != c.want[r] {
					t.Errorf("rank %d read it from %s and adopts it: %v, want %v", r, sh.Level(), got, c.want[r])
				}
				if err := sh.Close(); err != nil {
					t.Fatal(err)
				}
			}
			for e := storage.Epoch(2); e <= 4; e++ {
				if err := w.TryTake(e, stepping, storage.LevelLocal, c.levels[1].Name); err != nil {
					t.Fatal(err)
				}
				for _, s := range w.Stores {
					if _, err := s.Prune(t.Context()); err != nil {
						t.Fatal(err)
					}
				}
			}
			w.Stop()
			w.LoseNode("n2")
			w.Start(c.levels...)
			if _, err := w.Stores.Restore(4, stepping); err != nil {
				t.Fatal(err)
			}
		})
	}
}

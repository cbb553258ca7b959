package catalog_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-hpc/holdfast/internal/vfs"
	"github.com/holdfast-hpc/holdfast/storage"
	"github.com/holdfast-hpc/holdfast/storage/internal/format"
	"github.com/holdfast-hpc/holdfast/storage/internal/level"
	"github.com/holdfast-hpc/holdfast/storage/storagetest/jobtest"
	"github.com/holdfast-hpc/holdfast/test/crashfs"
)

// openTogether opens the stores of two ranks as coordinated does: rank 0 first, which tells
// the other.
func openTogether(f *crashfs.FS) (*jobtest.World, error) {
	w := &jobtest.World{FS: f}
	var told *storage.Overview
	for r := range jobtest.WorldSize {
		s, err := storage.Open(jobtest.WithPools(vfs.With(context.Background(), f)),
			storage.Options{Job: "crash", Rank: r, Size: jobtest.WorldSize, Collective: true, Overview: told,
				Nodes: []string{"n0", "n1"},
				Levels: []storage.LevelConfig{
					{Name: storage.LevelLocal, Dir: fmt.Sprintf("/local%d", r), Keep: 1},
					{Name: storage.LevelGlobal, Dir: "/global", Keep: 1, CompressAlways: true},
				}})
		if err != nil {
			return w, err
		}
		w.Stores = append(w.Stores, s)
		if r == 0 {
			common, own, err := s.Overview(context.Background())
			if err != nil {
				return w, err
			}
			told = &storage.Overview{Common: common, Own: own(1)}
		}
	}
	return w, nil
}

// takeTogether takes an epoch as coordinated does: with votes at each level, global by packs,
// and the manifest there by rank 0.
func takeTogether(w *jobtest.World, e storage.Epoch, done func(e storage.Epoch)) error {
	ctx := context.Background()
	infos, err := w.Stores.InTurn(func(s *storage.Store, r int) (storage.ShardInfo, error) {
		return s.Put(ctx, e, storage.LevelLocal, jobtest.SmallSections(r, e))
	})
	if err == nil {
		err = w.Stores.Commit(e, storage.LevelLocal, infos)
	}
	if err == nil {
		done(e)
		err = agreeAndPrune(w, e, storage.LevelLocal, w.Stores)
	}
	if err != nil {
		return err
	}
	infos = nil
	for r, s := range w.Stores { // each a node of its own
		p, err := s.NewPart(ctx, e, storage.LevelLocal, storage.LevelGlobal, jobtest.SmallSections(r, e))
		if err != nil {
			return err
		}
		defer p.Close()
		n := storage.NodePack{Epoch: e, From: storage.LevelLocal, To: storage.LevelGlobal, Ranks: []int{r},
			Sizes: [][]byte{p.Size()}}
		if _, err := p.Write(ctx, n); err != nil {
			return err
		}
		part, err := p.Seal(ctx, n)
		if err != nil {
			return err
		}
		infos = append(infos, part...)
	}
	if err := w.Stores[0].Commit(ctx, e, storage.LevelGlobal, infos); err != nil {
		return err
	}
	return agreeAndPrune(w, e, storage.LevelGlobal, w.Stores[:1])
}

// agreeAndPrune is what follows a vote that all have said yes to; voters have told what they
// have.
func agreeAndPrune(w *jobtest.World, e storage.Epoch, level string, voters []*storage.Store) error {
	var all []storage.Epoch
	for i, s := range voters {
		have, err := s.Present(context.Background(), level)
		if err != nil {
			return err
		}
		if i == 0 {
			all = have
		}
		all = slices.DeleteFunc(slices.Clone(all), func(e storage.Epoch) bool { return !slices.Contains(have, e) })
	}
	for _, s := range w.Stores {
		if err := errors.Join(s.Committed(e, level), s.Agree(level, all)); err != nil {
			return err
		}
		if _, err := s.Prune(context.Background()); err != nil {
			return err
		}
	}
	return nil
}

// TestCrashTogether goes down at every operation of a job whose rank 0 looks after the shared
// directory: its look at Open, its prune, and all that the other rank leaves to it. What was
// committed is found again, by whichever rank looks then.
func TestCrashTogether(t *testing.T) {
	job := func(f *crashfs.FS) (sure storage.Epoch, err error) {
		w, err := openTogether(f)
		defer w.Stop()
		for e := storage.Epoch(1); err == nil && e <= 3; e++ {
			err = takeTogether(w, e, func(e storage.Epoch) { sure = e })
		}
		return sure, err
	}
	whole := jobtest.NewWorldFS()
	if _, err := job(whole); err != nil {
		t.Fatal(err)
	}
	for at := range whole.Ops() {
		if testing.Short() && at%23 != 0 {
			continue
		}
		f := jobtest.NewWorldFS()
		f.SetRule(func(op crashfs.Op) error {
			if op.N == at {
				return crashfs.ErrCrashed
			}
			return nil
		})
		sure, err := job(f)
		if err != nil && !errors.Is(err, crashfs.ErrCrashed) {
			t.Fatalf("op %d: %v", at, err)
		}
		for mode := range 3 {
			afterCrashTogether(t, f.Crash(crashfs.Survival(mode), uint64(at)), at, sure)
		}
	}
}

func afterCrashTogether(t *testing.T, f *crashfs.FS, at int, sure storage.Epoch) {
	t.Helper()
	w, err := openTogether(f)
	defer w.Stop()
	if err != nil {
		t.Fatalf("op %d: open: %v\n%s", at, err, f)
	}
	if err := w.WholeEpochs(); err != nil {
		t.Fatalf("op %d: %v\n%s", at, err, f)
	}
	newest, err := w.Stores.Newest()
	if err != nil || newest < sure {
		t.Fatalf("op %d: newest is %d, %v, want %d\n%s", at, newest, err, sure, f)
	}
	if newest > 0 {
		if err := w.Check(newest); err != nil {
			t.Fatalf("op %d: restore %d: %v", at, newest, err)
		}
	}
	next := storage.Epoch(0)
	for _, s := range w.Stores {
		h, err := s.Highest(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		next = max(next, h+1)
	}
	if err := takeTogether(w, next, func(storage.Epoch) {}); err != nil {
		t.Fatalf("op %d: continuing with %d: %v", at, next, err)
	}
	// What the crash left is cleared away, also of rank 1, which does not look.
	list, err := f.ReadDir("/global")
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range list {
		if strings.HasSuffix(x.Name, format.TempSuffix) {
			t.Fatalf("op %d: %s is left\n%s", at, x.Name, f)
		}
	}
	epochs, err := w.At(0, 1).Epochs()
	if err != nil || len(epochs) == 0 || epochs[0] != next {
		t.Fatalf("op %d: global has %v, %v", at, epochs, err)
	}
}

// TestToldRestores: a rank that gets the overview restores from the shared directory without reading a
// manifest, even an epoch that refers to earlier ones.
func TestToldRestores(t *testing.T) {
	f := jobtest.NewWorldFS()
	w, err := openTogether(f)
	if err != nil {
		t.Fatal(err)
	}
	for e := storage.Epoch(1); e <= 2; e++ { // "slow" stays, so 2 refers to 1
		if err := takeTogether(w, e, func(storage.Epoch) {}); err != nil {
			t.Fatal(err)
		}
	}
	w.Stop()
	f.RemoveAll("/local1")
	f.MkdirAll("/local1")
	w, err = openTogether(f)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	if h, err := w.Stores[1].Highest(t.Context()); err != nil || h != 2 {
		t.Errorf("got highest %d, %v", h, err)
	}
	f.SetRule(func(op crashfs.Op) error {
		if op.Name == "/global/epoch-0000000002/manifest" || op.Name == "/global" {
			return fmt.Errorf("rank 1 was told")
		}
		return nil
	})
	got, err := jobtest.FetchAll(t.Context(), w.Stores[1], 2)
	if err != nil || string(got["slow"]) != string(jobtest.SmallSections(1, 2)[1].Source.(storage.Bytes)) {
		t.Errorf("got %d bytes of slow, %v", len(got["slow"]), err)
	}
	list, _, err := w.Stores[1].Candidates(t.Context())
	if err != nil || len(list) == 0 || list[0].Epoch != 2 || !slices.Contains(list[0].Levels, storage.LevelGlobal) {
		t.Errorf("got candidates %+v, %v", list, err)
	}
	w.Stores[1].Choose(2, [16]byte{1})
	if _, err := w.Stores[1].Fetch(t.Context(), 2); err == nil {
		t.Error("an epoch with other contents than what was chosen was opened")
	}
}

// TestToldIsChecked: what is none of Overview's making is refused.
func TestToldIsChecked(t *testing.T) {
	for _, told := range []*storage.Overview{{Common: []byte("x")}, {Own: []byte("xyz")},
		{Common: []byte{0, 0, 255, 255, 255, 255}}} {
		_, err := storage.Open(vfs.With(t.Context(), jobtest.NewWorldFS()),
			storage.Options{Job: "j", Rank: 1, Size: 2, Collective: true, Overview: told,
				Levels: []storage.LevelConfig{{Name: storage.LevelGlobal, Dir: "/global"}}})
		var opt *storage.OptionError
		if !errors.As(err, &opt) {
			t.Errorf("%v: got %v, want an OptionError", told, err)
		}
	}
}

// TestViewsDiffer: a rank other than 0 never removes anything from the shared directory,
// whatever it believes; rank 0 removes only epochs that were agreed on, whatever another rank
// reports.
func TestViewsDiffer(t *testing.T) {
	f := jobtest.NewWorldFS()
	w, err := openTogether(f)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	for e := storage.Epoch(1); e <= 3; e++ {
		if err := takeTogether(w, e, func(storage.Epoch) {}); err != nil {
			t.Fatal(err)
		}
	}
	before := f.String()
	// Rank 1 believes that nothing was agreed on, then that 9 is the newest.
	for _, all := range [][]storage.Epoch{{}, {9}} {
		if err := w.Stores[1].Agree(storage.LevelGlobal, all); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Stores[1].Prune(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if after := f.String(); globalOf(before) != globalOf(after) {
		t.Errorf("rank 1 changed the shared directory:\n%s\nbefore:\n%s", after, before)
	}
	// The vote on epoch 4 fails after rank 0 has written the manifest: 3 stays.
	infos := manifestInfos(t, w, 3)
	if err := w.Stores[0].Commit(t.Context(), 4, storage.LevelGlobal, infos); err != nil {
		t.Fatal(err)
	}
	for _, s := range w.Stores {
		if err := s.Withdraw(4, storage.LevelGlobal); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Prune(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if have, err := level.HasManifest(w.At(0, 1), 3); err != nil || !have {
		t.Errorf("epoch 3, the newest that all agreed on, is gone: %v", err)
	}
}

// manifestInfos returns what the manifest of an epoch at global says, as if of shards put again.
func manifestInfos(t *testing.T, w *jobtest.World, e storage.Epoch) []storage.ShardInfo {
	t.Helper()
	m, err := w.At(0, 1).ReadManifest(e)
	if err != nil {
		t.Fatal(err)
	}
	for i := range m.Shards {
		m.Shards[i].Origins = nil
	}
	return m.Shards
}

func globalOf(tree string) string {
	var out []string
	for line := range strings.Lines(tree) {
		if strings.HasPrefix(line, "/global/") {
			out = append(out, line)
		}
	}
	return strings.Join(out, "")
}

package catalog_test

import (
	"context"
	"errors"
	"testing"

	"github.com/holdfast-hpc/holdfast/storage"
	"github.com/holdfast-hpc/holdfast/storage/internal/format"
	"github.com/holdfast-hpc/holdfast/storage/storagetest"
	"github.com/holdfast-hpc/holdfast/storage/storagetest/jobtest"
	"github.com/holdfast-hpc/holdfast/test/crashfs"
)

// twoEpochs returns a disk with the committed epochs 1 and 2.
func twoEpochs(t *testing.T) *crashfs.FS {
	t.Helper()
	w, err := jobtest.OpenWorld(jobtest.NewWorldFS())
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	for e := storage.Epoch(1); e <= 2; e++ {
		if err := w.TakeEpoch(e, func(storage.Epoch) {}); err != nil {
			t.Fatal(err)
		}
	}
	return w.FS
}

// TestCrashOfRestore goes down at every operation of a start that restores: open,
// look around, note the restore, read, note that it survived. A restart finds what was
// there, and one death makes no epoch one to skip.
func TestCrashOfRestore(t *testing.T) {
	master := twoEpochs(t)
	prepare := func() *crashfs.FS { return master.Crash(crashfs.KeepAll, 0) }
	restore := func(f *crashfs.FS) error {
		w, err := jobtest.OpenWorld(f)
		defer w.Stop()
		if err != nil {
			return err
		}
		e, err := w.Stores.Newest()
		if err == nil {
			var durable func() error
			durable, err = w.Stores[0].NoteRestore(context.Background(), e)
			err = errors.Join(err, durable())
		}
		if err == nil {
			err = w.Check(e)
		}
		if err == nil {
			err = w.Stores[0].NoteSurvival(context.Background())
		}
		return err
	}
	n := jobtest.CrashEverywhere(t, prepare, restore, func(f *crashfs.FS, at int) {
		w, err := jobtest.OpenWorld(f)
		if err != nil {
			t.Fatalf("op %d: open: %v", at, err)
		}
		defer w.Stop()
		if e, err := w.Stores.Newest(); err != nil || e != 2 {
			t.Fatalf("op %d: newest is %d, %v, want 2\n%s", at, e, err, f)
		}
		if err := w.Check(2); err != nil {
			t.Fatalf("op %d: %v", at, err)
		}
	})
	if n < 30 {
		t.Errorf("only %d operations", n)
	}
}

// TestTrialOutlives: the death of a process that has begun to restore counts at
// once, and that of the machine when the note is said to be durable; and a death
// that counted is not forgotten when the machine goes down while the next one is
// noted.
func TestTrialOutlives(t *testing.T) {
	begin := func(f *crashfs.FS) (durable func() error, close func()) {
		w, err := jobtest.OpenWorld(f)
		if err != nil {
			t.Fatal(err)
		}
		durable, err = w.Stores[0].NoteRestore(t.Context(), 2)
		if err != nil && !errors.Is(err, crashfs.ErrCrashed) {
			t.Fatal(err)
		}
		return durable, w.Stop
	}
	deaths := func(f *crashfs.FS) int {
		w, err := jobtest.OpenWorld(f)
		if err != nil {
			t.Fatal(err)
		}
		defer w.Stop()
		list, _, err := w.Stores[0].Candidates(t.Context())
		if err != nil || len(list) == 0 || list[0].Epoch != 2 {
			t.Fatalf("got %+v, %v", list, err)
		}
		return list[0].Deaths
	}
	f := twoEpochs(t)
	for count := 1; count <= 2; count++ {
		_, end := begin(f)
		f = f.Crash(crashfs.KeepAll, 0)
		end()
		if got := deaths(f); got != count {
			t.Errorf("the process died after the return of NoteRestore %d: %d deaths counted", count, got)
		}
	}
	f = twoEpochs(t)
	for count := 1; count <= 2; count++ {
		durable, end := begin(f)
		if err := durable(); err != nil {
			t.Fatal(err)
		}
		f = f.Crash(crashfs.LoseAll, 0)
		end()
		if got := deaths(f); got != count {
			t.Errorf("the machine went down when note %d was durable: %d deaths counted", count, got)
		}
	}
	once := func() *crashfs.FS {
		f := twoEpochs(t)
		durable, end := begin(f)
		defer end()
		if err := durable(); err != nil {
			t.Fatal(err)
		}
		return f
	}
	again := func(f *crashfs.FS) error {
		w, err := jobtest.OpenWorld(f)
		if err != nil {
			return err
		}
		defer w.Stop()
		durable, err := w.Stores[0].NoteRestore(t.Context(), 2)
		return errors.Join(err, durable())
	}
	n := jobtest.CrashEverywhere(t, once, again, func(f *crashfs.FS, at int) {
		if got := deaths(f); got < 1 {
			t.Errorf("op %d: the first death is forgotten", at)
		}
	})
	if n < 10 {
		t.Errorf("only %d operations", n)
	}
}

// TestDamagedNoteIsNoBeginning: the epochs of a job are gone and the notes that tell
// of them are damaged. Then the job counts as begun.
func TestDamagedNoteIsNoBeginning(t *testing.T) {
	f := jobtest.NewWorldFS()
	open := func() *storage.Store {
		w, err := jobtest.OpenWorld(f)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(w.Stop)
		return w.Stores[0]
	}
	s := open()
	if b, err := s.History(t.Context()); err != nil || b.Epoch != 0 || b.NoRecord {
		t.Errorf("a new job: got %+v, %v", b, err)
	}
	if err := s.RecordHistory(t.Context(), 5, storage.LevelLocal); err != nil {
		t.Fatal(err)
	}
	for i, file := range []string{"/local0/" + format.HistoryName, "/global/" + format.HistoryName} {
		if err := f.Flip(file, 20, 1); err != nil {
			t.Fatal(err)
		}
		b, err := s.History(t.Context())
		var where *storage.DirError
		if told := i == 0; told && (err != nil || b.Epoch != 5) || !told &&
			(!errors.As(err, &where) || !errors.Is(err, storage.ErrCorrupt)) {
			t.Errorf("%d notes are damaged: got %+v, %v", i+1, b, err)
		}
	}
	f.MkdirAll("/local0/" + format.EpochName(4))
	if b, err := s.History(t.Context()); err != nil || !b.NoRecord {
		t.Errorf("with the directory of an epoch: got %+v, %v", b, err)
	}
}

func TestSkipRule(t *testing.T) {
	f := jobtest.NewWorldFS()
	for death := range storagetest.MaxDeaths + 1 {
		w, err := jobtest.OpenWorld(f)
		if err != nil {
			t.Fatal(err)
		}
		if death == 0 {
			for e := storage.Epoch(1); e <= 2; e++ {
				if err := w.TakeEpoch(e, func(storage.Epoch) {}); err != nil {
					t.Fatal(err)
				}
			}
		}
		want := storage.Epoch(2)
		if death == storagetest.MaxDeaths {
			want = 1 // kept because epoch 2 refers to it
		}
		e, err := w.Stores.Newest()
		if err != nil || e != want {
			t.Fatalf("after %d deaths: got epoch %d, %v, want %d", death, e, err, want)
		}
		if e != 0 {
			if durable, err := w.Stores[0].NoteRestore(t.Context(), e); err != nil || durable() != nil {
				t.Fatal(err)
			}
		}
		w.Stop() // the program dies
	}
	w, err := jobtest.OpenWorld(f)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	if err := w.Stores[0].NoteSurvival(t.Context()); err != nil {
		t.Fatal(err)
	}
	if e, err := w.Stores.Newest(); err != nil || e != 2 {
		t.Errorf("after a survival: got epoch %d, %v, want 2", e, err)
	}
}

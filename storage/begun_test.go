package storage_test

import (
	"errors"
	"testing"

	"github.com/holdfast-hpc/holdfast/storage"
	"github.com/holdfast-hpc/holdfast/storage/internal/format"
	"github.com/holdfast-hpc/holdfast/storage/internal/jobtest"
)

// TestDamagedNoteIsNoBeginning: the epochs of a job are gone and the notes that tell
// of them are damaged. Nobody can say then that it has not begun.
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
	if b, err := s.Begun(t.Context()); err != nil || b.Epoch != 0 || b.NoRecord {
		t.Errorf("a new job: got %+v, %v", b, err)
	}
	if err := s.NoteBegun(t.Context(), 5, storage.LevelLocal); err != nil {
		t.Fatal(err)
	}
	for i, file := range []string{"/local0/" + format.BegunName, "/global/" + format.BegunName} {
		if err := f.Flip(file, 20, 1); err != nil {
			t.Fatal(err)
		}
		b, err := s.Begun(t.Context())
		var where *storage.DirError
		if told := i == 0; told && (err != nil || b.Epoch != 5) || !told &&
			(!errors.As(err, &where) || !errors.Is(err, storage.ErrCorrupt)) {
			t.Errorf("%d notes are damaged: got %+v, %v", i+1, b, err)
		}
	}
	f.MkdirAll("/local0/" + format.EpochName(4))
	if b, err := s.Begun(t.Context()); err != nil || !b.NoRecord {
		t.Errorf("with the directory of an epoch: got %+v, %v", b, err)
	}
}

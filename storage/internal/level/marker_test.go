package level_test

import (
	"errors"
	"testing"

	"github.com/holdfast-hpc/holdfast/internal/crashfs"
	"github.com/holdfast-hpc/holdfast/internal/vfs"
	"github.com/holdfast-hpc/holdfast/storage"
	"github.com/holdfast-hpc/holdfast/storage/internal/format"
	"github.com/holdfast-hpc/holdfast/storage/internal/level"
	"github.com/holdfast-hpc/holdfast/storage/storagetest/jobtest"
)

// TestDamagedMarkerIsReplaced: a damaged marker beside epochs of the job does not keep it out.
func TestDamagedMarkerIsReplaced(t *testing.T) {
	for _, size := range []int{1, 2} {
		f := crashfs.New()
		f.MkdirAll("/l")
		ctx := vfs.With(t.Context(), f)
		opt := storage.Options{Job: "j", Size: 1, Levels: []storage.LevelConfig{{Name: storage.LevelLocal, Dir: "/l"}}}
		s, err := storage.Open(ctx, opt)
		if err != nil {
			t.Fatal(err)
		}
		jobtest.Take(t, []*storage.Store{s}, 1, storage.LevelLocal, func(r int) []storage.Section {
			return jobtest.SmallSections(r, 1)
		})
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		if err := f.Flip("/l/"+format.MarkerName, 20, 1); err != nil {
			t.Fatal(err)
		}
		opt.Size = size
		s, err = storage.Open(ctx, opt)
		if size != 1 {
			if !errors.Is(err, storage.ErrCorrupt) {
				t.Errorf("the epochs are of another job: got %v, want ErrCorrupt", err)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		if m, err := level.NewDir(f, storage.LevelLocal, "/l", 0).ReadMarker(); err != nil || m.Job != "j" {
			t.Errorf("marker %v, %v", m, err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}

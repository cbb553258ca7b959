package storage_test

import (
	"testing"

	"github.com/holdfast-hpc/holdfast/storage"
	"github.com/holdfast-hpc/holdfast/storage/internal/jobtest"
)

// TestAdoptElsewhere: a rank adopts the epoch that lies on its own node. One that was placed on another node reads the
// same epoch from there and does not, and with parity nobody does: which epochs have rows is not known.
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
			if _, err := w.RestoreAs(4, stepping); err != nil {
				t.Fatal(err)
			}
		})
	}
}

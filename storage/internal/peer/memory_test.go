package peer_test

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/holdfast-hpc/holdfast/storage"
	"github.com/holdfast-hpc/holdfast/storage/storagetest/jobtest"
	"github.com/holdfast-hpc/holdfast/test/crashfs"
)

// rowsOf reads the parity rows of an epoch, without the headers, which have the
// time in them.
func rowsOf(t *testing.T, f *crashfs.FS, nodes []string, e int) map[string][]byte {
	t.Helper()
	rows := map[string][]byte{}
	for _, n := range nodes {
		dir := fmt.Sprintf("/%s/parity/epoch-%010d", n, e)
		list, err := f.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, entry := range list {
			if !strings.Contains(entry.Name, ".parity-") {
				continue
			}
			file, err := f.Open(dir + "/" + entry.Name)
			if err != nil {
				t.Fatal(err)
			}
			n, err := file.Size()
			if err != nil {
				t.Fatal(err)
			}
			b := make([]byte, n)
			if _, err := file.ReadAt(b, 0); err != nil {
				t.Fatal(err)
			}
			rows[dir+"/"+entry.Name] = b[4096:]
		}
	}
	return rows
}

// TestLend computes parity from memory, and from memory that is taken back in
// between, and compares with what the disk gives.
func TestLend(t *testing.T) {
	for _, how := range []string{"whole", "taken back", "a part", "other bytes"} {
		t.Run(how, func(t *testing.T) {
			nodes := jobtest.NodeNames(4)
			w := jobtest.NewCluster(t, nodes...)
			w.Start(jobtest.Local, storage.LevelConfig{Name: storage.LevelParity, Data: 2, Parity: 2})
			w.Take(1, storage.LevelLocal, storage.LevelParity) // chunks of epoch 2 refer to it
			w.Take(2, storage.LevelLocal)
			var releases []func()
			for r, s := range w.Stores {
				secs := jobtest.ClusterSections(r, 2)
				bytes0 := secs[0].Source.(storage.Bytes)
				switch how {
				case "a part":
					secs[0].Source = bytes.NewReader(bytes0)
				case "other bytes": // to see that it is memory that is read
					bytes0[7]++
				}
				release, err := s.ServeFromMemory(t.Context(), 2, storage.LevelLocal, secs)
				if err != nil {
					t.Fatal(err)
				}
				if how == "taken back" && r%2 == 0 {
					release()
					clear(bytes0)
				}
				releases = append(releases, release)
			}
			flush := func() map[string][]byte {
				t.Helper()
				if _, err := w.Stores.Each(func(s *storage.Store, r int) (storage.ShardInfo, error) {
					return s.Flush(context.Background(), 2, storage.LevelLocal, storage.LevelParity, nil)
				}); err != nil {
					t.Fatal(err)
				}
				return rowsOf(t, w.FS, nodes, 2)
			}
			got := flush()
			for r, s := range w.Stores {
				releases[r]()
				if err := s.Discard(t.Context(), 2, storage.LevelParity); err != nil {
					t.Fatal(err)
				}
			}
			want := flush()
			if len(got) != 8 || len(want) != 8 {
				t.Fatalf("%d and %d rows, want two of each rank", len(got), len(want))
			}
			for name, row := range got {
				if bytes.Equal(row, want[name]) == (how == "other bytes") {
					t.Errorf("row %s agrees with what the disk gives: %v", name, how == "other bytes")
				}
			}
		})
	}
}

// TestLendRefuses other bytes than those that were put, and unread levels.
func TestLendRefuses(t *testing.T) {
	w := jobtest.NewCluster(t, jobtest.NodeNames(3)...)
	w.Start(jobtest.Local, storage.LevelConfig{Name: storage.LevelGlobal})
	w.Take(1, storage.LevelLocal)
	s := w.Stores[0]
	if _, err := s.ServeFromMemory(t.Context(), 1, storage.LevelGlobal, jobtest.ClusterSections(0, 1)); err == nil {
		t.Error("lent to the global level")
	}
	if _, err := s.ServeFromMemory(t.Context(), 2, storage.LevelLocal, jobtest.ClusterSections(0, 2)); err == nil {
		t.Error("lent an epoch that is not there")
	}
	secs := jobtest.ClusterSections(0, 1)
	secs[0].Size /= 10
	if _, err := s.ServeFromMemory(t.Context(), 1, storage.LevelLocal, secs); err == nil {
		t.Error("lent a section of another length")
	}
}

package storage_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-hpc/holdfast/storage"
	"github.com/holdfast-hpc/holdfast/storage/checkpoints"
)

// TestFlushComputesWhatIsLost flushes the newest epoch of a dead job, from which a node has gone, from the rest and its
// parity, at several numbers of shards at once.
func TestFlushComputesWhatIsLost(t *testing.T) {
	for _, jobs := range []int{1, 6} {
		s := buildSite(t, filepath.Join(fastDir(t), "site"), storage.LevelParity)
		if err := os.RemoveAll(s.dir(storage.LevelLocal, "n1")); err != nil {
			t.Fatal(err)
		}
		global := s.dir(storage.LevelGlobal, "")
		var local, all []string
		for _, n := range []string{"n0", "n2"} {
			local = append(local, s.dir(storage.LevelLocal, n))
			all = append(all, s.dir(storage.LevelLocal, n), s.dir(storage.LevelParity, n))
		}
		if e, err := checkpoints.Flush(t.Context(), local, global, jobs); e != 0 || !storage.IsDamage(err) ||
			!strings.Contains(err.Error(), "on node n1: give the directories of that node") {
			t.Errorf("without parity: got epoch %d, %v", e, err)
		}
		if e, err := checkpoints.Flush(t.Context(), all, global, jobs); e != siteEpochs || err != nil {
			t.Fatalf("got epoch %d, %v", e, err)
		}
		for _, n := range []string{"n0", "n2"} {
			if err := os.RemoveAll(s.dir(storage.LevelLocal, n)); err != nil {
				t.Fatal(err)
			}
		}
		for _, n := range s.nodes {
			if err := os.MkdirAll(s.dir(storage.LevelLocal, n), 0o700); err != nil {
				t.Fatal(err)
			}
		}
		s.levels = []string{storage.LevelGlobal}
		if e, _, err := s.restore(t.Context()); e != siteEpochs || err != nil || errors.Is(err, errWrongBytes) {
			t.Errorf("restored epoch %d, %v", e, err)
		}
	}
}

package level_test

import (
	"context"
	cryptorand "crypto/rand"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/holdfast-hpc/holdfast/storage"
	"github.com/holdfast-hpc/holdfast/storage/internal/format"
	"github.com/holdfast-hpc/holdfast/storage/internal/level"
	"github.com/holdfast-hpc/holdfast/storage/storagetest"
	"github.com/holdfast-hpc/holdfast/storage/storagetest/jobtest"
	"github.com/holdfast-hpc/holdfast/test/fakes3"
)

// tested is a level for the suite, and its needs.
type tested struct {
	Config storage.LevelConfig // Dir is chosen by runSuite
	Nodes  []string            // node of each rank
	// Shared: all ranks have one directory. Otherwise each node has its own.
	Shared bool
	// Store, if set, makes an object store for the test, which all ranks have, and returns its URL.
	Store func(t *testing.T) string
}

// runSuite checks the promises of every level. An epoch exists there when it is committed and not before. It is
// restored bit for bit from only that level. Committed epochs are not replaced. Discarded and pruned ones are gone, and
// nothing else is. A cancelled context ends an operation and leaves nothing.
func runSuite(t *testing.T, l tested) {
	for name, test := range map[string]func(*suite){
		"commit makes it exist": (*suite).commit,
		"restore alone":         (*suite).restoreAlone,
		"committed is final":    (*suite).final,
		"discard":               (*suite).discard,
		"prune":                 (*suite).prune,
		"kept epochs stay":      (*suite).kept,
		"cancel":                (*suite).cancel,
		"odd sizes":             (*suite).oddSizes,
	} {
		t.Run(name, func(t *testing.T) {
			s := &suite{T: t, level: l, dir: t.TempDir(), sections: ordinary}
			if l.Store != nil {
				s.url = l.Store(t)
			}
			s.open()
			test(s)
		})
	}
}

// suite is a job of several ranks with the level under test, and with local
// before it where that is another.
type suite struct {
	*testing.T
	level    tested
	dir      string
	url      string // of the level under test, if it is an object store
	stores   storagetest.Stores
	sections storagetest.SectionsFor
}

func (s *suite) dirOf(level, node string) string {
	if level == s.level.Config.Name && s.url != "" {
		return s.url
	}
	if level == s.level.Config.Name && s.level.Shared {
		return filepath.Join(s.dir, level)
	}
	return filepath.Join(s.dir, node, level)
}

func (s *suite) open() {
	s.Helper()
	net := storagetest.NewLoopback(len(s.level.Nodes))
	for r, node := range s.level.Nodes {
		configs := []storage.LevelConfig{s.level.Config}
		if s.level.Config.Name != storage.LevelLocal {
			configs = slices.Insert(configs, 0, storage.LevelConfig{Name: storage.LevelLocal,
				Keep: s.level.Config.Keep})
		}
		for i := range configs {
			configs[i].Dir = s.dirOf(configs[i].Name, node)
			if configs[i].Dir == s.url {
				continue
			}
			if err := os.MkdirAll(configs[i].Dir, 0o755); err != nil {
				s.Fatal(err)
			}
		}
		st, err := storage.Open(s.Context(), storage.Options{Job: "suite", Rank: r, Size: len(s.level.Nodes),
			Node: node, Nodes: s.level.Nodes, Transport: net.Rank(r), Levels: configs})
		if err != nil {
			s.Fatal(err)
		}
		s.stores = append(s.stores, st)
		s.Cleanup(func() { st.Close() })
	}
}

func ordinary(rank int, e storage.Epoch) []storage.Section {
	b := make([]byte, 700_000+rank*1000)
	rand.NewChaCha8([32]byte{byte(rank), byte(e)}).Read(b)
	return []storage.Section{storagetest.Section("data", b)}
}

// bring writes an epoch to the level, committing it at local on the way, and
// leaves it uncommitted there.
func (s *suite) bring(ctx context.Context, e storage.Epoch) ([]storage.ShardInfo, error) {
	infos, err := s.stores.Each(func(st *storage.Store, r int) (storage.ShardInfo, error) {
		return st.Put(ctx, e, storage.LevelLocal, s.sections(r, e))
	})
	if err != nil || s.level.Config.Name == storage.LevelLocal {
		return infos, err
	}
	if err := s.stores.Commit(e, storage.LevelLocal, infos); err != nil {
		return nil, err
	}
	return s.stores.Each(func(st *storage.Store, r int) (storage.ShardInfo, error) {
		return st.Flush(ctx, e, storage.LevelLocal, s.level.Config.Name, nil)
	})
}

// take brings and commits.
func (s *suite) take(e storage.Epoch) []storage.ShardInfo {
	s.Helper()
	infos, err := s.bring(s.Context(), e)
	if err == nil {
		err = s.stores.Commit(e, s.level.Config.Name, infos)
	}
	if err == nil {
		err = s.stores.Learn(s.Context())
	}
	if err != nil {
		s.Fatal(err)
	}
	return infos
}

// offers reports whether every rank is offered e from the level under test.
func (s *suite) offers(e storage.Epoch) bool {
	s.Helper()
	for _, st := range s.stores {
		list, _, err := st.Candidates(s.Context())
		if err != nil {
			s.Fatal(err)
		}
		if !slices.ContainsFunc(list, func(c storage.Candidate) bool {
			return c.Epoch == e && slices.Contains(c.Levels, s.level.Config.Name)
		}) {
			return false
		}
	}
	return true
}

// restore compares every rank's bytes.
func (s *suite) restore(e storage.Epoch) error {
	_, err := s.stores.Restore(e, s.sections)
	return err
}

// realStore names the prefix of an object store, s3://bucket/prefix, that TestRealStore runs on; the usual variables
// say where it is.
const realStore = "HOLDFAST_TEST_S3"

// TestRealStore runs the suite on a store that is no fake. What it makes stays there.
func TestRealStore(t *testing.T) {
	url := os.Getenv(realStore)
	if url == "" {
		t.Skip(realStore + " is not set")
	}
	runSuite(t, tested{Config: storage.LevelConfig{Name: storage.LevelGlobal},
		Nodes:  jobtest.NodeNames(2),
		Shared: true, Store: func(*testing.T) string { return url + "/" + cryptorand.Text() }})
}

func TestLevels(t *testing.T) {
	for name, l := range map[string]tested{
		"local":         {Config: jobtest.Local, Nodes: jobtest.NodeNames(2)},
		"local, shared": {Config: jobtest.Local, Nodes: []string{"n", "n"}},
		"partner":       {Config: jobtest.Partner, Nodes: jobtest.NodeNames(2)},
		"partner, 2 of 3": {Config: storage.LevelConfig{Name: storage.LevelPartner, Copies: 2},
			Nodes: jobtest.NodeNames(3)},
		"parity 2+1": {Config: storage.LevelConfig{Name: storage.LevelParity, Data: 2, Parity: 1},
			Nodes: jobtest.NodeNames(3)},
		"global": {Config: storage.LevelConfig{Name: storage.LevelGlobal}, Nodes: jobtest.NodeNames(2), Shared: true},
		"global, compress": {Config: storage.LevelConfig{Name: storage.LevelGlobal, CompressAlways: true},
			Nodes: jobtest.NodeNames(2), Shared: true},
		"global, object store": {Config: storage.LevelConfig{Name: storage.LevelGlobal}, Nodes: jobtest.NodeNames(2),
			Shared: true, Store: func(t *testing.T) string { return fakes3.Start(t, &fakes3.Server{Page: 3}) }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			runSuite(t, l)
		})
	}
}

func TestTraitsSayWhatSurvivesANode(t *testing.T) {
	for name, want := range map[string]bool{
		format.LevelLocal: false, format.LevelPartner: true, format.LevelParity: true, format.LevelGlobal: true,
		"unknown": false,
	} {
		if got := level.TraitsOf(name).SurvivesNode(); got != want {
			t.Errorf("level %s: got %v, want %v", name, got, want)
		}
	}
}

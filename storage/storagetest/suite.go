package storagetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/holdfast-hpc/holdfast/storage"
)

// Level has the level that Run tests, and its needs.
type Level struct {
	Config storage.LevelConfig // Dir is chosen by Run
	Nodes  []string            // node of each rank
	// Shared: all ranks have one directory. Otherwise each node has its own.
	Shared bool
	// Store, if set, makes an object store for the test, which all ranks have, and returns its URL.
	Store func(t *testing.T) string
}

// Run checks the promises of every level. An epoch exists there when it is committed and not before. It is restored bit
// for bit from only that level. Committed epochs are not replaced. Discarded and pruned ones are gone, and nothing else
// is. A cancelled context ends an operation and leaves nothing.
func Run(t *testing.T, l Level) {
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
	level    Level
	dir      string
	url      string // of the level under test, if it is an object store
	stores   []*storage.Store
	sections func(rank int, e storage.Epoch) []storage.Section
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
	net := NewLoopback(len(s.level.Nodes))
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
	b := make(storage.Bytes, 700_000+rank*1000)
	rand.NewChaCha8([32]byte{byte(rank), byte(e)}).Read(b)
	return []storage.Section{{Name: "data", Size: int64(len(b)), Source: b}}
}

// each calls do for every rank at once.
func (s *suite) each(do func(st *storage.Store, r int) (storage.ShardInfo, error)) ([]storage.ShardInfo, error) {
	infos, errs := make([]storage.ShardInfo, len(s.stores)), make([]error, len(s.stores))
	var wg sync.WaitGroup
	for r, st := range s.stores {
		wg.Go(func() { infos[r], errs[r] = do(st, r) })
	}
	wg.Wait()
	return infos, errors.Join(errs...)
}

// bring writes an epoch to the level, committing it at local on the way, and
// leaves it uncommitted there.
func (s *suite) bring(ctx context.Context, e storage.Epoch) ([]storage.ShardInfo, error) {
	infos, err := s.each(func(st *storage.Store, r int) (storage.ShardInfo, error) {
		return st.Put(ctx, e, storage.LevelLocal, s.sections(r, e))
	})
	if err != nil || s.level.Config.Name == storage.LevelLocal {
		return infos, err
	}
	if err := s.commitAt(e, storage.LevelLocal, infos); err != nil {
		return nil, err
	}
	return s.each(func(st *storage.Store, r int) (storage.ShardInfo, error) {
		return st.Flush(ctx, e, storage.LevelLocal, s.level.Config.Name, nil)
	})
}

func (s *suite) commitAt(e storage.Epoch, level string, infos []storage.ShardInfo) error {
	_, err := s.each(func(st *storage.Store, r int) (storage.ShardInfo, error) {
		return infos[r], st.Commit(context.Background(), e, level, infos)
	})
	return err
}

// take brings and commits.
func (s *suite) take(e storage.Epoch) []storage.ShardInfo {
	s.Helper()
	infos, err := s.bring(s.Context(), e)
	if err == nil {
		err = s.commitAt(e, s.level.Config.Name, infos)
	}
	if err == nil {
		err = s.learn()
	}
	if err != nil {
		s.Fatal(err)
	}
	return infos
}

func (s *suite) learn() error {
	for r, st := range s.stores {
		h, err := st.Holdings(s.Context())
		if err != nil {
			return err
		}
		for _, other := range s.stores {
			if err := other.Learn(r, h); err != nil {
				return err
			}
		}
	}
	return nil
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
	_, err := s.each(func(st *storage.Store, r int) (info storage.ShardInfo, err error) {
		sh, err := st.Fetch(context.Background(), e)
		if err != nil {
			return info, err
		}
		defer sh.Close()
		for _, want := range s.sections(r, e) {
			got := make([]byte, want.Size)
			if err := sh.ReadAt(context.Background(), want.Name, got, 0); err != nil {
				return info, err
			}
			if !bytes.Equal(got, want.Source.(storage.Bytes)) {
				return info, fmt.Errorf("rank %d: section %q of epoch %d differs", r, want.Name, e)
			}
		}
		return info, nil
	})
	return err
}

package storagetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/holdfast-hpc/holdfast/storage"
)

// Stores are those of a job's ranks.
type Stores []*storage.Store

// Each calls do for every rank at once and collects the shards.
func (s Stores) Each(do func(st *storage.Store, r int) (storage.ShardInfo, error)) ([]storage.ShardInfo, error) {
	infos, errs := make([]storage.ShardInfo, len(s)), make([]error, len(s))
	var wg sync.WaitGroup
	for r, st := range s {
		wg.Go(func() { infos[r], errs[r] = do(st, r) })
	}
	wg.Wait()
	return infos, errors.Join(errs...)
}

// InTurn calls do for one rank after the other and collects the shards.
func (s Stores) InTurn(do func(st *storage.Store, r int) (storage.ShardInfo, error)) ([]storage.ShardInfo, error) {
	infos := make([]storage.ShardInfo, len(s))
	for r, st := range s {
		var err error
		if infos[r], err = do(st, r); err != nil {
			return nil, err
		}
	}
	return infos, nil
}

// Commit commits an epoch on one rank after the other.
func (s Stores) Commit(e storage.Epoch, level string, infos []storage.ShardInfo) error {
	for _, st := range s {
		if err := st.Commit(context.Background(), e, level, infos); err != nil {
			return err
		}
	}
	return nil
}

// MaxDeaths is how many deaths the tests put up with, as the callers of a Store do.
const MaxDeaths = 2

// Newest agrees on the newest epoch that all ranks can restore.
func (s Stores) Newest() (storage.Epoch, error) {
	type key struct {
		e  storage.Epoch
		id [16]byte
	}
	count := map[key]int{}
	var best storage.Epoch
	for _, st := range s {
		list, _, err := st.Candidates(context.Background())
		if err != nil {
			return 0, err
		}
		for _, c := range list {
			if c.Deaths >= MaxDeaths {
				continue
			}
			k := key{c.Epoch, c.ID}
			if count[k]++; count[k] == len(s) {
				best = max(best, c.Epoch)
			}
		}
	}
	return best, nil
}

// Learn has each store learn the holdings of the others.
func (s Stores) Learn(ctx context.Context) error {
	for r, st := range s {
		h, err := st.Holdings(ctx)
		if err != nil {
			return err
		}
		for _, other := range s {
			if err := other.Learn(r, h); err != nil {
				return err
			}
		}
	}
	return nil
}

// SectionsFor makes the shard of a rank, of Bytes.
type SectionsFor func(rank int, e storage.Epoch) []storage.Section

// Restore fetches an epoch on all ranks and compares it. It returns the levels from which the ranks had their shards.
func (s Stores) Restore(e storage.Epoch, data SectionsFor) ([]string, error) {
	levels := make([]string, len(s))
	_, err := s.Each(func(st *storage.Store, r int) (info storage.ShardInfo, err error) {
		sh, err := st.Fetch(context.Background(), e)
		if err != nil {
			return info, fmt.Errorf("rank %d: %w", r, err)
		}
		defer sh.Close()
		levels[r] = sh.Level()
		for _, want := range data(r, e) {
			got := make([]byte, want.Size)
			if err := sh.ReadAt(context.Background(), want.Name, got, 0); err != nil {
				return info, err
			}
			if !bytes.Equal(got, want.Source.(storage.Bytes)) {
				return info, fmt.Errorf("rank %d: section %s of epoch %d differs", r, want.Name, e)
			}
		}
		return info, nil
	})
	return levels, err
}

// Section makes a section of bytes.
func Section(name string, b []byte) storage.Section {
	return storage.Section{Name: name, Size: int64(len(b)), Source: storage.Bytes(b)}
}

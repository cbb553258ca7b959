package checkpoints_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/holdfast-hpc/holdfast/storage"
	"github.com/holdfast-hpc/holdfast/storage/checkpoints"
	"github.com/holdfast-hpc/holdfast/storage/storagetest"
)

// site is a job on nodes with real directories, laid out as jobs do.
type site struct {
	base   string
	nodes  []string // of each rank
	levels []string // besides local
	stores storagetest.Stores
}

// siteEpochs is how many epochs a site takes; retention leaves the last two.
const siteEpochs = 4

var siteNodes = []string{"n0", "n0", "n1", "n1", "n2", "n2"}

func (s *site) dir(level, node string) string {
	switch level {
	case storage.LevelLocal:
		return filepath.Join(s.base, node)
	case storage.LevelGlobal:
		return filepath.Join(s.base, "global")
	}
	return filepath.Join(s.base, node, level)
}

// dirs lists all directories of all levels.
func (s *site) dirs() (out []string) {
	for _, l := range append([]string{storage.LevelLocal}, s.levels...) {
		for _, n := range s.nodes {
			if d := s.dir(l, n); !slices.Contains(out, d) {
				out = append(out, d)
			}
		}
	}
	return out
}

// small makes shards part of which stays the same from one epoch to the next.
func small(rank int, e storage.Epoch) []storage.Section {
	part := func(seed uint64, n int) []byte {
		b := make([]byte, n)
		rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8), 7}).Read(b)
		return b
	}
	return []storage.Section{
		storagetest.Section("moves", part(uint64(rank)*64+uint64(e), 9_000+rank*500)),
		storagetest.Section("stays", part(uint64(rank)+9999, 12_000)),
		storagetest.Section("zero", make([]byte, 5000)),
	}
}

// open opens the stores of all ranks and has each learn the holdings of the others.
func (s *site) open(ctx context.Context) error {
	net := storagetest.NewLoopback(len(s.nodes))
	s.stores = nil
	for r, n := range s.nodes {
		var levels []storage.LevelConfig
		for _, l := range append([]string{storage.LevelLocal}, s.levels...) {
			levels = append(levels, storage.LevelConfig{Name: l, Dir: s.dir(l, n), Create: true, Data: 2, Parity: 1})
		}
		st, err := storage.Open(ctx, storage.Options{Job: "site", Rank: r, Size: len(s.nodes),
			Node: n, Nodes: s.nodes, Transport: net.Rank(r), Levels: levels})
		if err != nil {
			return errors.Join(err, s.close())
		}
		s.stores = append(s.stores, st)
	}
	if err := s.stores.Learn(ctx); err != nil {
		return errors.Join(err, s.close())
	}
	return nil
}

func (s *site) close() (err error) {
	for _, st := range s.stores {
		err = errors.Join(err, st.Close())
	}
	s.stores = nil
	return err
}

// take brings an epoch to all levels, at global in packs, and prunes.
func (s *site) take(ctx context.Context, e storage.Epoch) error {
	for _, level := range append([]string{storage.LevelLocal}, s.levels...) {
		infos, err := s.stores.Each(func(st *storage.Store, r int) (storage.ShardInfo, error) {
			switch {
			case level == storage.LevelLocal:
				return st.Put(ctx, e, level, small(r, e))
			case level != storage.LevelGlobal || r%2 == 1 && e%2 == 1:
				return st.Flush(ctx, e, storage.LevelLocal, level, nil)
			case e%2 == 1:
				return st.Flush(ctx, e, storage.LevelLocal, level, nil)
			}
			return storage.ShardInfo{}, nil
		})
		if err == nil && level == storage.LevelGlobal && e%2 == 0 {
			infos = nil
			for r := 0; r < len(s.stores) && err == nil; r += 2 { // a pack for each node
				var part []storage.ShardInfo
				part, err = s.stores[r].FlushNode(ctx, e, storage.LevelLocal, level, []int{r, r + 1})
				infos = append(infos, part...)
			}
		}
		if err == nil {
			_, err = s.stores.Each(func(st *storage.Store, r int) (storage.ShardInfo, error) {
				if level == storage.LevelGlobal && r != 0 {
					return storage.ShardInfo{}, nil
				}
				return storage.ShardInfo{}, st.Commit(ctx, e, level, infos)
			})
		}
		for _, st := range s.stores {
			if err == nil {
				err = st.Committed(e, level)
			}
		}
		if err != nil {
			return fmt.Errorf("epoch %d at %s: %w", e, level, err)
		}
	}
	_, err := s.stores.Each(func(st *storage.Store, _ int) (storage.ShardInfo, error) {
		_, err := st.Prune(ctx)
		return storage.ShardInfo{}, err
	})
	return err
}

// buildSite runs a job with these levels besides local.
func buildSite(t *testing.T, base string, levels ...string) *site {
	t.Helper()
	s := &site{base: base, nodes: siteNodes, levels: levels}
	for _, d := range append([]string{filepath.Join(base, "global")}, s.dirs()...) {
		if err := os.MkdirAll(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	err := s.open(t.Context())
	for e := storage.Epoch(1); e <= siteEpochs && err == nil; e++ {
		err = s.take(t.Context(), e)
	}
	if err := errors.Join(err, s.close()); err != nil {
		t.Fatal(err)
	}
	return s
}

// copyTo copies the site's directories.
func (s *site) copyTo(base string) (*site, error) {
	out := *s
	out.base = base
	return &out, filepath.WalkDir(s.base, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		to := filepath.Join(base, strings.TrimPrefix(path, s.base))
		if d.IsDir() {
			return os.MkdirAll(to, 0o700)
		}
		b, err := os.ReadFile(path)
		if err == nil {
			err = os.WriteFile(to, b, 0o600)
		}
		return err
	})
}

// verify looks at directories as holdfast verify does, or with --complete. could is
// false if it could not look.
func (s *site) verify(ctx context.Context, complete bool, dirs ...string) (found []checkpoints.Finding, could error) {
	v, err := checkpoints.Inspect(context.Background(), dirs...)
	if err != nil {
		return nil, err
	}
	v.Complete = complete
	found = v.VerifyDirs()
	epochs, err := v.Expected()
	if err != nil {
		return nil, err
	}
	for _, e := range epochs {
		more, err := v.Verify(ctx, e)
		if err != nil {
			return nil, err
		}
		found = append(found, more...)
	}
	if len(epochs) == 0 {
		found = append(found, checkpoints.Finding{Kind: checkpoints.Missing, Err: errors.New("no epoch")})
	}
	return found, nil
}

var errWrongBytes = errors.New("WRONG BYTES")

// restore restores the newest epoch that all ranks can have, as a job does, and
// compares it. around says that a copy was bad or missing on the way.
func (s *site) restore(ctx context.Context) (e storage.Epoch, around bool, err error) {
	if err := s.open(ctx); err != nil {
		return 0, false, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	common := map[storage.Epoch]int{}
	for _, st := range s.stores {
		list, _, err := st.Candidates(ctx)
		if err != nil {
			return 0, false, err
		}
		for _, c := range list {
			common[c.Epoch]++
		}
	}
	var failed []error
	for e := storage.Epoch(siteEpochs + 3); e > 0; e-- {
		if common[e] < len(s.stores) {
			continue
		}
		bad, err := s.fetch(ctx, e)
		if err == nil || errors.Is(err, errWrongBytes) {
			return e, around || bad, err
		}
		around = true
		failed = append(failed, err)
	}
	return 0, around, errors.Join(append(failed, errors.New("no epoch for all ranks"))...)
}

func (s *site) fetch(ctx context.Context, e storage.Epoch) (around bool, err error) {
	for r, st := range s.stores {
		sh, err := st.Fetch(ctx, e)
		if err != nil {
			return true, err
		}
		around = around || len(sh.Damage()) > 0 || sh.Level() != storage.LevelLocal
		for _, sec := range small(r, e) {
			got := make([]byte, sec.Size)
			if err = sh.ReadAt(ctx, sec.Name, got, 0); err != nil {
				break
			}
			if !bytes.Equal(got, sec.Source.(storage.Bytes)) {
				err = fmt.Errorf("%w: rank %d epoch %d section %s", errWrongBytes, r, e, sec.Name)
				break
			}
		}
		around = around || len(sh.Damage()) > 0
		if err := errors.Join(err, sh.Close()); err != nil {
			return true, err
		}
	}
	return around, nil
}

// fastDir returns a directory in memory, where there is one: what is tried here are
// contents and names, not disks.
func fastDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "holdfast-test-")
	var room syscall.Statfs_t
	if err == nil && syscall.Statfs(dir, &room) == nil && room.Bavail*uint64(room.Bsize) > 256<<20 {
		t.Cleanup(func() { os.RemoveAll(dir) })
		return dir
	}
	os.RemoveAll(dir)
	return t.TempDir()
}

// TestVerifyKnowsWhatShouldBeThere takes away what a job had, and wants the right
// one of three answers.
func TestVerifyKnowsWhatShouldBeThere(t *testing.T) {
	base := fastDir(t)
	partner := buildSite(t, filepath.Join(base, "partner"), storage.LevelPartner, storage.LevelGlobal)
	parity := buildSite(t, filepath.Join(base, "parity"), storage.LevelParity, storage.LevelGlobal)
	alone := buildSite(t, filepath.Join(base, "alone"), storage.LevelPartner)
	const newest = "epoch-0000000004"
	gone := func(patterns ...string) func(base string) {
		return func(base string) {
			for _, p := range patterns {
				list, err := filepath.Glob(filepath.Join(base, p))
				if err != nil || len(list) == 0 {
					t.Fatalf("nothing to take away: %s, %v", p, err)
				}
				for _, f := range list {
					os.RemoveAll(f)
				}
			}
		}
	}
	for name, c := range map[string]struct {
		of   *site
		do   func(base string)
		want checkpoints.Kind
		only []string // give these directories alone
	}{
		"nothing":                {partner, func(string) {}, "", nil},
		"nothing, with parity":   {parity, func(string) {}, "", nil},
		"nothing, of two levels": {alone, func(string) {}, "", nil},
		"all parity rows of the newest": {parity, gone("n*/parity/" + newest + "/*parity*"),
			checkpoints.NotRedundant, nil},
		"one parity row": {parity, gone("n*/parity/" + newest + "/rank-000001.parity-0"),
			checkpoints.NotRedundant, nil},
		"the newest at parity":  {parity, gone("n*/parity/" + newest), checkpoints.NotRedundant, nil},
		"a local shard":         {partner, gone("n1/" + newest + "/rank-000002.shard"), checkpoints.NotRedundant, nil},
		"a partner's shard":     {partner, gone("n1/partner/" + newest + "/*.shard"), checkpoints.NotRedundant, nil},
		"a partner's directory": {partner, gone("n1/partner/" + newest), checkpoints.NotRedundant, nil},
		"a local directory":     {partner, gone("n2/" + newest), checkpoints.NotRedundant, nil},
		"a pack": {partner, gone("global/" + newest + "/pack-000002.shards"), checkpoints.NotRedundant,
			nil},
		"global's epochs":               {partner, gone("global/epoch-*"), checkpoints.NotRedundant, nil},
		"global's epochs and list":      {partner, gone("global/epoch*"), checkpoints.NotRedundant, nil},
		"global's epochs, global alone": {partner, gone("global/epoch-*"), checkpoints.Missing, []string{"global"}},
		"all of global, global alone":   {partner, gone("global/epoch*"), checkpoints.Missing, []string{"global"}},
		"all manifests of the newest": {partner, gone("*/"+newest+"/manifest", "*/partner/"+newest+"/manifest"),
			checkpoints.Missing, nil},
		"all manifests": {partner, gone("*/epoch-*/manifest", "*/partner/epoch-*/manifest"),
			checkpoints.Missing, nil},
		"a shard of which there is no copy": {alone, gone("n1/"+newest+"/rank-000002.shard", "n2/partner/"+newest+
			"/rank-000002.shard"), checkpoints.Missing, nil},
		"all shards: manifests that dangle": {partner, gone("*/"+newest+"/rank*", "*/"+newest+"/pack*", "*/partner/"+
			newest+"/rank*"), checkpoints.Missing, nil},
		"a shard, its directory alone": {partner, gone("n1/" + newest + "/rank-000002.shard"), checkpoints.Missing,
			[]string{"n1"}},
		"the first manifest of a node": {partner, gone("n0/" + newest + "/manifest"), checkpoints.NotRedundant, nil},
		"the origin that the newest refers": {alone, gone("*/epoch-0000000001", "*/partner/epoch-0000000001"),
			checkpoints.Missing, nil},
		"lists of what should be there": {partner, gone("*/epochs-*", "*/partner/epochs-*"), "", nil},
		"lists, and a copy": {partner, gone("*/epochs-*", "*/partner/epochs-*", "n1/partner/"+newest+
			"/rank-000001.shard"), checkpoints.NotRedundant, nil},
		"lists, and parity rows": {parity, gone("*/epochs-*", "*/parity/epochs-*", "*/parity/"+newest+
			"/*parity*"), checkpoints.NotRedundant, nil},
		"the job file of a node": {partner, gone("n1/holdfast.job"), checkpoints.NotRedundant, nil},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := c.of.copyTo(filepath.Join(base, "copy"))
			if err != nil {
				t.Fatal(err)
			}
			defer os.RemoveAll(s.base)
			c.do(s.base)
			dirs := s.dirs()
			if c.only != nil {
				dirs = nil
				for _, d := range c.only {
					dirs = append(dirs, filepath.Join(s.base, d))
				}
			}
			found, err := s.verify(t.Context(), true, dirs...)
			if err != nil {
				t.Fatal(err)
			}
			if got := storagetest.Worst(found); got != c.want {
				t.Errorf("got %q, want %q:", got, c.want)
				for _, f := range found {
					t.Logf("epoch %d %s rank %d %s: %s: %v, good at %v", f.Epoch, f.Dir.Dir, f.Rank, f.Part, f.Kind,
						f.Err, f.GoodAt)
				}
			}
		})
	}
}

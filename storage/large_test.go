package storage_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"testing"

	"github.com/holdfast-hpc/holdfast/internal/vfs"
	"github.com/holdfast-hpc/holdfast/storage"
	"github.com/holdfast-hpc/holdfast/storage/checkpoints"
	"github.com/holdfast-hpc/holdfast/storage/storagetest"
	"github.com/holdfast-hpc/holdfast/storage/storagetest/jobtest"
)

var largeShards = flag.Bool("large", false, "TestLargeShards takes every level and not global alone")

// far is beyond what 32 bits can say, and is another place when it is cut to them.
const far = 4<<30 + 5*4096

// newLargeCluster returns a cluster on a file system for large files.
func newLargeCluster(t *testing.T, nodes ...string) (*jobtest.Cluster, *largeFS) {
	c := jobtest.NewCluster(t, nodes...)
	dirs := []string{"/global"}
	for _, n := range nodes {
		for _, l := range []string{storage.LevelLocal, storage.LevelPartner, storage.LevelParity} {
			dirs = append(dirs, "/"+n+"/"+l)
		}
	}
	f := newLargeFS(dirs...)
	c.Wrap = f
	return c, f
}

// packUp writes the shards of two ranks of a node together and commits them with
// what the others flush. The first takes so many bytes more than it needs.
func packUp(c *jobtest.Cluster, e storage.Epoch, wider int64, data jobtest.SectionsFor) ([]storage.ShardInfo, error) {
	ctx := c.T.Context()
	n := storage.NodePack{Epoch: e, From: storage.LevelLocal, To: storage.LevelGlobal, Ranks: []int{0, 1}}
	parts := make([]*storage.Part, len(n.Ranks))
	for i, r := range n.Ranks {
		var err error
		if parts[i], err = c.Stores[r].NewPart(ctx, e, n.From, n.To, data(r, e)); err != nil {
			return nil, err
		}
		defer parts[i].Close()
		if i == 0 {
			parts[i].Widen(wider)
		}
		n.Sizes = append(n.Sizes, parts[i].Size())
	}
	for _, p := range parts {
		if _, err := p.Write(ctx, n); err != nil {
			return nil, err
		}
	}
	infos, err := parts[0].Seal(ctx, n)
	if err != nil {
		return nil, err
	}
	// Who takes over from a flusher that died finds the pack complete.
	again, err := c.Stores[1].FlushNode(ctx, e, n.From, n.To, n.Ranks)
	if err != nil || again[1].Base != infos[1].Base {
		return nil, fmt.Errorf("the pack was written again: %+v, %w", again, err)
	}
	for r := len(n.Ranks); r < len(c.Stores); r++ {
		info, err := c.Stores[r].Flush(ctx, e, n.From, n.To, nil)
		if err != nil {
			return nil, err
		}
		infos = append(infos, info)
	}
	return infos, settleAll(c, e, infos)
}

// settle commits an epoch at global as a job does.
func settleAll(c *jobtest.Cluster, e storage.Epoch, infos []storage.ShardInfo) error {
	err := c.Stores[0].Commit(c.T.Context(), e, storage.LevelGlobal, infos)
	for _, s := range c.Stores {
		err = errors.Join(err, s.Committed(e, storage.LevelGlobal))
	}
	return err
}

// wantGood verifies an epoch in all directories given.
func wantGood(t *testing.T, f *largeFS, e storage.Epoch, dirs ...string) {
	t.Helper()
	v, err := checkpoints.Open(vfs.With(context.Background(), f), dirs...)
	if err != nil {
		t.Fatal(err)
	}
	if found, err := v.Verify(t.Context(), e); err != nil || len(found) > 0 {
		t.Fatalf("verify of epoch %d in %v: %v, %v", e, dirs, found, err)
	}
}

// TestFarOffsets has shards and packs whose bytes lie more than 4 GiB behind the
// start of their files, with holes before them, and does with them all that is
// done with checkpoints: no offset may be cut to 32 bits on the way.
func TestFarOffsets(t *testing.T) {
	if testing.Short() {
		t.Skip("takes long, and offsets are the same under the race detector")
	}
	c, f := newLargeCluster(t, "a", "a", "b")
	global := storage.LevelConfig{Name: storage.LevelGlobal, Keep: 9}
	c.Start(jobtest.Local, global)
	infos, err := c.Stores.Each(func(s *storage.Store, r int) (storage.ShardInfo, error) {
		return storage.PutFar(c.T.Context(), s, 1, storage.LevelLocal, int64(min(r, 1))*far,
			jobtest.ClusterSections(r, 1))
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Stores.Each(func(s *storage.Store, r int) (storage.ShardInfo, error) {
		return infos[r], s.Commit(context.Background(), 1, storage.LevelLocal, infos)
	}); err != nil {
		t.Fatal(err)
	}
	lendFar(c, f)
	if err := c.TryTake(2, jobtest.ClusterSections, storage.LevelLocal); err != nil { // refers to what lies far off
		t.Fatal(err)
	}
	for e := storage.Epoch(1); e <= 2; e++ {
		if _, err := c.Restore(e); err != nil {
			t.Fatal(err)
		}
		infos, err := packUp(c, e, far, jobtest.ClusterSections)
		if err != nil {
			t.Fatal(err)
		}
		if infos[1].Base < far || (len(infos[1].Origins) > 0) != (e == 2) {
			t.Errorf("epoch %d: rank 1's shard starts at %d and refers to %v", e, infos[1].Base, infos[1].Origins)
		}
	}
	wantGood(t, f, 2, "/a/local", "/b/local", "/global")
	wantStray(t, f)

	// Elsewhere: the shards are read through other ranks.
	c.Stop()
	c.Nodes = []string{"b", "b", "a"}
	c.Start(jobtest.Local, global)
	if levels, err := c.Restore(1); err != nil || levels[1] != storage.LevelLocal || levels[2] != storage.LevelLocal {
		t.Errorf("from the levels %v: %v", levels, err)
	}
	for r, s := range c.Stores {
		sh, err := s.Fetch(t.Context(), 2)
		if err == nil {
			err = errors.Join(sh.Verify(t.Context()), sh.Close())
		}
		if err != nil || sh.Level() != storage.LevelLocal || len(sh.Damage()) > 0 {
			t.Errorf("rank %d through others: from %s, %v, %v", r, sh.Level(), sh.Damage(), err)
		}
	}
	f.RemoveAll("/a/local")
	f.RemoveAll("/b/local")
	c.Stop()
	c.Start(jobtest.Local, global)
	for e := storage.Epoch(1); e <= 2; e++ {
		if levels, err := c.Restore(e); err != nil || levels[1] != storage.LevelGlobal {
			t.Errorf("from the levels %v: %v", levels, err)
		}
	}
}

// wantStray puts a byte where zeros should be, far off, and takes it away again.
func wantStray(t *testing.T, f *largeFS) {
	t.Helper()
	file, err := f.Edit("/b/local/epoch-0000000001/rank-000002.shard", false)
	if err != nil {
		t.Fatal(err)
	}
	v, err := checkpoints.Open(vfs.With(context.Background(), f), "/b/local")
	if err != nil {
		t.Fatal(err)
	}
	for _, stray := range []byte{1, 0} {
		if _, err := file.WriteAt([]byte{stray}, far-4095); err != nil {
			t.Fatal(err)
		}
		found, err := v.Verify(t.Context(), 1)
		bad := storagetest.Worst(found) == checkpoints.Damaged
		if err != nil || bad != (stray != 0) {
			t.Errorf("with byte %d at %d: %v, %v", stray, far-4095, found, err)
		}
	}
}

// lendFar has rank 1 read its shard from memory while the file has other bytes.
func lendFar(c *jobtest.Cluster, f *largeFS) {
	c.T.Helper()
	release, err := c.Stores[1].ServeFromMemory(c.T.Context(), 1, storage.LevelLocal, jobtest.ClusterSections(1, 1))
	if err != nil {
		c.T.Fatal(err)
	}
	defer release()
	file, err := f.Edit("/a/local/epoch-0000000001/rank-000001.shard", false)
	if err != nil {
		c.T.Fatal(err)
	}
	was := make([]byte, largePageLen)
	for _, step := range []func() error{
		func() error { _, err := file.ReadAt(was, far+2*largePageLen); return err },
		func() error {
			_, err := file.WriteAt(make([]byte, largePageLen), far+2*largePageLen)
			return err
		},
		func() error { _, err := c.Restore(1); return err },
		func() error { _, err := file.WriteAt(was, far+2*largePageLen); return err },
	} {
		if err := step(); err != nil {
			c.T.Fatal(err)
		}
	}
}

// numbered is a Source of pages that differ by their numbers; those divided by
// changed, if it is not 0, have another one.
type numbered struct {
	rest    []byte
	salt    uint64
	changed int64
}

func newNumbered(salt uint64, changed int64) *numbered {
	n := &numbered{rest: make([]byte, largePageLen), salt: salt << 32, changed: changed}
	rand.NewChaCha8([32]byte{1}).Read(n.rest)
	return n
}

// ReadAt fills whole pages.
func (n *numbered) ReadAt(p []byte, off int64) (int, error) {
	if off%largePageLen != 0 || len(p)%largePageLen != 0 {
		return 0, fmt.Errorf("[%d,+%d) are not whole pages", off, len(p))
	}
	for at := 0; at < len(p); at += largePageLen {
		i := (off + int64(at)) / largePageLen
		copy(p[at:], n.rest)
		number := n.salt + uint64(i)
		if n.changed > 0 && i%n.changed == 0 {
			number += 1 << 60
		}
		binary.LittleEndian.PutUint64(p[at:], number)
	}
	return len(p), nil
}

// largeSections makes rank 0's shard large, with a section above 4 GiB behind one of
// which some pages change from one epoch to the next.
func largeSections(rank int, e storage.Epoch) []storage.Section {
	if rank > 0 {
		return jobtest.ClusterSections(rank, e)
	}
	return []storage.Section{
		{Name: "moves", Size: 64 << 20, Source: newNumbered(1, 128*int64(e))},
		{Name: "stays", Size: 4<<30 + 32<<20, Source: newNumbered(2, 0)},
	}
}

// wantLarge reads a shard by parts and compares it.
func wantLarge(t *testing.T, s *storage.Store, rank int, e storage.Epoch) {
	t.Helper()
	sh, err := s.Fetch(t.Context(), e)
	if err != nil {
		t.Fatal(err)
	}
	defer sh.Close()
	const most = 16 << 20
	got, want := make([]byte, most), make([]byte, most)
	for _, sec := range largeSections(rank, e) {
		for off := int64(0); off < sec.Size; off += most {
			n := min(most, sec.Size-off)
			if err := sh.ReadAt(t.Context(), sec.Name, got[:n], off); err != nil {
				t.Fatalf("rank %d, epoch %d, section %s at %d: %v", rank, e, sec.Name, off, err)
			}
			if m, err := sec.Source.ReadAt(want[:n], off); int64(m) < n && err != io.EOF {
				t.Fatal(err)
			}
			if !bytes.Equal(got[:n], want[:n]) {
				t.Fatalf("rank %d, epoch %d, section %s differs behind %d", rank, e, sec.Name, off)
			}
		}
	}
}

// TestLargeShards takes epochs with a shard of 4.1 GiB, in which each page is another
// one, and restores them. Levels but global take half a minute more of a core:
// make soak-damage has them.
func TestLargeShards(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds of a core")
	}
	for _, job := range []struct {
		level storage.LevelConfig
		nodes []string
	}{
		{storage.LevelConfig{Name: storage.LevelGlobal, Keep: 9}, []string{"a", "a", "b"}},
		{storage.LevelConfig{Name: storage.LevelPartner, Keep: 9}, []string{"a", "a", "b"}},
		{storage.LevelConfig{Name: storage.LevelParity, Keep: 9, Data: 1, Parity: 1}, []string{"a", "b"}},
		{storage.LevelConfig{Name: storage.LevelParity, Keep: 9, Data: 2, Parity: 1}, []string{"a", "b", "c"}},
	} {
		t.Run(fmt.Sprintf("%s of %d nodes", job.level.Name, len(job.nodes)), func(t *testing.T) {
			if job.level.Name != storage.LevelGlobal && !*largeShards {
				t.Skip("-args -large takes it as well")
			}
			largeJob(t, job.level, job.nodes)
		})
	}
}

// largeJob takes two epochs at local and another level, loses the local directories
// of a node and restores.
func largeJob(t *testing.T, wide storage.LevelConfig, nodes []string) {
	c, f := newLargeCluster(t, nodes...)
	here := storage.LevelConfig{Name: storage.LevelLocal, Keep: 9}
	c.Start(here, wide)
	var dirs []string
	for _, n := range nodes {
		dirs = append(dirs, "/"+n+"/local")
	}
	for e := storage.Epoch(1); e <= 2; e++ {
		if err := c.TryTake(e, largeSections, storage.LevelLocal); err != nil {
			t.Fatal(err)
		}
		if wide.Name != storage.LevelGlobal {
			if err := flushTo(c, e, wide.Name); err != nil {
				t.Fatal(err)
			}
			continue
		}
		infos, err := c.Stores[0].FlushNode(t.Context(), e, storage.LevelLocal, wide.Name, []int{0, 1})
		if err != nil {
			t.Fatal(err)
		}
		last, err := c.Stores[2].Flush(t.Context(), e, storage.LevelLocal, wide.Name, nil)
		if err == nil {
			err = settleAll(c, e, append(infos, last))
		}
		if err != nil || e == 1 && infos[1].Base < 4<<30 || e == 2 && infos[1].Base > 1<<30 {
			t.Fatalf("epoch %d: rank 1's shard starts at %d: %v", e, infos[1].Base, err)
		}
	}
	if wide.Name == storage.LevelGlobal {
		dirs = append(dirs, "/global")
	}
	wantGood(t, f, 1, dirs...)
	f.RemoveAll("/a/local")
	c.Stop()
	c.Start(here, wide)
	for r, s := range c.Stores[:2] {
		wantLarge(t, s, r, 2)
	}
	if wide.Name == storage.LevelGlobal {
		return
	}
	if _, err := c.Stores.Each(func(s *storage.Store, r int) (storage.ShardInfo, error) {
		return storage.ShardInfo{}, s.Rebuild(t.Context(), 2, storage.LevelLocal)
	}); err != nil {
		t.Fatal(err)
	}
	wantGood(t, f, 2, dirs...)
}

// flushTo copies an epoch from local to another level and commits it.
func flushTo(c *jobtest.Cluster, e storage.Epoch, level string) error {
	infos, err := c.Stores.Each(func(s *storage.Store, r int) (storage.ShardInfo, error) {
		return s.Flush(c.T.Context(), e, storage.LevelLocal, level, nil)
	})
	if err != nil {
		return err
	}
	_, err = c.Stores.Each(func(s *storage.Store, r int) (storage.ShardInfo, error) {
		return infos[r], s.Commit(c.T.Context(), e, level, infos)
	})
	return err
}

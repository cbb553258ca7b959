package storage_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/holdfast-hpc/holdfast/internal/crashfs"
	"github.com/holdfast-hpc/holdfast/internal/vfs"
	"github.com/holdfast-hpc/holdfast/storage"
	"github.com/holdfast-hpc/holdfast/storage/internal/jobtest"
)

// hookFS calls hook before its n-th operation on a name.
type hookFS struct {
	*crashfs.FS
	n    *atomic.Int64 // counts down
	hook func()
}

func (f hookFS) at() {
	if f.n.Add(-1) == 0 {
		f.hook()
	}
}

func (f hookFS) Create(name string, direct bool) (vfs.File, error) {
	f.at()
	return f.FS.Create(name, direct)
}
func (f hookFS) Open(name string) (vfs.File, error)       { f.at(); return f.FS.Open(name) }
func (f hookFS) Mkdir(name string) error                  { f.at(); return f.FS.Mkdir(name) }
func (f hookFS) Rename(from, to string) error             { f.at(); return f.FS.Rename(from, to) }
func (f hookFS) SyncDir(name string) error                { f.at(); return f.FS.SyncDir(name) }
func (f hookFS) ReadDir(name string) ([]vfs.Entry, error) { f.at(); return f.FS.ReadDir(name) }
func (f hookFS) Stat(name string) (vfs.Entry, error)      { f.at(); return f.FS.Stat(name) }

// TestPruneDuringWork lets all ranks prune at every few operations of a rebuild,
// a flush and a read of an epoch that no keep rule holds any more. All ranks
// retain it, as a job does; nothing of it may go.
func TestPruneDuringWork(t *testing.T) {
	levels := []storage.LevelConfig{jobtest.SmallLocal, jobtest.SmallCopies, jobtest.SmallParity,
		{Name: storage.LevelGlobal, Keep: 1}}
	ctx := context.Background()
	for name, work := range map[string]func(c *jobtest.Cluster) error{
		"rebuild": func(c *jobtest.Cluster) error {
			for _, l := range []string{storage.LevelLocal, storage.LevelPartner, storage.LevelParity} {
				if _, err := c.All(func(s *storage.Store, _ int) (i storage.ShardInfo, err error) {
					return i, s.Rebuild(ctx, 2, l)
				}); err != nil {
					return err
				}
			}
			return nil
		},
		"flush": func(c *jobtest.Cluster) error {
			_, err := c.All(func(s *storage.Store, _ int) (storage.ShardInfo, error) {
				return s.Flush(ctx, 2, storage.LevelLocal, storage.LevelGlobal, nil)
			})
			return err
		},
		"read": func(c *jobtest.Cluster) error { _, err := c.RestoreAs(2, jobtest.Little); return err },
	} {
		t.Run(name, func(t *testing.T) {
			for at := int64(1); ; at += int64(jobtest.CrashStep(11)) {
				c := jobtest.NewCluster(t, jobtest.NodeNames(3)...)
				n := &atomic.Int64{}
				hook := hookFS{FS: c.FS, n: n, hook: func() {
					for _, s := range c.Stores {
						if _, err := s.Prune(ctx); err != nil {
							t.Errorf("operation %d: prune: %v", at, err)
						}
					}
				}}
				c.Wrap = hook
				c.Start(levels...)
				for e := storage.Epoch(1); e <= 4; e++ {
					to := []string{storage.LevelLocal, storage.LevelPartner, storage.LevelParity}
					if e == 4 {
						to = append(to, storage.LevelGlobal)
					}
					if err := c.TryTake(e, jobtest.Little, to...); err != nil {
						t.Fatal(err)
					}
				}
				c.Stop()
				c.FS.RemoveAll("/n1/local/epoch-0000000002")
				c.FS.RemoveAll("/n2/partner/epoch-0000000002")
				c.Start(levels...)
				var release []func()
				for _, s := range c.Stores {
					release = append(release, s.Retain(ctx, 2))
				}
				n.Store(at)
				if err := work(c); err != nil {
					t.Fatalf("operation %d: %v\n%s", at, err, c.FS)
				}
				done := n.Swap(0) > 0 // it took fewer operations
				if _, err := c.FS.Stat("/n0/partner/epoch-0000000003"); err == nil && !done {
					t.Fatalf("operation %d: nothing was pruned\n%s", at, c.FS)
				}
				if _, err := c.RestoreAs(2, jobtest.Little); err != nil {
					t.Fatalf("operation %d: epoch 2: %v\n%s", at, err, c.FS)
				}
				for _, r := range release {
					r()
				}
				c.Stop()
				if done {
					t.Log(fmt.Sprint(at, " operations"))
					break
				}
			}
		})
	}
}

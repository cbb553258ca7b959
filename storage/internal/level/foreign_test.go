package level_test

import (
	"context"
	"encoding/binary"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-hpc/holdfast/internal/vfs"
	"github.com/holdfast-hpc/holdfast/storage"
	"github.com/holdfast-hpc/holdfast/storage/checkpoints"
	"github.com/holdfast-hpc/holdfast/storage/storagetest"
	"github.com/holdfast-hpc/holdfast/storage/storagetest/jobtest"
)

// diskJob returns one rank's job on the disk, with an epoch at local and global.
func diskJob(t *testing.T, change func(o *storage.Options)) (*storage.Store, error) {
	t.Helper()
	return diskJobBy(t, vfs.OS{}, change)
}

// diskJobBy is diskJob by the files that may be used.
func diskJobBy(t *testing.T, files vfs.OS, change func(o *storage.Options)) (*storage.Store, error) {
	t.Helper()
	o := storage.Options{Job: "sun", Size: 1, Levels: []storage.LevelConfig{
		{Name: storage.LevelLocal}, {Name: storage.LevelGlobal}}}
	change(&o)
	s, err := storage.Open(vfs.With(t.Context(), files), o)
	if err == nil {
		t.Cleanup(func() { s.Close() })
	}
	return s, err
}

func epochOf(t *testing.T, s *storage.Store, e storage.Epoch) {
	t.Helper()
	info, err := s.Put(t.Context(), e, storage.LevelLocal, jobtest.ClusterSections(0, e))
	if err == nil {
		err = s.Commit(t.Context(), e, storage.LevelLocal, []storage.ShardInfo{info})
	}
	if err == nil {
		info, err = s.Flush(t.Context(), e, storage.LevelLocal, storage.LevelGlobal, nil)
	}
	if err == nil {
		err = s.Commit(t.Context(), e, storage.LevelGlobal, []storage.ShardInfo{info})
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestPlantedCheckpointIsRefused: a directory or file of another user is neither
// restored nor looked at, unless the user says so.
func TestPlantedCheckpointIsRefused(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can give files away; make test runs as root")
	}
	const other = 12345
	for name, plant := range map[string]func(local string) error{
		"directory":   func(local string) error { return os.Chown(local, other, other) },
		"open to all": func(local string) error { return os.Chmod(local, 0o777) },
		"foreign marker": func(local string) error {
			return os.Chown(filepath.Join(local, "holdfast.job"), other, other)
		},
		"foreign link": func(local string) error {
			return errors.Join(os.Rename(local, local+"-real"), os.Symlink(local+"-real", local),
				os.Lchown(local, other, other))
		},
	} {
		t.Run(name, func(t *testing.T) {
			base := t.TempDir()
			local, global := filepath.Join(base, "local"), filepath.Join(base, "global")
			if err := errors.Join(os.Mkdir(local, 0o755), os.Mkdir(global, 0o755)); err != nil {
				t.Fatal(err)
			}
			set := func(o *storage.Options) { o.Levels[0].Dir, o.Levels[1].Dir = local, global }
			s, err := diskJob(t, set)
			if err != nil {
				t.Fatal(err)
			}
			epochOf(t, s, 1)
			if err := errors.Join(s.Close(), plant(local)); err != nil {
				t.Fatal(err)
			}
			if s, err := diskJob(t, set); !errors.Is(err, vfs.ErrUnsafe) ||
				!strings.Contains(err.Error(), local) {
				t.Errorf("got %v, %v, want a refusal that names %s", s, err, local)
			}
			if _, err := checkpoints.Open(context.Background(), local); !errors.Is(err, vfs.ErrUnsafe) {
				t.Errorf("a view: got %v, want a refusal", err)
			}
			s, err = diskJobBy(t, vfs.OS{AllowForeign: true}, set)
			if err != nil {
				t.Fatal(err)
			}
			sh, err := s.Fetch(t.Context(), 1)
			if err != nil {
				t.Fatalf("allowed: %v", err)
			}
			sh.Close()
		})
	}
}

// TestForeignFilesServeNothing: what another user wrote into an epoch is passed
// over, and the level behind serves.
func TestForeignFilesServeNothing(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can give files away; make test runs as root")
	}
	for _, part := range []string{"manifest", "rank-000000.shard", "."} {
		local, global := t.TempDir(), t.TempDir()
		set := func(o *storage.Options) { o.Levels[0].Dir, o.Levels[1].Dir = local, global }
		s, err := diskJob(t, set)
		if err != nil {
			t.Fatal(err)
		}
		epochOf(t, s, 1)
		if err := os.Chown(filepath.Join(local, "epoch-0000000001", part), 12345, 12345); err != nil {
			t.Fatal(err)
		}
		sh, err := s.Fetch(t.Context(), 1)
		if err != nil {
			t.Fatalf("%s: %v", part, err)
		}
		if sh.Level() != storage.LevelGlobal {
			t.Errorf("%s: the shard comes from %s, want global", part, sh.Level())
		}
		sh.Close()
	}
}

// TestNothingWaitsForAFIFO puts a FIFO, then a link to the original, in place of
// every file of a job in turn, and goes through what a restart and the tools do.
func TestNothingWaitsForAFIFO(t *testing.T) {
	for name, replace := range map[string]func(path string) error{
		"fifo": func(path string) error { return errors.Join(os.Remove(path), syscall.Mkfifo(path, 0o600)) },
		"link": func(path string) error {
			return errors.Join(os.Rename(path, path+".tmp"), os.Symlink(filepath.Base(path)+".tmp", path))
		},
		"directory": func(path string) error { return errors.Join(os.Remove(path), os.Mkdir(path, 0o700)) },
	} {
		t.Run(name, func(t *testing.T) {
			for _, file := range []string{"holdfast.job", "holdfast.run", "trials-000000", "epoch-0000000001/manifest",
				"epoch-0000000001/rank-000000.shard", "epoch-0000000001"} {
				local, global := t.TempDir(), t.TempDir()
				set := func(o *storage.Options) { o.Levels[0].Dir, o.Levels[1].Dir = local, global }
				s, err := diskJob(t, set)
				if err != nil {
					t.Fatal(err)
				}
				epochOf(t, s, 1)
				s.Close()
				path := filepath.Join(local, file)
				if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
					os.WriteFile(path, nil, 0o600)
				}
				if file == "epoch-0000000001" {
					os.RemoveAll(path)
					os.WriteFile(path, nil, 0o600)
				}
				if err := replace(path); err != nil {
					t.Fatal(err)
				}
				done := make(chan struct{})
				go func() {
					defer close(done)
					if s, err := diskJob(t, set); err == nil {
						s.Candidates(t.Context())
						if sh, err := s.Fetch(t.Context(), 1); err == nil {
							sh.Verify(t.Context())
							sh.Close()
						} else if file != "holdfast.job" {
							t.Errorf("%s: global does not serve: %v", file, err)
						}
						s.Prune(t.Context())
					}
					if v, err := checkpoints.Open(context.Background(), local, global); err == nil {
						v.Epochs(t.Context())
						v.Verify(t.Context(), 1)
					}
				}()
				select {
				case <-done:
				case <-time.After(time.Minute):
					t.Fatalf("%s: something waits for it", file)
				}
			}
		})
	}
}

// TestNoRoomForANote: what stands where the note of a restore, or the lock of a run, should be
// does not forbid an epoch that is whole.
func TestNoRoomForANote(t *testing.T) {
	local := filepath.Join(t.TempDir(), "local")
	if err := os.Mkdir(local, 0o700); err != nil {
		t.Fatal(err)
	}
	here := func(o *storage.Options) {
		o.Levels = []storage.LevelConfig{{Name: storage.LevelLocal, Dir: local}}
		o.Run = "run"
	}
	open := func() *storage.Store {
		t.Helper()
		s, err := diskJob(t, here)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	s := open()
	info, err := s.Put(t.Context(), 1, storage.LevelLocal, jobtest.ClusterSections(0, 1))
	if err == nil {
		err = s.Commit(t.Context(), 1, storage.LevelLocal, []storage.ShardInfo{info})
	}
	if err = errors.Join(err, s.Close()); err != nil {
		t.Fatal(err)
	}
	lock := filepath.Join(local, "holdfast.run")
	if err := errors.Join(os.MkdirAll(filepath.Join(local, "trials-000000", "x"), 0o700),
		os.WriteFile(lock, nil, 0o600), os.Truncate(lock, 1<<40)); err != nil {
		t.Fatal(err)
	}
	s = open() // waits for three beats of the lock
	durable, err := s.NoteRestore(t.Context(), 1)
	if err == nil {
		err = durable()
	}
	if err != nil {
		t.Errorf("the note of the restore: %v", err)
	}
	if err := errors.Join(s.Close(), os.Mkdir(lock, 0o700)); err != nil {
		t.Fatal(err)
	}
	if _, err := diskJob(t, here); err == nil || !strings.Contains(err.Error(), "remove it") {
		t.Errorf("a directory stands where the lock should be: %v", err)
	}
}

// TestHolesTakeNoMemory: records and indices that say they are long, and are holes, are
// damage, and no memory is taken for them.
func TestHolesTakeNoMemory(t *testing.T) {
	dir := t.TempDir()
	s, err := diskJob(t, func(o *storage.Options) {
		o.Levels = []storage.LevelConfig{{Name: storage.LevelLocal, Dir: dir}}
	})
	if err != nil {
		t.Fatal(err)
	}
	info, err := s.Put(t.Context(), 1, storage.LevelLocal, jobtest.ClusterSections(0, 1))
	if err == nil {
		err = s.Commit(t.Context(), 1, storage.LevelLocal, []storage.ShardInfo{info})
	}
	if err = errors.Join(err, s.Close()); err != nil {
		t.Fatal(err)
	}
	const length = 1 << 29
	file := filepath.Join(dir, "epoch-0000000001", "manifest")
	head := binary.LittleEndian.AppendUint32([]byte("HOLDFAST\x04\x00\x01\x00"), length-20)
	if err := errors.Join(os.WriteFile(file, head, 0o600), os.Truncate(file, length)); err != nil {
		t.Fatal(err)
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	v, err := checkpoints.Inspect(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	found, err := v.Verify(t.Context(), 1)
	if err != nil || storagetest.Worst(found) != checkpoints.Damaged {
		t.Errorf("got %v, %v, want damage", found, err)
	}
	runtime.ReadMemStats(&after)
	if took := after.TotalAlloc - before.TotalAlloc; took > length/4 {
		t.Errorf("%d bytes were taken", took)
	}
}

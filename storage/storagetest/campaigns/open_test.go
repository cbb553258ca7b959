package campaigns

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"

	"github.com/holdfast-hpc/holdfast/internal/vfs"
	"github.com/holdfast-hpc/holdfast/storage"
	"github.com/holdfast-hpc/holdfast/storage/storagetest/jobtest"
	"github.com/holdfast-hpc/holdfast/test/crashfs"
)

func open(t *testing.T, opt storage.Options) error {
	t.Helper()
	return openIn(t, t.Context(), opt)
}

func openIn(t *testing.T, ctx context.Context, opt storage.Options) error {
	t.Helper()
	s, err := storage.Open(ctx, opt)
	if err == nil {
		t.Cleanup(func() { s.Close() })
	}
	return err
}

func TestRefusedDirectories(t *testing.T) {
	dir := t.TempDir()
	opt := storage.Options{Job: "mine", Size: 2, Levels: []storage.LevelConfig{{Name: storage.LevelLocal, Dir: dir}}}
	if err := open(t, opt); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	var job *storage.JobError
	var size *storage.SizeError
	var bad *storage.DirError
	for _, c := range []struct {
		name   string
		change func(o *storage.Options)
		as     any
		says   string
	}{
		{"another job", func(o *storage.Options) { o.Job = "yours" }, &job, `job "mine", this job is "yours"`},
		{"another size", func(o *storage.Options) { o.Size = 3 }, &size,
			"of 2 ranks, this job has 3: start it with 2 ranks"},
		{"another level", func(o *storage.Options) { o.Levels[0].Name = storage.LevelGlobal }, &bad,
			"each level its own"},
		{"missing", func(o *storage.Options) { o.Levels[0].Dir = filepath.Join(dir, "no", "where") }, &bad,
			"create it"},
		{"missing parent", func(o *storage.Options) {
			o.Levels[0].Dir, o.Levels[0].Create = filepath.Join(dir, "no", "where"), true
		}, &bad, "create it"},
		{"a file", func(o *storage.Options) { o.Levels[0].Dir = file }, &bad, "not a file"},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := opt
			o.Levels = append([]storage.LevelConfig(nil), opt.Levels...)
			c.change(&o)
			err := open(t, o)
			if !errors.As(err, c.as) || !strings.Contains(err.Error(), c.says) {
				t.Errorf("got %v, want a %T that says %q", err, c.as, c.says)
			}
		})
	}
}

func TestUnwritableDirectory(t *testing.T) {
	for errno, remedy := range map[error]string{fs.ErrPermission: "write permission",
		syscall.EROFS: "mounted for writing", syscall.ENOSPC: "make room"} {
		f := crashfs.New()
		f.MkdirAll("/d")
		f.SetRule(func(op crashfs.Op) error {
			if op.Kind == "create" {
				return errno
			}
			return nil
		})
		err := openIn(t, vfs.With(t.Context(), f), storage.Options{Job: "j", Size: 1,
			Levels: []storage.LevelConfig{{Name: storage.LevelLocal, Dir: "/d"}}})
		var bad *storage.DirError
		if !errors.As(err, &bad) || !errors.Is(err, errno) || !strings.Contains(err.Error(), remedy) {
			t.Errorf("got %v, want a *DirError with a remedy", err)
		}
	}
}

func TestOptionErrorsNameTheField(t *testing.T) {
	ok := func() storage.Options {
		return storage.Options{Job: "j", Size: 1, Levels: []storage.LevelConfig{{Name: storage.LevelLocal, Dir: "/x"}}}
	}
	for field, change := range map[string]func(o *storage.Options){
		"Job":            func(o *storage.Options) { o.Job = "" },
		"Size":           func(o *storage.Options) { o.Size = 0 },
		"Rank":           func(o *storage.Options) { o.Rank = 1 },
		"Levels":         func(o *storage.Options) { o.Levels = nil },
		"Levels[0].Name": func(o *storage.Options) { o.Levels[0].Name = "L1" },
		"Levels[0].Dir":  func(o *storage.Options) { o.Levels[0].Dir = "" },
		"Levels[0].Keep": func(o *storage.Options) { o.Levels[0].Keep = -1 },
		"Levels[1].Dir": func(o *storage.Options) {
			o.Levels = append(o.Levels, storage.LevelConfig{Name: storage.LevelGlobal, Dir: "/x/"})
		},
		"Levels[1].Name": func(o *storage.Options) {
			o.Levels = append(o.Levels, storage.LevelConfig{Name: storage.LevelLocal, Dir: "/y"})
		},
		"Levels[0].KeepEvery": func(o *storage.Options) { o.Levels[0].KeepEvery = -1 },
	} {
		o := ok()
		change(&o)
		err := open(t, o)
		var bad *storage.OptionError
		if !errors.As(err, &bad) || bad.Field != field {
			t.Errorf("got %v, want an *OptionError of %s", err, field)
		}
	}
}

// TestRacingRanks opens and puts many ranks at once in one directory.
func TestRacingRanks(t *testing.T) {
	const ranks = 16
	dir := filepath.Join(t.TempDir(), "made")
	var wg sync.WaitGroup
	infos := make([]storage.ShardInfo, ranks)
	stores := make([]*storage.Store, ranks)
	fail := make([]error, ranks)
	all := func(do func(r int) error) {
		t.Helper()
		for r := range ranks {
			wg.Go(func() { fail[r] = do(r) })
		}
		wg.Wait()
		if err := errors.Join(fail...); err != nil {
			t.Fatal(err)
		}
	}
	all(func(r int) (err error) {
		stores[r], err = storage.Open(jobtest.WithPools(t.Context()), storage.Options{Job: "j", Rank: r, Size: ranks,
			Levels: []storage.LevelConfig{{Name: storage.LevelLocal, Dir: dir, Create: true, Keep: 1}}})
		return err
	})
	for e := storage.Epoch(1); e <= 3; e++ {
		all(func(r int) (err error) {
			infos[r], err = stores[r].Put(t.Context(), e, storage.LevelLocal, jobtest.SmallSections(r, e))
			return err
		})
		all(func(r int) error { return stores[r].Commit(t.Context(), e, storage.LevelLocal, infos) })
		all(func(r int) error { _, err := stores[r].Prune(t.Context()); return err })
	}
	for r, s := range stores {
		jobtest.WantShard(t, s, 3, jobtest.SmallSections(r, 3))
	}
	list, err := levelIn(storage.LevelLocal, dir).Epochs()
	if err != nil || fmt.Sprint(list) != "[3]" && fmt.Sprint(list) != "[3 2]" {
		t.Errorf("got epochs %v, %v", list, err)
	}
}

// TestFullDisk runs out of space at each point of writing an epoch. Only that
// epoch fails.
func TestFullDisk(t *testing.T) {
	f := jobtest.NewWorldFS()
	w, err := jobtest.OpenWorld(f)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	if err := w.TakeEpoch(1, func(storage.Epoch) {}); err != nil {
		t.Fatal(err)
	}
	var full *storage.SpaceError
	f.SetSpace(100_000)
	if _, err := w.Stores[0].Put(t.Context(), 2, storage.LevelLocal, jobtest.SectionsOf(0, 2)); !errors.As(err,
		&full) ||
		full.Missing() == 0 {
		t.Errorf("before the start: got %v, want a *SpaceError", err)
	}
	f.SetSpace(-1)
	for nth := range 3 {
		writes := 0
		f.SetRule(func(op crashfs.Op) error {
			if op.Kind == "write" {
				if writes++; writes == nth+1 {
					return syscall.ENOSPC
				}
			}
			return nil
		})
		_, err := w.Stores[0].Put(t.Context(), 2, storage.LevelLocal, jobtest.SectionsOf(0, 2))
		if !errors.As(err, &full) {
			t.Errorf("write %d: got %v, want a *SpaceError", nth, err)
		} else if text := full.Error(); full.Missing() == 0 && (strings.Contains(text, "missing") ||
			!strings.Contains(text, "free now")) {
			t.Errorf("write %d: the room that is there again is called too little: %s", nth, text)
		}
		f.SetRule(nil)
		if strings.Contains(f.String(), "/local0/epoch-0000000002/") {
			t.Errorf("write %d: something is left:\n%s", nth, f)
		}
	}
	if err := w.Check(1); err != nil {
		t.Error(err)
	}
	if err := w.TakeEpoch(3, func(storage.Epoch) {}); err != nil {
		t.Error(err)
	}
}

func TestClosedStore(t *testing.T) {
	stores := jobtest.OpenStores(t, 1, twoLevels(t))
	s := stores[0]
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Put(t.Context(), 1, storage.LevelLocal, nil); !errors.Is(err, storage.ErrClosed) {
		t.Errorf("got %v, want ErrClosed", err)
	}
}

// readOnly makes all writes below a directory fail.
func readOnly(dir string) crashfs.Rule {
	return func(op crashfs.Op) error {
		switch op.Kind {
		case "create", "edit", "mkdir", "link", "rename", "remove":
			if strings.HasPrefix(op.Name, dir) {
				return &fs.PathError{Op: op.Kind, Path: op.Name, Err: syscall.EROFS}
			}
		}
		return nil
	}
}

func degradeOptions(run, job string) storage.Options {
	return storage.Options{Job: job, Size: 1, Run: run, Degrade: true,
		Levels: []storage.LevelConfig{{Name: storage.LevelLocal, Dir: "/l"}, {Name: storage.LevelGlobal, Dir: "/g"}}}
}

// TestDegrade: a level that cannot be written to is left out and read all the same,
// unless it is another job's or in use.
func TestDegrade(t *testing.T) { synctest.Test(t, testDegrade) }

func testDegrade(t *testing.T) {
	f := crashfs.New()
	f.MkdirAll("/l")
	f.MkdirAll("/g")
	first, err := storage.Open(vfs.With(t.Context(), f), degradeOptions("one", "j"))
	if err != nil {
		t.Fatal(err)
	}
	put(t, first, 1, storage.LevelLocal)
	f.SetRule(readOnly("/l"))
	var busy *storage.BusyError
	if s, err := storage.Open(vfs.With(t.Context(), f), degradeOptions("two", "j")); !errors.As(err, &busy) {
		t.Errorf("another run is alive: got %v, %v, want a *BusyError", s, err)
	}
	f.SetRule(nil)
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	f.SetRule(readOnly("/l"))
	var other *storage.JobError
	if s, err := storage.Open(vfs.With(t.Context(), f), degradeOptions("two", "k")); !errors.As(err, &other) {
		t.Errorf("another job's: got %v, %v, want a *JobError", s, err)
	}
	f.RemoveAll("/g")
	f.MkdirAll("/g")
	s, err := storage.Open(vfs.With(t.Context(), f), degradeOptions("two", "j"))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if out := s.Unwritable(); len(out) != 1 || !errors.Is(out[storage.LevelLocal], syscall.EROFS) ||
		errors.Is(out[storage.LevelLocal], fs.ErrNotExist) || errors.Is(out[storage.LevelLocal], fs.ErrPermission) {
		t.Errorf("out: %v", out)
	}
	list, _, err := s.Candidates(t.Context())
	if err != nil || len(list) != 1 || list[0].Epoch != 1 {
		t.Errorf("candidates %v, %v, want epoch 1", list, err)
	}
	durable, err := s.NoteRestore(t.Context(), 1)
	if err != nil || durable() != nil {
		t.Errorf("note of a restore: %v", err)
	}
	put(t, s, 2, storage.LevelGlobal)
	if _, err := s.Prune(t.Context()); err != nil {
		t.Error(err)
	}
}

// put commits an epoch of one rank at a level.
func put(t *testing.T, s *storage.Store, e storage.Epoch, level string) {
	t.Helper()
	b := storage.Bytes("contents")
	info, err := s.Put(context.Background(), e, level, []storage.Section{{Name: "a", Size: int64(len(b)), Source: b}})
	if err == nil {
		err = s.Commit(context.Background(), e, level, []storage.ShardInfo{info})
	}
	if err != nil {
		t.Fatal(err)
	}
}

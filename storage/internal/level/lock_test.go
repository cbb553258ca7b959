package level_test

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-hpc/holdfast/internal/vfs"
	"github.com/holdfast-hpc/holdfast/storage"
	"github.com/holdfast-hpc/holdfast/storage/internal/format"
	"github.com/holdfast-hpc/holdfast/storage/internal/level"
	"github.com/holdfast-hpc/holdfast/storage/storagetest/jobtest"
	"github.com/holdfast-hpc/holdfast/test/crashfs"
)

const lockFile = "/l/" + format.LockName

func lockFS() *crashfs.FS {
	f := crashfs.New()
	f.MkdirAll("/l")
	return f
}

// openRun opens the store of one rank of a run of two.
func openRun(t *testing.T, f *crashfs.FS, run string, rank int) (*storage.Store, error) {
	t.Helper()
	return storage.Open(vfs.With(t.Context(), f), storage.Options{Job: "j", Run: run, Rank: rank, Size: 2,
		Levels: []storage.LevelConfig{{Name: storage.LevelLocal, Dir: "/l"}}})
}

func mustOpenRun(t *testing.T, f *crashfs.FS, run string, rank int) *storage.Store {
	t.Helper()
	s, err := openRun(t, f, run, rank)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// elsewhere is a process of another machine.
var elsewhere = format.Process{Node: "n9", Machine: "another boot", PID: 4711, Started: 1}

// plant writes a lock as another run would.
func plant(t *testing.T, f *crashfs.FS, l format.Lock) {
	t.Helper()
	d := level.NewDir(f, storage.LevelLocal, "/l", 0)
	if err := f.Remove(lockFile); err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	if err := level.WriteFile(f, d.LockPath(), l.Encode()); err != nil {
		t.Fatal(err)
	}
}

func TestSecondRunIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := lockFS()
		first := mustOpenRun(t, f, "a", 0)
		second := mustOpenRun(t, f, "a", 1) // shares it
		temp := "/l/" + level.TempName("x", 1)
		if err := level.WriteFile(f, temp, nil); err != nil {
			t.Fatal(err)
		}
		var busy *storage.BusyError
		_, err := openRun(t, f, "b", 1)
		if !errors.As(err, &busy) || busy.PID != level.ThisProcess().PID ||
			!strings.Contains(err.Error(), "end that run first") {
			t.Errorf("got %v, want a *BusyError with this process and what to do", err)
		}
		if _, err := f.Stat(temp); err != nil {
			t.Errorf("the refused run cleared away what the live one is writing: %v", err)
		}
		time.Sleep(time.Hour)
		jobtest.Take(t, []*storage.Store{first, second}, 1, storage.LevelLocal,
			func(r int) []storage.Section { return jobtest.SmallSections(r, 1) })
		if err := errors.Join(first.Close(), second.Close()); err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		if err := mustOpenRun(t, f, "b", 0).Close(); err != nil || time.Since(start) > 0 {
			t.Errorf("after the end of the first run: %v after %v", err, time.Since(start))
		}
		if _, err := f.Stat(lockFile); err == nil {
			t.Error("the lock stays after Close")
		}
	})
}

// TestRestartAfterDeath opens a directory whose last run did not close it.
func TestRestartAfterDeath(t *testing.T) {
	dead := level.ThisProcess()
	dead.Started++ // another process had this PID
	for _, c := range []struct {
		name  string
		owner format.Process
		waits time.Duration
	}{
		{"on this machine", dead, 0},
		{"on another machine", elsewhere, level.StaleBeats * level.LockBeat},
		{"no one knows where", format.Process{Node: "n9", PID: 1}, level.StaleBeats * level.LockBeat},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := lockFS()
				plant(t, f, format.Lock{Run: "dead", Owner: c.owner, Beat: 77})
				start := time.Now()
				s := mustOpenRun(t, f, "b", 0)
				if took := time.Since(start); took < c.waits || took > c.waits+level.LockBeat {
					t.Errorf("took %v, want %v", took, c.waits)
				}
				if err := s.Close(); err != nil {
					t.Error(err)
				}
				if strings.Contains(f.String(), format.TempSuffix) {
					t.Errorf("left behind:\n%s", f)
				}
			})
		})
	}
}

// TestLiveRunElsewhere watches a lock that is being rewritten, by a clock that is
// compared with no other.
func TestLiveRunElsewhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := lockFS()
		for _, c := range []struct {
			name string
			ends int // beats after which the other run ends; 0: never
			want bool
		}{{"lives on", 0, false}, {"is about to end", 4, true}, {"dies", 2, true}} {
			beats := 0
			d := level.NewDir(f, storage.LevelLocal, "/l", 0)
			l := &format.Lock{Run: "other", Owner: elsewhere}
			plant(t, f, *l)
			quit := make(chan struct{})
			go func() {
				for {
					select {
					case <-quit:
						return
					case <-time.After(level.LockBeat):
						if beats++; c.ends > 0 && beats > c.ends {
							return
						}
						if err := d.Beat(l); err != nil {
							t.Errorf("%s: %v", c.name, err)
						}
					}
				}
			}()
			s, err := openRun(t, f, "b", 0)
			close(quit)
			synctest.Wait()
			var busy *storage.BusyError
			if c.want && err != nil || !c.want && (!errors.As(err, &busy) || busy.Node != "n9" || busy.PID != 4711) {
				t.Errorf("%s: got %v", c.name, err)
			}
			if err == nil {
				if err := s.Close(); err != nil {
					t.Error(err)
				}
			}
		}
	})
}

// TestRunsThatRace starts many runs at once in a directory that a dead one left.
func TestRunsThatRace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := lockFS()
		plant(t, f, format.Lock{Run: "dead", Owner: elsewhere})
		const runs = 8
		stores, errs := make([]*storage.Store, runs), make([]error, runs)
		done := make(chan int)
		for i := range runs {
			go func() { stores[i], errs[i] = openRun(t, f, fmt.Sprint("run ", i), 0); done <- i }()
		}
		won := 0
		for range runs {
			i := <-done
			var busy *storage.BusyError
			if errs[i] == nil {
				won++
			} else if !errors.As(errs[i], &busy) {
				t.Errorf("run %d: %v", i, errs[i])
			}
		}
		if won != 1 {
			t.Errorf("%d runs have the directory", won)
		}
		for _, s := range stores {
			if s != nil {
				s.Close()
			}
		}
	})
}

// TestRivalDies: a run that died while it took over a dead one's directory keeps no
// other from it.
func TestRivalDies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := lockFS()
		plant(t, f, format.Lock{Run: "dead", Owner: elsewhere})
		d := level.NewDir(f, "", "/l", 0)
		_, raw, err := d.ReadLock()
		if err != nil {
			t.Fatal(err)
		}
		if err := level.WriteFile(f, d.ClaimPath(raw), raw); err != nil {
			t.Fatal(err)
		}
		s := mustOpenRun(t, f, "a", 0)
		if l, _, err := d.ReadLock(); err != nil || l == nil || l.Run != "a" {
			t.Errorf("the lock is that of %+v, %v", l, err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		if list, err := f.ReadDir("/l"); err != nil || slices.ContainsFunc(list, func(e vfs.Entry) bool {
			return strings.HasPrefix(e.Name, format.LockName)
		}) {
			t.Errorf("left behind: %v, %v", list, err)
		}
	})
}

// TestLockLost: a run that was stopped until another one took its
// directory writes nothing more.
func TestLockLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := lockFS()
		s := mustOpenRun(t, f, "a", 0)
		plant(t, f, format.Lock{Run: "b", Owner: elsewhere})
		time.Sleep(2 * level.LockBeat)
		var busy *storage.BusyError
		if _, err := s.Put(t.Context(), 1, storage.LevelLocal, jobtest.SmallSections(0, 1)); !errors.As(err, &busy) {
			t.Errorf("put: got %v, want a *BusyError", err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		if l, _, err := level.NewDir(f, "", "/l", 0).ReadLock(); err != nil || l.Run != "b" {
			t.Errorf("the other run's lock is gone: %v, %v", l, err)
		}
	})
}

// TestLockTidiedAway: someone removes the file, or makes it unreadable, while the
// run lives.
func TestLockTidiedAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := lockFS()
		s := mustOpenRun(t, f, "a", 0)
		defer s.Close()
		for at := int64(0); at < jobtest.FileSize(t, f, lockFile); at += 7 {
			if err := f.Flip(lockFile, at, 1); err != nil {
				t.Fatal(err)
			}
			time.Sleep(2 * level.LockBeat)
			if l, _, err := level.NewDir(f, "", "/l", 0).ReadLock(); err != nil || l == nil || l.Run != "a" {
				t.Fatalf("byte %d: not written again: %v, %v", at, l, err)
			}
		}
		if err := f.Remove(lockFile); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * level.LockBeat)
		if _, err := f.Stat(lockFile); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("a directory that may be about to be removed gets a file: %v", err)
		}
		if _, err := s.Prune(t.Context()); err != nil { // as after each commit
			t.Error(err)
		}
		var busy *storage.BusyError
		if _, err := openRun(t, f, "b", 0); !errors.As(err, &busy) {
			t.Errorf("got %v, want a *BusyError", err)
		}
		if err := f.Remove(lockFile); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * level.LockBeat)
		other := mustOpenRun(t, f, "b", 0)
		defer other.Close()
		if _, err := s.Prune(t.Context()); !errors.As(err, &busy) {
			t.Errorf("another run has taken the directory: got %v, want a *BusyError", err)
		}
	})
}

func TestDamagedLockIsNoObstacle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := lockFS()
		plant(t, f, format.Lock{Run: "dead", Owner: elsewhere})
		for at := range jobtest.FileSize(t, f, lockFile) {
			if at > 0 {
				plant(t, f, format.Lock{Run: "dead", Owner: elsewhere})
			}
			f.Flip(lockFile, at, 8)
			if err := mustOpenRun(t, f, "b", 0).Close(); err != nil {
				t.Fatalf("byte %d: %v", at, err)
			}
		}
	})
}

package level_test

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-hpc/holdfast/internal/vfs"
	"github.com/holdfast-hpc/holdfast/storage"
	"github.com/holdfast-hpc/holdfast/storage/internal/format"
	"github.com/holdfast-hpc/holdfast/storage/internal/level"
	"github.com/holdfast-hpc/holdfast/test/crashfs"
)

// lossyFS behaves as a network file system does whose server loses answers and stands still: a call
// whose answer is lost is made again, and reports what it finds then; a call to a server that stands
// still waits until it goes on.
type lossyFS struct {
	*crashfs.FS
	lose func() bool // whether this answer is lost

	mu    sync.Mutex // guards until
	until time.Time  // the server stands still
}

// Remote makes locks those of a network file system.
func (f *lossyFS) Remote(string) bool { return true }

// hang makes the server stand still.
func (f *lossyFS) hang(d time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.until = time.Now().Add(d)
}

func (f *lossyFS) wait() {
	f.mu.Lock()
	d := time.Until(f.until)
	f.mu.Unlock()
	time.Sleep(d)
}

// again returns the answer to the second request, where the first was carried out.
func (f *lossyFS) again(err error, second error, op, name string) error {
	if err == nil && f.lose != nil && f.lose() {
		return &fs.PathError{Op: op, Path: name, Err: second}
	}
	return err
}

func (f *lossyFS) Link(from, to string) error {
	f.wait()
	return f.again(f.FS.Link(from, to), fs.ErrExist, "link", to)
}

func (f *lossyFS) Rename(from, to string) error {
	f.wait()
	return f.again(f.FS.Rename(from, to), fs.ErrNotExist, "rename", from)
}

func (f *lossyFS) Remove(name string) error {
	f.wait()
	return f.again(f.FS.Remove(name), fs.ErrNotExist, "remove", name)
}

func (f *lossyFS) Open(name string) (vfs.File, error) {
	f.wait()
	return f.FS.Open(name)
}

func (f *lossyFS) Edit(name string, direct bool) (vfs.File, error) {
	f.wait()
	return f.FS.Edit(name, direct)
}

func (f *lossyFS) Stat(name string) (vfs.Entry, error) {
	f.wait()
	return f.FS.Stat(name)
}

// claimant is a store as far as its lock goes.
type claimant struct {
	d    *level.Dir
	lock *format.Lock
}

func claimantOn(f vfs.FS, run string, rank int, owner format.Process) *claimant {
	return &claimant{level.NewDir(f, storage.LevelGlobal, "/l", rank), &format.Lock{Run: run, Owner: owner}}
}

func (c *claimant) take(t *testing.T) (bool, error) {
	return c.d.Lock(t.Context(), c.lock, level.BeatOf(c.d))
}

func machine(name string) format.Process { return format.Process{Node: name, Machine: name, PID: 1} }

// TestLostReplies: whatever answers a file server loses, of runs that race one has the directory,
// of its ranks one beats, and nothing stays behind.
func TestLostReplies(t *testing.T) {
	for seed := range uint64(60) {
		synctest.Test(t, func(t *testing.T) {
			var mu sync.Mutex
			rng := rand.New(rand.NewPCG(seed, 7))
			f := &lossyFS{FS: lockFS(), lose: func() bool { mu.Lock(); defer mu.Unlock(); return rng.IntN(2) == 0 }}
			if seed%2 == 0 {
				plant(t, f.FS, format.Lock{Run: "dead", Owner: elsewhere})
			}
			const runs, ranks = 3, 2
			var owners, won [runs]int
			var first *claimant
			var wg sync.WaitGroup
			for run := range runs {
				for rank := range ranks {
					c := claimantOn(f, fmt.Sprint("run ", run), run*ranks+rank, machine(fmt.Sprint(run, ".", rank)))
					wg.Go(func() {
						owned, err := c.take(t)
						var busy *storage.BusyError
						mu.Lock()
						if err == nil {
							won[run]++
						} else if !errors.As(err, &busy) {
							t.Errorf("seed %d: run %d, rank %d: %v", seed, run, rank, err)
						}
						if owned {
							owners[run]++
							first = c
						}
						mu.Unlock()
						for end := time.Now().Add(2 * time.Minute); owned && time.Now().Before(end); {
							time.Sleep(level.LockBeatSlow)
							if err := c.d.Beat(c.lock); err != nil {
								t.Errorf("seed %d: beat: %v", seed, err)
							}
						}
					})
				}
			}
			wg.Wait()
			for run := range runs {
				if won[run] > 0 && (won[run] != ranks || owners[run] != 1) || (owners[run] > 0) != (won[run] > 0) {
					t.Errorf("seed %d: run %d: %d ranks won, %d beat", seed, run, won[run], owners[run])
				}
			}
			if owners[0]+owners[1]+owners[2] != 1 {
				t.Fatalf("seed %d: owners %v", seed, owners)
			}
			if err := first.d.Unlock(first.lock); err != nil {
				t.Errorf("seed %d: unlock: %v", seed, err)
			}
			if list, err := f.ReadDir("/l"); err != nil || len(list) > 0 {
				t.Errorf("seed %d: left behind: %v, %v", seed, list, err)
			}
		})
	}
}

// TestServerStandsStill: the lock of a run whose file server stood still for minutes is not taken
// over: its owner could not beat any more than others could look. One that is dead is replaced
// after thirty seconds, not before.
func TestServerStandsStill(t *testing.T) {
	for _, dies := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			f := &lossyFS{FS: lockFS()}
			owner := claimantOn(f, "a", 0, machine("n1"))
			if owned, err := owner.take(t); !owned || err != nil {
				t.Fatal(owned, err)
			}
			quit := make(chan struct{})
			go func() {
				for !dies {
					select {
					case <-time.After(level.LockBeatSlow):
						if err := owner.d.Beat(owner.lock); err != nil {
							t.Errorf("beat: %v", err)
						}
					case <-quit:
						return
					}
				}
			}()
			began, hung := time.Now(), 5*time.Minute
			time.AfterFunc(12*time.Second, func() { f.hang(hung) })
			owned, err := claimantOn(f, "b", 1, machine("n2")).take(t)
			took := time.Since(began)
			close(quit)
			var busy *storage.BusyError
			switch least := hung + 12*time.Second + level.StaleBeats*level.LockBeatSlow; {
			case !dies && !errors.As(err, &busy):
				t.Errorf("the lock of a live run: got %v, %v after %v", owned, err, took)
			case dies && (!owned || err != nil || took < least || took > least+level.LockBeatSlow):
				t.Errorf("the lock of a dead run: got %v, %v after %v, want it after %v", owned, err, took, least)
			}
		})
	}
}

// TestStoppedLooker: a process that was stopped between two looks knows nothing of the time between.
func TestStoppedLooker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &lossyFS{FS: lockFS()}
		plant(t, f.FS, format.Lock{Run: "a", Owner: elsewhere})
		looks := 0
		stopped := &stoppedFS{lossyFS: f, look: func() {
			if looks++; looks == 3 {
				time.Sleep(10 * time.Minute) // before the request goes out
			}
		}}
		began := time.Now()
		owned, err := claimantOn(stopped, "b", 0, machine("n2")).take(t)
		if least := 10*time.Minute + level.StaleBeats*level.LockBeatSlow; !owned || err != nil ||
			time.Since(began) < least {
			t.Errorf("got %v, %v after %v, want at least %v", owned, err, time.Since(began), least)
		}
	})
}

type stoppedFS struct {
	*lossyFS
	look func()
}

func (f *stoppedFS) Stat(name string) (vfs.Entry, error) {
	f.look()
	return f.lossyFS.Stat(name)
}

// TestLostClaim: a run whose claim to a dead owner's lock was granted, and which did not hear so,
// does not wait for itself.
func TestLostClaim(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &lossyFS{FS: lockFS(), lose: func() bool { return true }}
		plant(t, f.FS, format.Lock{Run: "dead", Owner: elsewhere})
		began, most := time.Now(), (level.StaleBeats+1)*level.LockBeatSlow
		owned, err := claimantOn(f, "b", 0, machine("n2")).take(t)
		if took := time.Since(began); !owned || err != nil || took > most {
			t.Errorf("got %v, %v after %v, want it within %v", owned, err, took, most)
		}
	})
}

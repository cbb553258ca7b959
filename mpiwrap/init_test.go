package mpiwrap

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-hpc/holdfast/mpiwrap/internal/driver"
	"github.com/holdfast-hpc/holdfast/mpiwrap/internal/sim"
	"golang.org/x/sys/unix"
)

// stuck is a driver whose Finalize returns only when told to, with an error.
type stuck struct {
	driver.Driver
	until chan struct{}
}

func (s stuck) Finalize() error {
	<-s.until
	return &driver.Error{Class: driver.ClassOther, Text: "ended"}
}

// TestFinalize: it waits for a rank that still computes. When all ranks are there, it leaves a
// library that hangs behind, with a warning and no error. It returns errors that the library
// reports in time.
func TestFinalize(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		before := slog.Default()
		defer slog.SetDefault(before)
		slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))
		const late = time.Hour
		w := sim.New(3, sim.Options{})
		hangs := stuck{w.Rank(0), make(chan struct{})}
		defer close(hangs.until)
		fails := stuck{w.Rank(1), make(chan struct{})}
		close(fails.until)
		errs, took := make([]error, 3), make([]time.Duration, 3)
		var ranks sync.WaitGroup
		start := time.Now()
		for i, d := range []driver.Driver{hangs, fails, w.Rank(2)} {
			ranks.Go(func() {
				c, err := newWorld(d)
				if err != nil {
					t.Error(err)
					return
				}
				if i == 2 {
					time.Sleep(late)
				}
				errs[i] = c.finalize(0)
				took[i] = time.Since(start)
				if err := c.Barrier(); !errors.Is(err, ErrFinalized) {
					t.Errorf("rank %d: a call after Finalize: got %v", i, err)
				}
			})
		}
		ranks.Wait()
		if errs[0] != nil || took[0] != late+defaultFinalizeTimeout {
			t.Errorf("a library that hangs: got %v after %v, want no error after %v", errs[0], took[0],
				late+defaultFinalizeTimeout)
		}
		if errs[1] == nil || took[1] != late || errs[2] != nil || took[2] != late {
			t.Errorf("got %v after %v and %v after %v, want an error and none after %v", errs[1], took[1], errs[2],
				took[2], late)
		}
		if n := strings.Count(log.String(), "MPI_Finalize hangs"); n != 1 || !strings.Contains(log.String(), "rank=0") {
			t.Errorf("want one line, of rank 0:\n%s", log.String())
		}
	})
}

// TestGPUAwareVariable: a word that is not understood is refused.
func TestGPUAwareVariable(t *testing.T) {
	t.Setenv(gpuAwareVar, "on")
	if _, err := Init(Options{}); err == nil || !strings.Contains(err.Error(), `HOLDFAST_GPU_AWARE: "on" is none of`) {
		t.Errorf("Init with a word that is not understood: got %v", err)
	}
}

// TestFreedThings: what was protected and is freed at the checkpoint is freed after a
// restart, and may be freed again as the program goes its way to the end.
func TestFreedThings(t *testing.T) {
	for _, n := range []int{0, 1, 21} { // bytes of the window
		var win, req, persistent, mail []byte
		if err := ranks(1, func(w *Comm) error {
			x, err := WinAllocate[int8](w, n)
			if err != nil {
				return err
			}
			r := NewRequest(w, []int{0})
			p, err := RecvInit(w, []int{0}, 0, 1)
			if err != nil {
				return err
			}
			if err := errors.Join(Start(p), Send(w, []int{1}, 0, 1), WaitAll(p), x.Free(), r.Free(),
				p.Free()); err != nil {
				return err
			}
			if _, err := w.Endpoint().Drain(context.Background()); err != nil {
				return err
			}
			var errs [4]error
			win, errs[0] = x.MarshalBinary()
			req, errs[1] = r.MarshalBinary()
			persistent, errs[2] = p.MarshalBinary()
			mail, errs[3] = w.Endpoint().SaveMailbox()
			return errors.Join(errs[:]...)
		}); err != nil {
			t.Fatal(err)
		}
		if err := ranks(1, func(w *Comm) error {
			x, err := WinAllocate[int8](w, n)
			if err != nil {
				return err
			}
			r := NewRequest(w, []int{0})
			p, err := RecvInit(w, []int{0}, 0, 1)
			if err := errors.Join(err, x.UnmarshalBinary(win), r.UnmarshalBinary(req), p.UnmarshalBinary(persistent),
				loadMailbox(w.Endpoint(), mail)); err != nil {
				return err
			}
			for _, err := range []error{x.Fence(), x.Put(0, 0, nil), x.Lock(0, true)} {
				if !errors.Is(err, ErrFreed) {
					return fmt.Errorf("the window: got %w, want ErrFreed", err)
				}
			}
			if again, err := x.MarshalBinary(); !slices.Equal(again, win) || x.Memory() != nil {
				return fmt.Errorf("the next checkpoint has %q: %w", again, err)
			}
			for _, err := range []error{r.Irecv(0, 1), Start(p)} {
				if !errors.Is(err, ErrRequest) {
					return fmt.Errorf("a request: got %w, want ErrRequest", err)
				}
			}
			return errors.Join(x.Free(), r.Free(), p.Free())
		}); err != nil {
			t.Errorf("%d bytes: %v", n, err)
		}
	}
}

// TestWrongRequest: the error says what is wrong with the request.
func TestWrongRequest(t *testing.T) {
	if err := ranks(1, func(w *Comm) error {
		rec, err := NewRequest(w, make([]int, 2)).MarshalBinary()
		if err != nil {
			return err
		}
		err = NewRequest(w, make([]int, 3)).UnmarshalBinary(rec)
		if !errors.Is(err, ErrMismatch) || strings.Contains(err.Error(), "communicator") ||
			!strings.Contains(err.Error(), "had 16 bytes, this one has 24") {
			t.Errorf("got %v", err)
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
}

// ending is a driver that notes what is freed before MPI ends, and on which thread.
type ending struct {
	driver.Driver
	freed  int
	at     int // windows freed when Finalize came
	thread int
}

func (e *ending) WinFree(h driver.Handle) error { e.freed++; return e.Driver.WinFree(h) }
func (e *ending) Finalize() error {
	e.at, e.thread = e.freed, unix.Gettid()
	return e.Driver.Finalize()
}

// TestFinalizeFreesWindows that the program has left, those with open epochs too.
func TestFinalizeFreesWindows(t *testing.T) {
	world := sim.New(2, sim.Options{})
	drivers := []*ending{{Driver: world.Rank(0)}, {Driver: world.Rank(1)}}
	done := make(chan error, 2)
	for _, d := range drivers {
		go func() {
			done <- func() error {
				w, err := newWorld(d)
				if err != nil {
					return err
				}
				for i := range 3 {
					x, err := WinAllocate[int](w, 1)
					if err != nil {
						return err
					}
					switch i {
					case 0:
						err = x.LockAll()
					case 1:
						err = x.Lock(w.Rank(), false)
					}
					if err != nil {
						return err
					}
				}
				return w.finalize(0)
			}()
		}()
	}
	if err := errors.Join(<-done, <-done); err != nil || drivers[0].at != 3 || drivers[1].at != 3 {
		t.Errorf("%d and %d windows were freed, want 3: %v", drivers[0].at, drivers[1].at, err)
	}
}

// TestFinalizeOnTheThreadOfInit, whichever thread the program is on.
func TestFinalizeOnTheThreadOfInit(t *testing.T) {
	d := &ending{Driver: sim.New(1, sim.Options{}).Rank(0)}
	begin := 0
	th := newThread()
	begun := make(chan struct{})
	th <- func() { defer close(begun); begin = unix.Gettid() }
	<-begun
	w, err := newWorld(d)
	if err != nil {
		t.Fatal(err)
	}
	w.st.thread = th
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := w.finalize(0); err != nil || d.thread != begin || begin == unix.Gettid() {
		t.Errorf("began on thread %d, ended on %d, the program is on %d: %v", begin, d.thread, unix.Gettid(), err)
	}
}

// TestFlushUnpins: inside one long LockAll epoch, buffers are held until the accesses
// to their target are flushed, and no longer.
func TestFlushUnpins(t *testing.T) {
	world := sim.New(2, sim.Options{})
	ready, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		w, err := over(pinning{world.Rank(1)}, nil)
		if err == nil {
			_, err = WinAllocate[int](w, 1)
		}
		if err != nil {
			t.Error(err)
		}
		<-ready
	}()
	w, err := over(pinning{world.Rank(0)}, nil)
	if err != nil {
		t.Fatal(err)
	}
	x, err := WinAllocate[int](w, 1)
	if err := errors.Join(err, x.LockAll()); err != nil {
		t.Fatal(err)
	}
	held := func() int { return len(x.w.pinned) }
	put := func() { err = errors.Join(err, x.Put(0, 0, []int{1}), x.Put(1, 0, []int{1})) }
	for _, k := range []struct {
		flush func() error
		left  int
	}{
		{func() error { return x.Flush(1) }, 1}, {func() error { return x.FlushLocal(0) }, 0},
		{x.FlushAll, 0}, {x.UnlockAll, 0},
	} {
		if k.left == 1 || held() == 0 {
			put()
		}
		if err := errors.Join(err, k.flush()); err != nil || held() != k.left {
			t.Errorf("buffers for %d targets are held, want %d: %v", held(), k.left, err)
		}
	}
	close(ready)
	<-done
}

// TestForeignCalls builds libraries that call MPI by themselves, and one that does not.
func TestForeignCalls(t *testing.T) {
	lib := filepath.Join(t.TempDir(), "libuser.so")
	const source = "#include <mpi.h>\nint f(void) { return MPI_Barrier(MPI_COMM_WORLD); }"
	for cc, source := range map[string]string{"mpicc.openmpi": source, "mpicc.mpich": source, "cc": "int f;"} {
		cmd := exec.Command(cc, "-shared", "-fPIC", "-x", "c", "-o", lib, "-")
		cmd.Stdin = strings.NewReader(source)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", cc, err, out)
		}
		if got, want := usesMPI(lib), cc != "cc"; got != want {
			t.Errorf("%s: got %v, want %v", cc, got, want)
		}
	}
	maps := "7f00-7f01 r-xp 00000000 08:01 12 /usr/lib/libuser.so\n7f01-7f02 rw-p 00000000 08:01 12 " +
		"/usr/lib/libuser.so\n7f03-7f04 r-xp 0 00:00 0 [vdso]\n7f05-7f06 r-xp 00000000 08:01 12 /usr/lib/libuser.so\n"
	if got := mappedObjects(strings.NewReader(maps)); len(got) != 1 || got[0] != "/usr/lib/libuser.so" {
		t.Errorf("mapped objects: %v", got)
	}
}

// pinning is a driver whose buffers must not move, as a real library's.
type pinning struct{ driver.Driver }

func (p pinning) Info() driver.Info {
	i := p.Driver.Info()
	i.Pin = true
	return i
}

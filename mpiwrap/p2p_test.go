package mpiwrap_test

import (
	"errors"
	"fmt"
	"math"
	"os"
	"runtime"
	"runtime/debug"
	"testing"
	"unsafe"

	"github.com/holdfast-hpc/holdfast/mpiwrap"
	"github.com/holdfast-hpc/holdfast/mpiwrap/mpitest"
)

// onSim runs f on n simulated ranks under several seeds.
func onSim(t *testing.T, n int, f func(w *mpiwrap.Comm) error) {
	t.Helper()
	for seed := range uint64(10) {
		if err := mpitest.Run(n, seed, f); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
	}
}

func TestRing(t *testing.T) {
	onSim(t, 4, func(w *mpiwrap.Comm) error {
		next, prev := (w.Rank()+1)%w.Size(), (w.Rank()+w.Size()-1)%w.Size()
		in := make([]int, 1000)
		out := make([]int, 1000)
		for i := range out {
			out[i] = w.Rank()*1000 + i
		}
		r, err := mpiwrap.Irecv(w, in, prev, 7)
		if err != nil {
			return err
		}
		s, err := mpiwrap.Isend(w, out, next, 7)
		if err != nil {
			return err
		}
		if err := mpiwrap.WaitAll(r, s); err != nil {
			return err
		}
		if in[999] != prev*1000+999 {
			return errors.New("wrong data")
		}
		if err := mpiwrap.Allreduce(w, in[:1], []int{1}, mpiwrap.Sum); err != nil {
			return err
		}
		if in[0] != w.Size() {
			return fmt.Errorf("wrong sum %d", in[0])
		}
		c, err := w.Split(w.Rank()%2, 0)
		if err != nil {
			return err
		}
		if c.Size() != 2 || c.Name() != []string{"world.1[0]", "world.1[1]"}[w.Rank()%2] {
			return errors.New("wrong split " + c.Name())
		}
		if err := c.Barrier(); err != nil {
			return err
		}
		return c.Free()
	})
}

func TestDeadlockIsReported(t *testing.T) {
	err := mpitest.Run(2, 1, func(w *mpiwrap.Comm) error {
		_, err := mpiwrap.Recv(w, make([]byte, 1), 1-w.Rank(), 0)
		return err
	})
	if !errors.Is(err, mpitest.ErrDeadlock) {
		t.Errorf("got %v, want ErrDeadlock", err)
	}
}

func TestAlloc(t *testing.T) {
	v, err := mpiwrap.Alloc[float64](100_000)
	if err != nil {
		t.Fatal(err)
	}
	if len(v) != 100_000 || uintptr(unsafe.Pointer(&v[0]))%uintptr(os.Getpagesize()) != 0 {
		t.Errorf("got %d values at %p, want 100000 at the start of a page", len(v), &v[0])
	}
	for i := range v {
		if v[i] != 0 {
			t.Fatalf("value %d is %v, want 0", i, v[i])
		}
		v[i] = float64(i)
	}
	runtime.GC()
	debug.FreeOSMemory()
	for i := range v {
		if v[i] != float64(i) {
			t.Fatalf("value %d is %v after a collection, want %d", i, v[i], i)
		}
	}
	if v, err := mpiwrap.Alloc[int32](0); err != nil || v == nil || len(v) != 0 {
		t.Errorf("no values: got %v, %v", v, err)
	}
	if _, err := mpiwrap.Alloc[int32](-1); !errors.Is(err, mpiwrap.ErrLength) {
		t.Errorf("a negative count: got %v, want ErrLength", err)
	}
	if _, err := mpiwrap.Alloc[int64](math.MaxInt / 4); !errors.Is(err, mpiwrap.ErrTooLarge) {
		t.Errorf("more than can be addressed: got %v, want ErrTooLarge", err)
	}
	if _, err := mpiwrap.Alloc[int64](math.MaxInt / 16); err == nil {
		t.Error("an exabyte was granted")
	}
}

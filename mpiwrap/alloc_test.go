package mpiwrap_test

import (
	"errors"
	"math"
	"os"
	"runtime"
	"runtime/debug"
	"testing"
	"unsafe"

	"github.com/holdfast-hpc/holdfast/mpiwrap"
)

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

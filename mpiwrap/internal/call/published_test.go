package call

import (
	"sync"
	"testing"
	"unsafe"
)

// TestOrder: whoever sees a value sees what was written before it.
func TestOrder(t *testing.T) {
	const rounds = 200_000
	var before, after Published
	var wg sync.WaitGroup
	wg.Go(func() {
		for i := range uint64(rounds) {
			before.Set(i + 1)
			after.Increase(1)
		}
	})
	for {
		a := after.Load()
		if b := before.Load(); b < a {
			t.Errorf("saw %d, but %d of what was written before it", a, b)
			break
		}
		if a == rounds {
			break
		}
	}
	wg.Wait()
}

// TestSize: Set writes all of the value.
func TestSize(t *testing.T) {
	if n := unsafe.Sizeof(Published{}); n != 8 {
		t.Errorf("got %d bytes, want 8", n)
	}
	var u [3]Published
	u[1].Set(1<<64 - 1)
	if u[0].Load() != 0 || u[1].Load() != 1<<64-1 || u[2].Load() != 0 {
		t.Errorf("got %v", []uint64{u[0].Load(), u[1].Load(), u[2].Load()})
	}
}

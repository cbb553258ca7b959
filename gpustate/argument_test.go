package gpustate

import (
	"errors"
	"testing"

	"github.com/holdfast-hpc/holdfast/gpustate/internal/driver"
)

func TestArgumentBytes(t *testing.T) {
	type vector struct{ X, Y, Z, W float32 }
	for _, c := range []struct {
		value any
		bytes int
	}{
		{int8(1), 1}, {uint16(1), 2}, {int32(-1), 4}, {uint64(1), 8}, {float32(1), 4}, {float64(1), 8},
		{complex64(1), 8}, {[3]int16{}, 6}, {vector{}, 16}, {struct {
			A int8
			B [2]vector
		}{}, 36}, {Value{1, 2, 3}, 3},
	} {
		var a argument
		if err := a.from(c.value); err != nil || a.kind != driver.ArgValue || len(a.value) != c.bytes {
			t.Errorf("%T: %d bytes, %v, want %d", c.value, len(a.value), err, c.bytes)
		}
	}
	for _, bad := range []any{nil, 1, uint(1), uintptr(1), true, "text", []float32{1}, new(int), map[int]int{},
		struct{}{}, [0]int32{}, struct{ P *int }{}, struct{ N int }{}, Value{}, (*Image)(nil), (*Sampler)(nil),
		&HostBuffer{}} {
		var a argument
		if err := a.from(bad); !errors.Is(err, ErrArgType) {
			t.Errorf("%T: got %v, want ErrArgType", bad, err)
		}
	}
	var a argument
	if err := a.from(Local(0)); !errors.Is(err, ErrRange) {
		t.Errorf("Local(0): got %v, want ErrRange", err)
	}
}

// TestRecordingAllocates holds the hot path to what it needs.
func TestRecordingAllocates(t *testing.T) {
	d, _ := fakeDevice(t)
	s := newSetup(t, d, 4)
	s.fill(t)
	var value any = float32(3)
	if n := testing.AllocsPerRun(100, func() { ok(t, s.k.SetArg(2, value)) }); n > 1 { // the fake copies it
		t.Errorf("SetArg allocates %g times", n)
	}
}

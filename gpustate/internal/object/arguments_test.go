package object

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
		var a Argument
		if err := a.From(c.value); err != nil || a.Kind != driver.ArgValue || len(a.Value) != c.bytes {
			t.Errorf("%T: %d bytes, %v, want %d", c.value, len(a.Value), err, c.bytes)
		}
	}
	for _, bad := range []any{nil, 1, uint(1), uintptr(1), true, "text", []float32{1}, new(int), map[int]int{},
		struct{}{}, [0]int32{}, struct{ P *int }{}, struct{ N int }{}, Value{}, (*Entry)(nil), &Kernel{}} {
		var a Argument
		if err := a.From(bad); !errors.Is(err, ErrArgType) {
			t.Errorf("%T: got %v, want ErrArgType", bad, err)
		}
	}
	var a Argument
	if err := a.From(Local(0)); !errors.Is(err, ErrRange) {
		t.Errorf("Local(0): got %v, want ErrRange", err)
	}
}

package cuda

import (
	"encoding/binary"
	"errors"
	"slices"
	"testing"

	"github.com/holdfast-hpc/holdfast/gpustate/internal/driver"
)

func TestOptions(t *testing.T) {
	for text, want := range map[string][]string{
		"":                      nil,
		"-D N=3 -I dir -DX":     {"-DN=3", "-Idir", "-DX"},
		"-cl-fast-relaxed-math": {"--use_fast_math"},
		"-cl-std=CL1.2 -cl-kernel-arg-info -Werror": {"-Werror"},
		"-cl-mad-enable --std=c++17":                {"--fmad=true", "--std=c++17"},
		"-D":                                        {"-D"},
	} {
		if got := options(text); !slices.Equal(got, want) {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
}

func TestChoose(t *testing.T) {
	for _, c := range []struct{ global, want [3]int }{
		{[3]int{4096, 1, 1}, [3]int{256, 1, 1}}, {[3]int{1000, 7, 1}, [3]int{250, 1, 1}},
		{[3]int{257, 1, 1}, [3]int{1, 1, 1}}, {[3]int{1, 1, 1}, [3]int{1, 1, 1}}, {[3]int{96, 2, 2}, [3]int{96, 1, 1}},
	} {
		got := choose(c.global)
		if got != c.want {
			t.Errorf("%v: got %v, want %v", c.global, got, c.want)
		}
		for i := range got {
			if c.global[i]%got[i] != 0 {
				t.Errorf("%v does not divide %v", got, c.global)
			}
		}
	}
}

func value(b ...byte) driver.Arg { return driver.Arg{Kind: driver.ArgValue, Value: b} }

// TestGather lays out a parameter list: local sizes and samplers take no place
// in it, values are aligned for any type.
func TestGather(t *testing.T) {
	d := &device{}
	k := &kernel{limit: 48 << 10, known: true, sizes: []int{8, 4, 12}}
	for i, a := range []driver.Arg{
		{Kind: driver.ArgMem, Handle: &mem{kind: driver.MemBuffer, p: 0x1122334455667788}},
		{Kind: driver.ArgLocal, Local: 100}, value(1, 2, 3, 4), {Kind: driver.ArgLocal, Local: 16},
		{Kind: driver.ArgSampler, Handle: driver.SamplerDesc{}}, value(make([]byte, 12)...),
	} {
		if err := d.SetArg(k, i, a); err != nil {
			t.Fatal(err)
		}
	}
	if err := d.gather(k); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(k.offs, []uint32{0, 16, 32}) || k.shared != 112+16 {
		t.Errorf("offsets %v, shared %d, want [0 16 32] and 128", k.offs, k.shared)
	}
	if p := binary.LittleEndian.Uint64(k.params); p != 0x1122334455667788 {
		t.Errorf("address %#x", p)
	}
	if err := d.SetArg(k, 5, driver.Arg{}); err != nil {
		t.Fatal(err)
	}
	if err := d.gather(k); !errors.Is(err, driver.ErrArgNotSet) {
		t.Errorf("an argument taken back: %v", err)
	}
}

func TestFits(t *testing.T) {
	for name, c := range map[string]struct {
		sizes []int
		args  []driver.Arg
		want  error
	}{
		"one missing": {[]int{4, 4}, []driver.Arg{value(1, 2, 3, 4)}, driver.ErrArgNotSet},
		"one more":    {[]int{4}, []driver.Arg{value(1, 2, 3, 4), value(1)}, nil},
		"too short":   {[]int{64}, []driver.Arg{value(1, 2, 3, 4)}, nil},
		"4 for 8":     {[]int{8}, []driver.Arg{value(1, 2, 3, 4)}, nil},
		"8 for 4":     {[]int{4}, []driver.Arg{value(1, 2, 3, 4, 5, 6, 7, 8)}, nil},
		"4 for 8 of three": {[]int{8, 8, 8}, []driver.Arg{value(make([]byte, 8)...), value(1, 2, 3, 4),
			value(make([]byte, 8)...)}, nil},
		"an object for a number": {[]int{4}, []driver.Arg{{Kind: driver.ArgMem, Handle: &mem{kind: driver.MemBuffer}}},
			nil},
		"12 of a struct of 16": {[]int{16}, []driver.Arg{value(make([]byte, 12)...)}, nil},
	} {
		k := &kernel{sizes: c.sizes, known: true}
		d := &device{}
		for i, a := range c.args {
			_ = d.SetArg(k, i, a)
		}
		err := d.gather(k)
		if err == nil || c.want != nil && !errors.Is(err, c.want) {
			t.Errorf("%s: got %v", name, err)
		}
	}
	k := &kernel{sizes: []int{64}} // an old driver does not tell
	d := &device{}
	_ = d.SetArg(k, 0, value(1))
	if err := d.gather(k); err != nil {
		t.Errorf("unknown parameters: %v", err)
	}
}

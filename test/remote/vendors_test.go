package remote

import (
	"errors"
	"testing"

	"github.com/holdfast-hpc/holdfast/gpustate"
)

const stirSource = `__kernel void stir(__global uint *x, uint by) {
	size_t i = get_global_id(0);
	x[i] = (x[i] ^ by) * 2654435761u + (uint)i;
}`

// TestAcrossVendors moves a program from server to server and vendor to vendor,
// to devices of its own process and back: what it computes in integers is what
// arithmetic says.
func TestAcrossVendors(t *testing.T) {
	l := newLab(t)
	var none *gpustate.NoDeviceError
	rusticl, _ := gpustate.ParseSelect("rusticl")
	if d, err := gpustate.Open(rusticl); errors.As(err, &none) {
		t.Skip("rusticl is not on this machine")
	} else if err != nil {
		t.Fatal(err)
	} else if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	one, two := l.serve("one"), l.serve("two", "--device", "rusticl")
	at := func(text string) gpustate.Select {
		sel, err := gpustate.ParseSelect(text)
		if err != nil {
			t.Fatal(err)
		}
		return sel
	}
	key := "key=" + l.key() + ","
	d, err := gpustate.Open(at(key + "remote=" + one.addr + ",pocl"))
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	const n = 1 << 12
	q, err1 := d.Queue("q")
	b, err2 := d.Buffer("x", 4*n)
	p, err3 := d.Program("p", gpustate.Sources{OpenCL: stirSource}, "")
	if err := errors.Join(err1, err2, err3); err != nil {
		t.Fatal(err)
	}
	k, err := p.Kernel("stir")
	if err == nil {
		err = q.Write(b, 0, make([]byte, 4*n))
	}
	if err != nil {
		t.Fatal(err)
	}
	want := make([]uint32, n)
	by := uint32(0)
	for _, to := range []string{"remote=" + two.addr + ",rusticl", "pocl", "remote=" + two.addr + ",pocl", "rusticl",
		"remote=" + one.addr + ",pocl", "rusticl", "remote=" + two.addr + ",rusticl"} {
		for range 20 { // on their way when the device moves
			by++
			if err := k.SetArgs(b, by); err != nil {
				t.Fatal(err)
			}
			if _, err := q.Launch(k, []int{n}, nil); err != nil {
				t.Fatal(err)
			}
			for i := range want {
				want[i] = (want[i]^by)*2654435761 + uint32(i)
			}
		}
		if err := d.MigrateTo(t.Context(), at(to)); err != nil {
			t.Fatalf("to %s: %v", to, err)
		}
		got := make([]uint32, n)
		if err := q.Read(b, 0, gpustate.Bytes(got)); err != nil {
			t.Fatalf("at %s: %v", to, err)
		}
		for i := range want {
			if got[i] != want[i] {
				t.Fatalf("at %s: element %d is %d, want %d", to, i, got[i], want[i])
			}
		}
	}
}

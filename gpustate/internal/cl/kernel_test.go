package cl

import (
	"encoding/binary"
	"testing"

	"github.com/holdfast-hpc/holdfast/gpustate/internal/driver"
)

// TestSetTwice: an argument that is set to what it is does not reach the driver, unless the driver has
// refused another one meanwhile and so forgotten it.
func TestSetTwice(t *testing.T) {
	d, q := poclDevice(t)
	d.remembers = true
	ok := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	const source = `__kernel void put(__global int *out, int v) { out[0] = v; }`
	p, err := d.Build(driver.ProgramDesc{Name: "p", OpenCL: source})
	ok(err)
	k, err := d.CreateKernel(p, "put")
	ok(err)
	var mems [2]driver.Handle
	for i := range mems {
		mems[i], err = d.CreateMem(driver.MemDesc{Kind: driver.MemBuffer, Bytes: 64})
		ok(err)
	}
	h := k.(*kernel)
	put := func(i int) driver.Arg { return driver.Arg{Kind: driver.ArgMem, Handle: mems[i]} }
	number := func(v uint32) driver.Arg {
		return driver.Arg{Kind: driver.ArgValue, Value: binary.LittleEndian.AppendUint32(nil, v)}
	}
	gives := func(what string, i int, want uint32) {
		t.Helper()
		_, err := d.Launch(q, k, driver.Grid{Dims: 1, Global: [3]int{1, 1, 1}}, nil)
		ok(err)
		ok(d.Finish(q))
		got := make([]byte, 4)
		_, err = get(d, q, mems[i], 0, got)
		ok(err)
		if got := binary.LittleEndian.Uint32(got); got != want {
			t.Errorf("%s: got %d, want %d", what, got, want)
		}
	}
	ok(d.SetArg(k, 0, put(0)))
	ok(d.SetArg(k, 1, number(1)))
	gives("set", 0, 1)
	ok(setArg(h.h, 1, number(2))) // behind the back of what is tested
	ok(setArg(h.h, 0, put(1)))
	ok(d.SetArg(k, 1, number(1)))
	ok(d.SetArg(k, 0, put(0)))
	gives("set again, not heard by the driver", 1, 2)
	ok(d.SetArg(k, 1, number(3)))
	ok(d.SetArg(k, 0, put(1)))
	ok(d.SetArg(k, 0, put(0)))
	gives("set to others", 0, 3)

	if err := d.SetArg(k, 1, driver.Arg{Kind: driver.ArgSampler, Handle: handle(0)}); err == nil {
		t.Fatal("a sampler that is none was taken for an int")
	}
	ok(setArg(h.h, 1, number(4)))
	ok(d.SetArg(k, 1, number(3)))
	gives("set again after a refused one", 0, 3)

	ok(d.ReleaseMem(mems[1]))
	ok(d.ReleaseMem(mems[0]))
	ok(d.ReleaseKernel(k))
	ok(d.ReleaseProgram(p))
}

package cl

import (
	"encoding/binary"
	"math/rand/v2"
	"testing"

	"github.com/holdfast-hpc/holdfast/gpustate/internal/driver"
)

// TestPointersStick sets arguments to buffers, shared memory, samplers and values in random
// order on a device that is taken to be one where pointers stick, so that kernels are made
// again; what they compute must not show it. Objects come and go meanwhile.
func TestPointersStick(t *testing.T) {
	d, q := poclDevice(t)
	d.pointersStick = true
	ok := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	p, err := d.Build(driver.ProgramDesc{Name: "p", OpenCL: `
__kernel void pick(__global int *out, __global const int *a, __global const int *b, sampler_t s, int add)
{
	out[0] = 100 * a[0] + b[0] + add;
}`})
	ok(err)
	k, err := d.CreateKernel(p, "pick")
	ok(err)
	ok(d.ReleaseProgram(p)) // the kernel keeps it
	made := func(kind driver.MemKind, v uint32) driver.Handle {
		h, err := d.CreateMem(driver.MemDesc{Kind: kind, Bytes: 64})
		ok(err)
		_, err = d.Write(q, h, 0, binary.LittleEndian.AppendUint32(nil, v), true, nil)
		ok(err)
		return h
	}
	sampler, err := d.CreateSampler(driver.SamplerDesc{})
	ok(err)
	ok(d.SetArg(k, 3, driver.Arg{Kind: driver.ArgSampler, Handle: sampler}))
	r := rand.New(rand.NewPCG(1, 1))
	kinds := []driver.MemKind{driver.MemBuffer, driver.MemShared}
	var at [3]driver.Handle
	var has [3]uint32
	add, renewed := uint32(0), 0
	for round := range 200 {
		for i := range at {
			if at[i] != nil && r.IntN(2) == 0 {
				continue
			}
			old := at[i]
			if old != nil && r.IntN(2) == 0 { // released while it is still set
				ok(d.ReleaseMem(old))
				old = nil
			}
			has[i] = uint32(r.IntN(100))
			at[i] = made(kinds[r.IntN(2)], has[i])
			before := k.(*kernel).h
			ok(d.SetArg(k, i, driver.Arg{Kind: driver.ArgMem, Handle: at[i]}))
			if k.(*kernel).h != before {
				renewed++
			}
			for j, a := range k.(*kernel).held {
				if m, ok := a.arg.Handle.(*mem); a.pointer && !(ok && m.svm) {
					t.Fatalf("round %d: argument %d has held a pointer and is to hold something else", round, j)
				}
			}
			if old != nil {
				ok(d.ReleaseMem(old))
			}
		}
		if round == 0 || r.IntN(3) == 0 {
			add = uint32(r.IntN(1000))
			ok(d.SetArg(k, 4, driver.Arg{Kind: driver.ArgValue, Value: binary.LittleEndian.AppendUint32(nil, add)}))
		}
		_, err = d.Launch(q, k, driver.Grid{Dims: 1, Global: [3]int{1, 1, 1}}, nil)
		ok(err)
		got := make([]byte, 4)
		ok(d.Finish(q))
		_, err = d.Read(q, at[0], 0, got, true, nil)
		ok(err)
		if got, want := binary.LittleEndian.Uint32(got), 100*has[1]+has[2]+add; got != want {
			t.Fatalf("round %d: got %d, want %d", round, got, want)
		}
	}
	if renewed == 0 {
		t.Error("no kernel was made again: the test tries nothing")
	}
	for _, h := range at {
		ok(d.ReleaseMem(h))
	}
	ok(d.ReleaseSampler(sampler))
	ok(d.ReleaseKernel(k))
}

// TestSetAgain: an argument that is set to what it is does not reach the driver, unless the driver has
// refused another one meanwhile and so forgotten it, or its object is gone.
func TestSetAgain(t *testing.T) {
	d, q := poclDevice(t)
	d.pointersStick = true
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
		_, err = d.Read(q, mems[i], 0, got, true, nil)
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

	ok(d.SetArg(k, 0, put(1)))
	ok(d.ReleaseMem(mems[1]))
	if h.held[0].is(&h.held[0].arg) {
		t.Error("an object that is gone is taken for what is set")
	}
	ok(d.ReleaseMem(mems[0]))
	ok(d.ReleaseKernel(k))
	ok(d.ReleaseProgram(p))
}

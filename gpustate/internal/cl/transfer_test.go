package cl

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"testing"

	"github.com/holdfast-hpc/holdfast/gpustate/internal/driver"
)

// poclDevice returns a device of PoCL, which `make setup` installs, with a queue.
func poclDevice(t *testing.T) (*device, driver.Handle) {
	t.Helper()
	infos, err := System.Devices()
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range infos {
		if i.Platform != "Portable Computing Language" {
			continue
		}
		d, err := System.Open(i.Index)
		if err != nil {
			t.Fatal(err)
		}
		q, err := d.CreateQueue(driver.QueueDesc{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := cmp.Or(d.ReleaseQueue(q), d.Close()); err != nil {
				t.Error(err)
			}
		})
		return d.(*device), q
	}
	t.Fatalf("PoCL is not installed: make setup")
	return nil, nil
}

func create(t *testing.T, d *device, m driver.MemDesc) driver.Handle {
	t.Helper()
	h, err := d.CreateMem(m)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.ReleaseMem(h); err != nil {
			t.Error(err)
		}
	})
	return h
}

// TestCopyOfShared: a copy from or to shared memory moves the bytes, and one that
// the other object refuses is an error.
func TestCopyOfShared(t *testing.T) {
	d, q := poclDevice(t)
	if !d.info.Shared {
		t.Fatal("PoCL has no SVM")
	}
	const n = 4096
	from := create(t, d, driver.MemDesc{Kind: driver.MemShared, Bytes: n})
	to := create(t, d, driver.MemDesc{Kind: driver.MemShared, Bytes: n})
	buffer := create(t, d, driver.MemDesc{Kind: driver.MemBuffer, Bytes: n})
	small := create(t, d, driver.MemDesc{Kind: driver.MemBuffer, Bytes: n / 4})
	want, got := bytes.Repeat([]byte("abcdefg!"), n/8), make([]byte, n)
	all := driver.Bytes(0, n)
	if _, err := put(d, q, from, want); err != nil {
		t.Fatal(err)
	}
	for _, dst := range []driver.Handle{to, buffer} {
		if _, err := d.Copy(q, dst, driver.Bytes(8, n-8), from, driver.Bytes(0, n-8), nil); err != nil {
			t.Fatal(err)
		}
		if _, err := get(d, q, dst, 8, got[:n-8]); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got[:n-8], want[:n-8]) {
			t.Error("the copy has other bytes")
		}
	}
	if _, err := d.Copy(q, small, all, from, all, nil); err == nil {
		t.Error("a copy from shared memory that the buffer has no room for succeeded")
	}
	if _, err := d.Copy(q, from, all, small, all, nil); err == nil {
		t.Error("a copy of more than the buffer has into shared memory succeeded")
	}
	// the failed copies left nothing mapped
	if from.(*mem).mapped != 0 {
		t.Error("the shared memory is still mapped after a copy that failed")
	}
}

// TestFreeOfShared: shared memory is freed after the commands that use it, which
// clSVMFree does not wait for.
func TestFreeOfShared(t *testing.T) {
	d, q := poclDevice(t)
	ok := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	p, err := d.Build(driver.ProgramDesc{Name: "p", OpenCL: `
__kernel void slow(__global uint *x, uint rounds)
{
	uint v = x[0];
	for (uint i = 0; i < rounds; i++) v = v * 1664525u + (v >> 7) + i;
	x[0] = v;
}`})
	ok(err)
	k, err := d.CreateKernel(p, "slow")
	ok(err)
	ok(d.ReleaseProgram(p))
	s, err := d.CreateMem(driver.MemDesc{Kind: driver.MemShared, Bytes: 64})
	ok(err)
	const rounds = 100_000_000 // some tenths of a second
	ok(d.SetArg(k, 0, driver.Arg{Kind: driver.ArgMem, Handle: s}))
	ok(d.SetArg(k, 1, driver.Arg{Kind: driver.ArgValue, Value: binary.LittleEndian.AppendUint32(nil, rounds)}))
	e, err := d.Launch(q, k, driver.Grid{Dims: 1, Global: [3]int{1, 1, 1}}, nil)
	ok(err)
	ok(d.ReleaseMem(s))
	done, err := d.EventDone(e)
	ok(err)
	if !done {
		t.Error("the memory is freed, the kernel that uses it runs")
	}
	ok(d.WaitEvent(e))
	d.ReleaseEvent(e)
	ok(d.ReleaseKernel(k))
}

// put writes to the beginning of an object, get reads from an offset on; both wait.
func put(d driver.Device, q, mem driver.Handle, src []byte) (driver.Event, error) {
	return d.Transfer(q, driver.Transfer{Mem: mem, Host: src, Block: true}, nil)
}

func get(d driver.Device, q, mem driver.Handle, off int64, dst []byte, wait ...driver.Event) (driver.Event, error) {
	return d.Transfer(q, driver.Transfer{Mem: mem, Place: driver.Bytes(off, int64(len(dst))), Host: dst, Read: true,
		Block: true}, wait)
}

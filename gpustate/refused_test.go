package gpustate

import (
	"context"
	"encoding/binary"
	"errors"
	"testing"

	"github.com/holdfast-hpc/holdfast/gpustate/internal/driver"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/fake"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/record"
)

const putSource = `
__kernel void put(__global float *y, float a, __local float *tmp) {
	tmp[0] = a;
	y[0] = tmp[0];
}`

func init() {
	fake.RegisterTyped("put", []int{fake.Memory, 4, fake.Local}, func(l fake.Launch) {
		binary.NativeEndian.PutUint32(l.Args[0].Bytes, binary.NativeEndian.Uint32(l.Args[1].Bytes))
	})
}

// TestRefusedArgument: what a refused call was given is neither in the kernel nor in
// the record. The kernel computes as before, here, after a migration and after a
// restart.
func TestRefusedArgument(t *testing.T) {
	refusals := map[string]func(k *Kernel, y *Buffer) error{
		"size of a value":    func(k *Kernel, _ *Buffer) error { return k.SetArg(1, float64(5)) },
		"value for a buffer": func(k *Kernel, _ *Buffer) error { return k.SetArg(0, float32(5)) },
		"beyond the last":    func(k *Kernel, _ *Buffer) error { return k.SetArg(3, float32(5)) },
		"type":               func(k *Kernel, _ *Buffer) error { return k.SetArg(1, "5") },
		"local of no bytes":  func(k *Kernel, _ *Buffer) error { return k.SetArg(2, Local(0)) },
		"last of all":        func(k *Kernel, y *Buffer) error { return k.SetArgs(y, float32(7), float32(3)) },
		"second of all":      func(k *Kernel, y *Buffer) error { return k.SetArgs(y, float64(7), Local(16)) },
		"too few":            func(k *Kernel, y *Buffer) error { return k.SetArgs(y, float32(7)) },
		"too many": func(k *Kernel, y *Buffer) error {
			return k.SetArgs(y, float32(7), Local(16), int32(1))
		},
		"a type behind a value": func(k *Kernel, y *Buffer) error { return k.SetArgs(y, float32(7), "x") },
	}
	onDevices(t, func(t *testing.T, open func() *Device) {
		d := open()
		q := must(d.Queue("q"))(t)
		y := must(d.Buffer("y", 64))(t)
		p := must(d.Program("put", Sources{OpenCL: putSource}, ""))(t)
		k := must(p.Kernel("put"))(t)
		run := func(q *Queue, k *Kernel, y *Buffer) float32 {
			ok(t, q.Write(y, 0, make([]byte, 4)))
			must(q.Launch(k, []int{1}, nil))(t)
			got := make([]float32, 1)
			ok(t, q.Read(y, 0, Bytes(got)))
			return got[0]
		}
		for name, refused := range refusals {
			if d.lazy && (name == "beyond the last" || name == "too many") {
				continue // nobody knows how many there are
			}
			ok(t, k.SetArgs(y, float32(1), Local(16)))
			ok(t, k.SetArgs(y, float32(2), Local(16)))
			if err := refused(k, y); err == nil {
				t.Errorf("%s: it was taken", name)
			}
			if got := run(q, k, y); got != 2 {
				t.Errorf("%s: the kernel computes with %g, want 2", name, got)
			}
			rec, contents := capture(t, d, nil)
			again := open()
			ok(t, again.Restore(context.Background(), rec, readFrom(contents)))
			p := must(again.Program("put", Sources{OpenCL: putSource}, ""))(t)
			got := run(must(again.Queue("q"))(t), must(p.Kernel("put"))(t), must(again.Buffer("y", 64))(t))
			if got != 2 {
				t.Errorf("%s: after a restart the kernel computes with %g, want 2", name, got)
			}
			ok(t, again.Close())
			ok(t, d.MigrateTo(context.Background(), Select{Kind: d.Info().Kind, Platform: d.Info().Platform}))
			if got := run(q, k, y); got != 2 {
				t.Errorf("%s: after a migration the kernel computes with %g, want 2", name, got)
			}
		}
	})
}

// TestNewKernelInCapture: a capture that comes as soon as a kernel is among the objects has
// its number of arguments. Without it the kernel could not be restored, or was launched
// without arguments.
func TestNewKernelInCapture(t *testing.T) {
	onDevices(t, func(t *testing.T, open func() *Device) {
		d := open()
		p := must(d.Program("put", Sources{OpenCL: putSource}, ""))(t)
		o := record.Object{Name: "put", Kernel: &record.Kernel{Program: p.e.Record.ID, Function: "put"}}
		must(d.getOrMake(o, p.e, nil))(t) // what Program.Kernel begins with
		rec, contents := capture(t, d, nil)
		r := must(record.Decode(rec))(t)
		if n := len(r.Objects[len(r.Objects)-1].Kernel.Args); n != 3 {
			t.Errorf("the record has %d arguments, want 3", n)
		}
		again := open()
		ok(t, again.Restore(context.Background(), rec, readFrom(contents)))
	})
}

// TestFewerArguments restores kernels of which a device that does not tell how many
// arguments there are had recorded fewer. What was not set is not set; a kernel that was
// complete is another one.
func TestFewerArguments(t *testing.T) {
	for _, lazy := range []bool{false, true} {
		for _, c := range []struct {
			name string
			keep int // of the three arguments
			set  bool
			want error
		}{{"none", 0, false, nil}, {"two, not set", 2, false, nil}, {"two, set", 2, true, ErrConflict}} {
			d, _ := fakeDevice(t, func(i *driver.Info) { i.Lazy = lazy })
			y := must(d.Buffer("y", 64))(t)
			k := must(must(d.Program("put", Sources{OpenCL: putSource}, ""))(t).Kernel("put"))(t)
			if c.set {
				ok(t, k.SetArgs(y, float32(1), Local(16)))
			}
			rec, contents := capture(t, d, nil)
			r := must(record.Decode(rec))(t)
			recorded := r.Objects[len(r.Objects)-1].Kernel
			recorded.Args = recorded.Args[:c.keep]
			want := c.want
			if lazy {
				want = nil // nobody knows
			}
			for _, early := range []bool{false, true} {
				again, _ := fakeDevice(t, func(i *driver.Info) { i.Lazy = lazy })
				kernel := func() *Kernel {
					return must(must(again.Program("put", Sources{OpenCL: putSource}, ""))(t).Kernel("put"))(t)
				}
				if early {
					kernel()
				}
				if err := again.Restore(context.Background(), r.Encode(), readFrom(contents)); !errors.Is(err, want) {
					t.Errorf("%s, lazy %v, early %v: got %v, want %v", c.name, lazy, early, err, want)
				}
				if want != nil {
					continue
				}
				_, err := must(again.Queue("q"))(t).Launch(kernel(), []int{1}, nil)
				if !errors.Is(err, ErrArgNotSet) {
					t.Errorf("%s, lazy %v, early %v: launch gave %v, want ErrArgNotSet", c.name, lazy, early, err)
				}
			}
		}
	}
}

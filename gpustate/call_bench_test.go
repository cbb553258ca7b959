package gpustate

import (
	"testing"

	"github.com/holdfast-hpc/holdfast/gpustate/internal/driver"
)

// idle is a device whose commands do nothing, so that what remains is the cost
// of recording.
type idle struct{ driver.Device }

func (idle) SetArg(driver.Handle, int, driver.Arg) error { return nil }

func (idle) Launch(_, _ driver.Handle, _ driver.Grid, _ []driver.Event) (driver.Event, error) {
	return 0, nil
}

func idleSetup(b *testing.B) *setup {
	t := &testing.T{}
	d, _ := fakeDevice(t, func(i *driver.Info) { i.Lazy = true })
	s := newSetup(t, d, 64)
	s.fill(t)
	s.q = must(d.QueueWith("unbounded", QueueOptions{Window: -1}))(t)
	d.state.Session.Device = idle{d.state.Session.Device}
	return s
}

func BenchmarkSetArg(b *testing.B) {
	s := idleSetup(b)
	for b.Loop() {
		if err := s.k.SetArg(3, int32(64)); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkLaunch(b *testing.B) {
	s := idleSetup(b)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := s.q.Launch(s.k, []int{64}, []int{64}); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkNull measures launches on an OpenCL device that does nothing, with what the driver's call and
// the default window take (bench/opencl/testdata/null.c).
func BenchmarkNull(b *testing.B) {
	for name, set := range map[string]func(k *Kernel, x *Buffer, n int32) error{
		"arguments as they are": func(*Kernel, *Buffer, int32) error { return nil },
		"one set":               func(k *Kernel, _ *Buffer, n int32) error { return k.SetArg(1, n) },
		"one again":             func(k *Kernel, x *Buffer, _ int32) error { return k.SetArg(0, x) },
	} {
		b.Run(name, func(b *testing.B) {
			d, err := Open(Select{Kind: "opencl", Name: "Null"})
			if err != nil {
				b.Skip(err)
			}
			t := &testing.T{}
			q, x := must(d.Queue("q"))(t), must(d.Buffer("x", 64))(t)
			k := must(must(d.Program("p", Sources{OpenCL: "busy"}, ""))(t).Kernel("busy"))(t)
			ok(t, k.SetArgs(x, int32(0)))
			one, n := []int{1}, int32(0)
			b.ReportAllocs()
			for b.Loop() {
				n++
				if err := set(k, x, n); err != nil {
					b.Fatal(err)
				}
				if _, err := q.Launch(k, one, one); err != nil {
					b.Fatal(err)
				}
			}
			ok(t, d.Close())
		})
	}
}

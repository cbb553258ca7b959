package session

import (
	"net"
	"testing"
	"time"

	"github.com/holdfast-hpc/holdfast/gpustate/gpud/internal/usage"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/cl"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/driver"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/fake"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/wire"
	"golang.org/x/sys/unix"
)

// BenchmarkLaunch measures what a session takes for a launch, beside what the device takes: a fake one, or
// one of OpenCL that does nothing either, where there is one (bench/opencl/testdata/null.c).
func BenchmarkLaunch(b *testing.B) {
	idle := &fake.Library{Idle: true}
	infos, _ := idle.Devices()
	benchLaunch(b, "", idle, Device{Info: infos[1], At: 1})
	infos, _ = cl.System.Devices()
	for n, i := range infos {
		if i.Name == "Null" {
			benchLaunch(b, "null OpenCL, ", cl.System, Device{Info: i, At: n})
		}
	}
}

func benchLaunch(b *testing.B, on string, lib driver.Driver, dev Device) {
	value := []byte("abcd")
	for name, set := range map[string]*wire.SetArg{"arguments as they are": nil,
		"one set": {Kernel: 3, Index: 1, Arg: wire.Arg{Kind: driver.ArgValue, Value: value}}} {
		b.Run(on+name, func(b *testing.B) {
			near, far := net.Pipe()
			defer far.Close()
			s := New(&Service{Devices: []Device{dev}, Usages: &usage.Table{}}, near, Identity{}, &usage.Usage{}, nil)
			s.dev = dev
			var err error
			if s.drv, err = lib.Open(dev.At); err != nil {
				b.Fatal(err)
			}
			p, err := s.drv.Build(driver.ProgramDesc{OpenCL: "busy"})
			if err != nil {
				b.Fatal(err)
			}
			fake.Register("busy", 2, func(fake.Launch) {})
			k, err := s.drv.CreateKernel(p, "busy")
			if err != nil {
				b.Fatal(err)
			}
			if err := s.createQueue(&wire.CreateQueue{ID: 2, Desc: driver.QueueDesc{Lazy: true}}); err != nil {
				b.Fatal(err)
			}
			s.objects[3] = &kernel{h: k, name: "busy"}
			launch := body(&wire.Launch{Queue: 2, Kernel: 3,
				Grid: driver.Grid{Dims: 1, Global: [3]int{1, 1, 1}, Local: [3]int{1, 1, 1}}})
			var argument []byte
			if set != nil {
				argument = body(set)
			}
			b.ReportAllocs()
			begin := cpuTime()
			for b.Loop() {
				if set != nil {
					if err := s.dispatch(wire.OpSetArg, argument); err != nil {
						b.Fatal(err)
					}
				}
				if err := s.dispatch(wire.OpLaunch, launch); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(cpuTime()-begin)/float64(b.N), "cpu-ns/op")
		})
	}
}

// body returns a message as it is behind the header of its frame.
func body(m wire.Message) []byte { return wire.Append(nil, m)[5:] }

// cpuTime returns what this process has used, which other work on the machine changes less than the time
// that passed.
func cpuTime() time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

package jobtest

import (
	"testing"

	"github.com/holdfast-hpc/holdfast/gpustate"
)

// EachDevice runs a benchmark on every device of the machine.
func EachDevice(b *testing.B, bench func(b *testing.B, dev *gpustate.Device)) {
	infos, err := gpustate.Devices()
	if err != nil || len(infos) == 0 {
		b.Skipf("no device here (make setup installs PoCL): %v", err)
	}
	for _, info := range infos {
		b.Run(info.Kind+" "+info.Platform, func(b *testing.B) {
			dev, err := gpustate.Open(gpustate.Select{Kind: info.Kind, Platform: info.Platform, Name: info.Name})
			if err != nil {
				b.Fatal(err)
			}
			defer dev.Close()
			bench(b, dev)
		})
	}
}

// A Bench launches one kernel on buffers of its own.
type Bench struct {
	b      *testing.B
	dev    *gpustate.Device
	queue  *gpustate.Queue
	kernel *gpustate.Kernel
}

// NewBench builds a kernel.
func NewBench(b *testing.B, dev *gpustate.Device, sources gpustate.Sources, options, kernel string) *Bench {
	b.Helper()
	x := &Bench{b: b, dev: dev}
	var err error
	if x.queue, err = dev.Queue("bench"); err != nil {
		b.Fatal(err)
	}
	p, err := dev.Program("bench", sources, options)
	if err != nil {
		b.Fatal(err)
	}
	if x.kernel, err = p.Kernel(kernel); err != nil {
		b.Fatal(err)
	}
	return x
}

// Buffer makes a buffer with these contents.
func (x *Bench) Buffer(name string, contents []byte) *gpustate.Buffer {
	x.b.Helper()
	buffer, err := x.dev.Buffer(name, len(contents))
	if err == nil {
		err = x.queue.Write(buffer, 0, contents)
	}
	if err != nil {
		x.b.Fatal(err)
	}
	return buffer
}

// Launch starts the kernel and waits for it.
func (x *Bench) Launch(global, local []int, args ...any) {
	x.b.Helper()
	err := x.kernel.SetArgs(args...)
	if err == nil {
		_, err = x.queue.Launch(x.kernel, global, local)
	}
	if err == nil {
		err = x.queue.Finish()
	}
	if err != nil {
		x.b.Fatal(err)
	}
}

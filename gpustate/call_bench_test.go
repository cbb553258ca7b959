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
	d.drv.Device = idle{d.drv.Device}
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

package gpustate

import (
	"context"
	"errors"
	"testing"

	"github.com/holdfast-hpc/holdfast/gpustate/internal/driver"
)

// plain says whether the next launch would go without checks.
func (s *setup) plain() bool {
	t := &s.q.commands
	return s.k.k.Fit == s.q.dev.state.Changes.Load() && t.issued+1 < t.due
}

// TestUnfit: a launch that needed no check before sees what has changed since.
func TestUnfit(t *testing.T) {
	ctx := context.Background()
	lazy := func() *Device {
		d, _ := fakeDevice(t, func(i *driver.Info) { i.Lazy = true })
		return d
	}
	elsewhere := func(t *testing.T, s *setup, k *Kernel) error {
		q := must(s.q.dev.Queue("other"))(t)
		_, err := q.Launch(k, []int{s.n}, nil)
		return err
	}
	for name, c := range map[string]struct {
		change func(t *testing.T, s *setup) error
		want   error
	}{
		"nothing":         {func(*testing.T, *setup) error { return nil }, nil},
		"buffer released": {func(_ *testing.T, s *setup) error { return s.x.Release() }, ErrReleased},
		"kernel released": {func(_ *testing.T, s *setup) error { return s.k.Release() }, ErrReleased},
		"queue released":  {func(_ *testing.T, s *setup) error { return s.q.Release() }, ErrReleased},
		"queue released, kernel launched elsewhere since": {func(t *testing.T, s *setup) error {
			return errors.Join(s.q.Release(), elsewhere(t, s, s.k))
		}, ErrReleased},
		"device closed": {func(_ *testing.T, s *setup) error { return s.q.dev.Close() }, ErrClosed},
		"another device's kernel": {func(t *testing.T, s *setup) error {
			there := newSetup(t, lazy(), s.n)
			there.fill(t)
			there.step(t)
			s.k = there.k
			s.k.k.Fit = s.q.dev.state.Changes.Load() // as chance has it
			return nil
		}, ErrOtherDevice},
		"argument that leaves a gap": {func(_ *testing.T, s *setup) error {
			return s.k.SetArg(5, int32(1))
		}, ErrArgNotSet},
		"arguments taken back": {func(t *testing.T, s *setup) error {
			blank, contents := capture(t, newSetup(t, lazy(), s.n).q.dev, nil)
			ok(t, s.q.dev.Restore(ctx, blank, readFrom(contents)))
			p := must(s.q.dev.Program("axpy", Sources{OpenCL: axpySource}, ""))(t)
			other := must(p.NewKernel("axpy"))(t)
			ok(t, other.SetArgs(s.y, s.x, float32(2), int32(s.n)))
			_, err := s.q.Launch(other, []int{s.n}, nil) // now the queue needs no check
			return err
		}, ErrArgNotSet},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSetup(t, lazy(), 8)
			s.fill(t)
			s.q.dev.state.Session.Device = idle{s.q.dev.state.Session.Device} // which takes anything
			s.step(t)
			s.step(t)
			if !s.plain() {
				t.Fatal("launches are checked although nothing has changed")
			}
			ok(t, c.change(t, s))
			for range 2 {
				e, err := s.q.Launch(s.k, []int{s.n}, nil)
				if !errors.Is(err, c.want) || (e == nil) != (c.want != nil) {
					t.Errorf("got %v, %v, want %v", e, err, c.want)
				}
			}
		})
	}
}

// TestPlain: captures and moves leave launches without checks after the next one, and those to a device
// that gives events with each command are tracked.
func TestPlain(t *testing.T) {
	d, lib := fakeDevice(t, func(i *driver.Info) { i.Lazy = true })
	lib.Infos = append(lib.Infos, lib.Infos[0])
	lib.Infos[1].Lazy = false
	s := newSetup(t, d, 8)
	s.fill(t)
	for _, step := range []struct {
		name  string
		do    func() error
		plain bool
	}{
		{"nothing", func() error { return nil }, true},
		{"an argument set", func() error { return s.k.SetArg(2, float32(2)) }, true},
		{"a capture", func() error { capture(t, d, nil); return nil }, true},
		{"a move to a device with events", func() error {
			return d.migrate(context.Background(), must(lib.Open(1))(t))
		}, false},
		{"a move back", func() error { return d.migrate(context.Background(), must(lib.Open(0))(t)) }, true},
		{"a transfer that does not block", func() error {
			_, err := s.q.WriteAsync(s.x, 0, make([]byte, 4))
			return err
		}, false},
		{"its end", s.q.Finish, true},
	} {
		ok(t, step.do())
		e := s.step(t)
		if s.plain() != step.plain {
			t.Errorf("after %s: launches without checks: %v, want %v", step.name, s.plain(), step.plain)
		}
		s.step(t)
		ok(t, e.Wait())
	}
}

// told notes what launches wait for, and gives an event with every third one.
type told struct {
	driver.Device
	launches, waits int
}

func (d *told) Launch(q, _ driver.Handle, _ driver.Grid, wait []driver.Event) (driver.Event, error) {
	d.waits += len(wait)
	if d.launches++; d.launches%3 == 0 {
		return d.Marker(q, nil)
	}
	return 0, nil
}

// TestTold: events to wait for reach the driver, and those that it gives are kept.
func TestTold(t *testing.T) {
	d, _ := fakeDevice(t, func(i *driver.Info) { i.Lazy = true })
	s := newSetup(t, d, 8)
	s.fill(t)
	drv := &told{Device: d.state.Session.Device}
	d.state.Session.Device = drv
	s.step(t)
	if !s.plain() {
		t.Error("launches are checked")
	}
	other := must(d.QueueWith("other", QueueOptions{Profiling: true}))(t) // so that its events have handles
	before := must(other.Marker())(t)
	must(s.q.Launch(s.k, []int{s.n}, nil, before))(t)
	if drv.waits != 1 {
		t.Errorf("the driver was told to wait for %d events, want 1", drv.waits)
	}
	for i := range 9 {
		e := s.step(t)
		if given := e.h != 0; given != (i%3 == 0) {
			t.Errorf("launch %d: the event has a handle: %v", i, given)
		}
	}
	ok(t, s.q.Finish())
}

// unsure is a device of which nobody learns by asking that a command is complete.
type unsure struct{ driver.Device }

func (unsure) EventDone(driver.Event) (bool, error) { return false, nil }

// TestReached: who has waited for a command of a lazy queue knows that all before it are complete, without asking the
// device about each.
func TestReached(t *testing.T) {
	d, _ := fakeDevice(t, func(i *driver.Info) { i.Lazy = true })
	s := newSetup(t, d, 8)
	s.fill(t)
	d.state.Session.Device = unsure{d.state.Session.Device}
	for range 3 {
		first, second := s.step(t), s.step(t)
		m := must(s.q.Marker())(t)
		third := s.step(t)
		ok(t, m.Wait())
		for e, want := range map[*Event]bool{first: true, second: true, third: false} {
			if done := must(e.Done())(t); done != want {
				t.Errorf("after a wait for a marker command %d of %d is complete: %v", e.seq, third.seq, done)
			}
		}
		ok(t, third.Wait())
	}
}

// TestNilObjects gives a kernel objects that are none.
func TestNilObjects(t *testing.T) {
	d, _ := fakeDevice(t)
	s := newSetup(t, d, 4)
	for _, bad := range []any{(*Buffer)(nil), (*Image)(nil), (*Shared)(nil), (*Sampler)(nil), &HostBuffer{}} {
		if err := s.k.SetArg(0, bad); !errors.Is(err, ErrArgType) {
			t.Errorf("%T: got %v, want ErrArgType", bad, err)
		}
	}
}

// TestRecordingAllocates holds the hot path to what it needs.
func TestRecordingAllocates(t *testing.T) {
	d, _ := fakeDevice(t)
	s := newSetup(t, d, 4)
	s.fill(t)
	var value any = float32(3)
	if n := testing.AllocsPerRun(100, func() { ok(t, s.k.SetArg(2, value)) }); n > 1 { // the fake copies it
		t.Errorf("SetArg allocates %g times", n)
	}
}

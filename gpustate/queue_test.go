package gpustate

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-hpc/holdfast/gpustate/internal/driver"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/fake"
)

func TestLaunch(t *testing.T) {
	onDevices(t, func(t *testing.T, open func() *Device) {
		s := newSetup(t, open(), 1000)
		s.fill(t)
		for range 3 {
			s.step(t)
		}
		s.expect(t, 6)
		ok(t, s.step(t).Wait())
		ok(t, s.q.Finish())
		s.expect(t, 8)
	})
}

func TestReleased(t *testing.T) {
	d, _ := fakeDevice(t)
	s := newSetup(t, d, 16)
	if _, err := s.q.Launch(s.k, []int{16}, nil); !errors.Is(err, ErrArgNotSet) {
		t.Errorf("launch without arguments: got %v, want ErrArgNotSet", err)
	}
	s.fill(t)
	ok(t, s.x.Release())
	ok(t, s.x.Release())
	if _, err := s.q.Launch(s.k, []int{16}, nil); !errors.Is(err, ErrReleased) {
		t.Errorf("launch with a released buffer: got %v, want ErrReleased", err)
	}
	if err := s.q.Write(s.x, 0, make([]byte, 4)); !errors.Is(err, ErrReleased) {
		t.Errorf("write to a released buffer: got %v, want ErrReleased", err)
	}
}

// TestAskedEvents: commands that wait for each other across queues leave nothing
// behind although the program does not wait for them; not before the end either.
func TestAskedEvents(t *testing.T) {
	d, _ := fakeDevice(t, func(i *driver.Info) { i.Lazy = true })
	s := newSetup(t, d, 8)
	s.fill(t)
	for _, window := range []int{0, -1} {
		a := must(d.QueueWith("", QueueOptions{Window: window}))(t)
		b := must(d.Queue(""))(t)
		for i := range 10 * sweepEvery {
			e := must(a.Launch(s.k, []int{s.n}, nil))(t)
			must(b.Launch(s.k, []int{s.n}, nil, e))(t)
			if i%sweepEvery == 0 { // let the device catch up
				ok(t, must(b.Marker())(t).Wait())
			}
		}
		if n := len(a.commands.asked); n > 3*sweepEvery {
			t.Errorf("window %d: %d events are kept", window, n)
		}
	}
}

// TestKernelFails lets kernels fail while they run: their events and the next
// Finish say so, later commands and captures do not.
func TestKernelFails(t *testing.T) {
	d, lib := fakeDevice(t)
	s := newSetup(t, d, 64)
	s.fill(t)
	lib.Faults.FailLaunch(1)
	e := s.step(t)
	if err := e.Wait(); err == nil {
		t.Error("the event of a failed kernel has no error")
	}
	if err := s.q.Finish(); err == nil {
		t.Error("Finish after a failed kernel has no error")
	}
	ok(t, s.q.Finish())
	lib.Faults.FailLaunch(1)
	e = s.step(t)
	c := must(d.Capture(context.Background(), nil))(t)
	ok(t, c.Release())
	if _, err := e.Done(); err == nil {
		t.Error("a capture swallowed the failure of a kernel")
	}
	if err := s.q.Finish(); err == nil {
		t.Error("a capture swallowed the failure from Finish")
	}
	other := must(d.Queue("other"))(t)
	if _, err := other.Launch(s.k, []int{64}, nil, e); err == nil {
		t.Error("a command waits for a failed one without an error")
	}
}

// TestHungKernel lets a capture end while a kernel is still running.
func TestHungKernel(t *testing.T) {
	d, _ := fakeDevice(t)
	gate := make(chan struct{})
	fake.Register("hang", 0, func(fake.Launch) { <-gate })
	p := must(d.Program("hang", Sources{OpenCL: "hang"}, ""))(t)
	k := must(p.Kernel("hang"))(t)
	q := must(d.Queue("q"))(t)
	e := must(q.Launch(k, []int{1}, nil))(t)
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	if _, err := d.Capture(ctx, nil); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("capture: got %v, want DeadlineExceeded", err)
	}
	close(gate)
	ok(t, e.Wait())
	ok(t, q.Finish())
}

// TestManyCommands launches far more commands than anyone waits for.
func TestManyCommands(t *testing.T) {
	d, _ := fakeDevice(t)
	s := newSetup(t, d, 4)
	s.fill(t)
	for range 10 * sweepEvery {
		s.step(t)
	}
	ok(t, s.q.Finish())
	if n := len(s.q.commands.flight); n != 0 {
		t.Errorf("%d events are kept after Finish", n)
	}
	s.expect(t, 20*sweepEvery)
}

// plain reports whether the next launch would go without checks.
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

// waitCounter notes what launches wait for, and gives an event with every third one.
type waitCounter struct {
	driver.Device
	launches, waits int
}

func (d *waitCounter) Launch(q, _ driver.Handle, _ driver.Grid, wait []driver.Event) (driver.Event, error) {
	d.waits += len(wait)
	if d.launches++; d.launches%3 == 0 {
		return d.Marker(q, nil)
	}
	return 0, nil
}

// TestWaitLists: events to wait for reach the driver, and those that it gives are kept.
func TestWaitLists(t *testing.T) {
	d, _ := fakeDevice(t, func(i *driver.Info) { i.Lazy = true })
	s := newSetup(t, d, 8)
	s.fill(t)
	drv := &waitCounter{Device: d.state.Session.Device}
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

// unsure is a device that never reports, when asked, that a command is complete.
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

// flying is a lazy device that notes how many launches may be in flight.
type flying struct {
	driver.Device
	lag                    time.Duration // that a marker takes
	launched, known, marks int
	most                   int
	at                     map[driver.Event]int // launches before a marker
}

func (f *flying) Launch(driver.Handle, driver.Handle, driver.Grid, []driver.Event) (driver.Event, error) {
	f.launched++
	f.most = max(f.most, f.launched-f.known)
	return 0, nil
}

func (f *flying) Marker(driver.Handle, []driver.Event) (driver.Event, error) {
	f.marks++
	e := driver.Event(f.marks)
	f.at[e] = f.launched
	return e, nil
}

func (f *flying) WaitEvent(e driver.Event) error {
	time.Sleep(f.lag)
	f.known = f.at[e]
	return nil
}

func (f *flying) ReleaseEvent(e driver.Event) { delete(f.at, e) }

func (f *flying) Finish(driver.Handle) error {
	f.known = f.launched
	return nil
}

// TestWidth: a default window is wider while commands are short, one that the program chose is not, and
// what is in flight never exceeds either.
func TestWidth(t *testing.T) {
	const launches = 2000
	for _, c := range []struct {
		window        int
		lag           time.Duration
		least, most   int // in flight
		fewest, mosts int // markers
	}{
		{0, 0, 256, 256, launches / 128, launches/128 + 5},
		{0, shortLag / 4, 256, 256, launches / 128, launches/128 + 5},
		{0, shortLag + 1, 50, 50, launches / 25, launches / 25},
		{0, longLag + 1, 50, 50, launches / 25, launches / 25},
		{2, 0, 2, 2, launches, launches},
		{49, 0, 49, 49, launches / 24, launches / 24},
		{400, 0, 400, 400, launches / 200, launches / 200},
	} {
		t.Run(fmt.Sprintf("window %d, %v", c.window, c.lag), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, f := inFlight(t, c.window)
				f.lag = c.lag
				for range launches {
					must(s.q.Launch(s.k, []int{s.n}, nil))(t)
				}
				if f.most < c.least || f.most > c.most || f.marks < c.fewest || f.marks > c.mosts {
					t.Errorf("%d in flight with %d markers, want %d to %d with %d to %d", f.most, f.marks, c.least,
						c.most, c.fewest, c.mosts)
				}
				ok(t, s.q.Finish())
			})
		})
	}
}

// TestNarrow: the first marker that takes long makes a wide window as it was.
func TestNarrow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, f := inFlight(t, 0)
		run := func(n int, lag time.Duration) int {
			f.lag, f.most = lag, 0
			for range n {
				must(s.q.Launch(s.k, []int{s.n}, nil))(t)
			}
			return f.most
		}
		for round := range 3 {
			if n := run(1000, 0); n != widest {
				t.Errorf("round %d: %d short ones in flight, want %d", round, n, widest)
			}
			if n := run(widest, longLag+1); n > widest { // they find a wide window
				t.Errorf("round %d: %d long ones in flight, want at most %d", round, n, widest)
			}
			if n := run(1000, longLag+1); n > DefaultWindow {
				t.Errorf("round %d: %d long ones in flight later, want at most %d", round, n, DefaultWindow)
			}
		}
		ok(t, s.q.Finish())
	})
}

// TestFollow: a wait for a command that is followed waits for none behind it. Without that it waits for what was issued
// before the wait.
func TestFollow(t *testing.T) {
	s, f := inFlight(t, -1)
	launch := func() *Event { return must(s.q.Launch(s.k, []int{s.n}, nil))(t) }
	counted := launch()
	first := launch()
	first.Follow()
	launch()
	second := launch()
	second.Follow()
	second.Follow()
	last := launch()
	ok(t, first.Wait())
	if f.known != 2 || f.marks != 2 {
		t.Errorf("a wait for command 2 of 5 waited for %d, with %d markers, want 2 of each", f.known, f.marks)
	}
	if done := must(counted.Done())(t); !done {
		t.Error("the command before one that is complete is not")
	}
	ok(t, second.Wait())
	if f.known != 4 || f.marks != 2 {
		t.Errorf("a wait for command 4 of 5 waited for %d, with %d markers, want 4 and 2", f.known, f.marks)
	}
	launch()
	ok(t, last.Wait())
	if f.known != 6 || f.marks != 3 {
		t.Errorf("a wait for command 5 of 6 waited for %d, with %d markers, want 6 and 3", f.known, f.marks)
	}
}

func inFlight(t *testing.T, window int) (*setup, *flying) {
	d, _ := fakeDevice(t, func(i *driver.Info) { i.Lazy = true })
	s := newSetup(t, d, 8)
	s.fill(t)
	s.q = must(d.QueueWith("watched", QueueOptions{Window: window}))(t)
	f := &flying{Device: d.state.Session.Device, at: map[driver.Event]int{}}
	d.state.Session.Device = f
	return s, f
}

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

// TestReleaseInUse releases queues, buffers, kernels and programs while other goroutines
// use them and wait for their commands, beside captures and migrations. The fake ends
// the process when something is used after its release; -race sees the rest.
func TestReleaseInUse(t *testing.T) {
	fake.Hesitate(true)
	defer fake.Hesitate(false)
	for _, lazy := range []bool{false, true} {
		d, _ := fakeDevice(t, func(i *driver.Info) { i.Lazy = lazy })
		u := &inUse{t: t, d: d, q: make([]*Queue, 3), b: make([]*Buffer, 4), k: make([]*Kernel, 3),
			events: make([]*Event, 8)}
		for i := range u.b {
			u.b[i] = must(d.Buffer("", 64))(t)
		}
		for i := range u.q {
			u.newQueue(i)
		}
		for i := range u.k {
			u.newKernel(i)
		}
		var wg sync.WaitGroup
		for g := range 6 {
			wg.Go(func() {
				r := rand.New(rand.NewPCG(uint64(g), 1))
				for range 150 {
					u.step(r)
				}
			})
		}
		wg.Wait()
	}
}

// inUse is what the goroutines share.
type inUse struct {
	t  *testing.T
	d  *Device
	mu sync.Mutex

	q      []*Queue
	b      []*Buffer
	k      []*Kernel
	events []*Event
}

func any1[T any](u *inUse, r *rand.Rand, list []T) (int, T) {
	u.mu.Lock()
	defer u.mu.Unlock()
	i := r.IntN(len(list))
	return i, list[i]
}

func put[T any](u *inUse, list []T, i int, v T) {
	u.mu.Lock()
	defer u.mu.Unlock()
	list[i] = v
}

func (u *inUse) newQueue(i int) { put(u, u.q, i, must(u.d.Queue(""))(u.t)) }

func (u *inUse) newKernel(i int) {
	p := must(u.d.Program("", Sources{OpenCL: axpySource}, ""))(u.t)
	put(u, u.k, i, must(p.NewKernel("axpy"))(u.t))
	u.allowed(p.Release())
}

// allowed fails the test for errors that no race explains.
func (u *inUse) allowed(err error) {
	if err != nil && !errors.Is(err, ErrReleased) && !errors.Is(err, ErrArgNotSet) {
		u.t.Error(err)
	}
}

func (u *inUse) step(r *rand.Rand) {
	_, q := any1(u, r, u.q)
	_, k := any1(u, r, u.k)
	_, x := any1(u, r, u.b)
	_, y := any1(u, r, u.b)
	at, e := any1(u, r, u.events)
	var after []*Event
	if e != nil {
		after = append(after, e)
	}
	var err error
	switch r.IntN(14) {
	case 0, 1, 2, 3:
		u.allowed(k.SetArgs(y, x, float32(0), int32(4)))
		if e, err = q.Launch(k, []int{4}, nil, after...); err == nil {
			put(u, u.events, at, e)
		}
	case 4:
		if e, err = q.WriteAsync(x, 0, make([]byte, 64), after...); err == nil {
			put(u, u.events, at, e)
		}
	case 5:
		err = q.Read(x, 0, make([]byte, 64))
	case 6:
		if x != y {
			_, err = q.Copy(x, 0, y, 0, 64, after...)
		}
	case 7:
		i, q := any1(u, r, u.q)
		err = q.Release()
		u.newQueue(i)
	case 8:
		i, k := any1(u, r, u.k)
		err = k.Release()
		u.newKernel(i)
	case 9:
		i, b := any1(u, r, u.b)
		err = b.Release()
		put(u, u.b, i, must(u.d.Buffer("", 64))(u.t))
	case 10, 11:
		if e != nil {
			err = e.Wait()
		}
	case 12:
		if e != nil {
			_, err = e.Done()
		}
	default:
		if r.IntN(4) == 0 {
			err = u.d.MigrateTo(context.Background(), Select{Kind: "fake", Index: r.IntN(2)})
		} else {
			var c *Capture
			if c, err = u.d.Capture(context.Background(), nil); err == nil {
				err = c.Release()
			}
		}
	}
	u.allowed(err)
}

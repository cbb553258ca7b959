package gpustate

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-hpc/holdfast/gpustate/internal/driver"
)

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

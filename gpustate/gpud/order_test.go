package gpud

import (
	"bytes"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-hpc/holdfast/gpustate"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/driver"
)

// lateReads is a driver whose reads are complete in time, but whose caller learns of it late:
// the server tells of them after what waited for them.
type lateReads struct{ driver.Driver }

// telling is how late.
const reportDelay = 30 * time.Millisecond

func (l lateReads) Open(index int) (driver.Device, error) {
	d, err := l.Driver.Open(index)
	return &lateDevice{Device: d}, err
}

type lateDevice struct {
	driver.Device
	reads sync.Map
}

func (d *lateDevice) Transfer(q driver.Handle, t driver.Transfer, wait []driver.Event) (driver.Event, error) {
	e, err := d.Device.Transfer(q, t, wait)
	if e != 0 && t.Read {
		d.reads.Store(e, true)
	}
	return e, err
}

func (d *lateDevice) EventDone(e driver.Event) (bool, error) {
	if _, late := d.reads.Load(e); late {
		return false, nil
	}
	return d.Device.EventDone(e)
}

func (d *lateDevice) WaitEvent(e driver.Event) error {
	err := d.Device.WaitEvent(e)
	if _, late := d.reads.LoadAndDelete(e); late {
		time.Sleep(reportDelay)
	}
	return err
}

// TestReadsBefore: no command is complete before the reads that it comes after have filled the
// program's memory: by its queue, by what it waits for, and by what that came after.
func TestReadsBefore(t *testing.T) {
	opt := func(of gpustate.QueueOptions) func(t *testing.T, c *counter) *gpustate.Queue {
		return func(t *testing.T, c *counter) *gpustate.Queue { return must(c.d.QueueWith("other", of))(t) }
	}
	queues := map[string]func(t *testing.T, c *counter) *gpustate.Queue{
		"in order":     opt(gpustate.QueueOptions{}),
		"profiling":    opt(gpustate.QueueOptions{Profiling: true}),
		"out of order": opt(gpustate.QueueOptions{OutOfOrder: true}),
	}
	waits := func(e *gpustate.Event, err error) func(t *testing.T) {
		return func(t *testing.T) { ok(t, must(e, err)(t).Wait()) }
	}
	commands := map[string]func(t *testing.T, c *counter, q *gpustate.Queue, r *gpustate.Event){
		"a marker": func(t *testing.T, c *counter, q *gpustate.Queue, r *gpustate.Event) {
			waits(q.Marker(r))(t)
		},
		"a barrier": func(t *testing.T, c *counter, q *gpustate.Queue, r *gpustate.Event) {
			waits(q.Barrier(r))(t)
		},
		"a launch": func(t *testing.T, c *counter, q *gpustate.Queue, r *gpustate.Event) {
			waits(q.Launch(c.k, []int{1}, nil, r))(t)
		},
		"a copy": func(t *testing.T, c *counter, q *gpustate.Queue, r *gpustate.Event) {
			waits(q.Copy(c.b, 0, c.b, 8, 8, r))(t)
		},
		"a fill": func(t *testing.T, c *counter, q *gpustate.Queue, r *gpustate.Event) {
			waits(q.Fill(c.b, 0, 8, []byte{1}, r))(t)
		},
		"a write": func(t *testing.T, c *counter, q *gpustate.Queue, r *gpustate.Event) {
			waits(q.WriteAsync(c.b, 0, make([]byte, 8), r))(t)
		},
		"a poll": func(t *testing.T, c *counter, q *gpustate.Queue, r *gpustate.Event) {
			m := must(q.Marker(r))(t)
			for !must(m.Done())(t) {
				time.Sleep(time.Millisecond)
			}
		},
		"Finish": func(t *testing.T, c *counter, q *gpustate.Queue, r *gpustate.Event) {
			must(q.Launch(c.k, []int{1}, nil, r))(t)
			ok(t, q.Finish())
		},
		"behind a launch": func(t *testing.T, c *counter, q *gpustate.Queue, r *gpustate.Event) {
			must(q.Launch(c.k, []int{1}, nil, r))(t)
			waits(q.Marker())(t)
		},
		"behind a barrier": func(t *testing.T, c *counter, q *gpustate.Queue, r *gpustate.Event) {
			must(q.Barrier(r))(t)
			ok(t, q.Flush())
			waits(q.Launch(c.k, []int{1}, nil))(t)
		},
		"through a third queue": func(t *testing.T, c *counter, q *gpustate.Queue, r *gpustate.Event) {
			third := must(c.d.Queue("third"))(t)
			l := must(q.Launch(c.k, []int{1}, nil, r))(t)
			waits(third.Launch(c.k, []int{1}, nil, l))(t)
		},
	}
	both(t, func(t *testing.T, o Options) {
		p := serveLate(t, o)
		c := open(t, p.sel)
		defer c.d.Close()
		want := bytes.Repeat([]byte{1, 2, 3, 4}, elements)
		a := must(c.d.Queue("a"))(t)
		from := must(c.d.Buffer("from", len(want)))(t)
		ok(t, a.Write(from, 0, want))
		for kind, make := range queues {
			for name, command := range commands {
				t.Run(kind+"/"+name, func(t *testing.T) {
					q := make(t, c)
					got := bytes.Repeat([]byte{9}, len(want))
					r := must(a.ReadAsync(from, 0, got))(t)
					command(t, c, q, r)
					if !bytes.Equal(got, want) {
						t.Error("the bytes of the read have not come")
					}
					ok(t, q.Release())
				})
			}
		}
	})
}

// late are drivers around that of the fake devices, for workers.
var late = map[string]func(driver.Driver) driver.Driver{
	"reads":                    func(d driver.Driver) driver.Driver { return lateReads{d} },
	"reads, and launches fail": func(d driver.Driver) driver.Driver { return failingLaunches{lateReads{d}} },
	"fills":                    func(d driver.Driver) driver.Driver { return lateFills{d} },
}

// serveLate serves a device with lateReads.
func serveLate(t *testing.T, o Options) *place { return serveWith(t, o, "reads") }

// TestReadThenTransfer: a transfer that comes after a read from the same memory of the program
// finds there what the read has brought, and what it brings itself stays.
func TestReadThenTransfer(t *testing.T) {
	both(t, func(t *testing.T, o Options) {
		p := serveLate(t, o)
		c := open(t, p.sel)
		defer c.d.Close()
		old, want := bytes.Repeat([]byte{7}, 4*elements), bytes.Repeat([]byte{1, 2, 3, 4}, elements)
		a, q := must(c.d.Queue("a"))(t), must(c.d.Queue("other"))(t)
		from := must(c.d.Buffer("from", len(want)))(t)
		to := must(c.d.Buffer("to", len(want)))(t)
		hosts := map[string][]byte{"memory": make([]byte, len(want)),
			"host buffer": must(c.d.HostBuffer("h", len(want)))(t).Host()}
		for name, host := range hosts {
			for _, on := range []*gpustate.Queue{a, q} {
				ok(t, a.Write(from, 0, want))
				ok(t, q.Write(to, 0, old))
				clear(host)
				r := must(a.ReadAsync(from, 0, host))(t)
				w := must(on.WriteAsync(to, 0, host, r))(t)
				ok(t, w.Wait())
				got := make([]byte, len(want))
				ok(t, q.Read(to, 0, got))
				if !bytes.Equal(got, want) {
					t.Errorf("%s, queue %s: a write took the bytes from before the read", name, on.Name())
				}
				ok(t, q.Write(to, 0, old))
				r = must(a.ReadAsync(from, 0, host))(t)
				ok(t, must(on.ReadAsync(to, 0, host, r))(t).Wait())
				ok(t, r.Wait())
				if !bytes.Equal(host, old) {
					t.Errorf("%s, queue %s: a read was overwritten by the one before it", name, on.Name())
				}
				clear(host)
				layout, box := gpustate.Layout{Row: 64}, gpustate.Box{64, len(want) / 64, 1}
				r = must(a.ReadRectAsync(from, layout, box, host, layout))(t)
				ok(t, must(on.WriteAsync(to, 0, host, r))(t).Wait())
				ok(t, q.Read(to, 0, got))
				if !bytes.Equal(got, want) {
					t.Errorf("%s, queue %s: a write took the bytes from before the read of a box", name, on.Name())
				}
			}
		}
	})
}

// TestPiecesBefore: the same of reads with many pieces, which several goroutines copy.
func TestPiecesBefore(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(16))
	p := serve(t, Options{})
	c := open(t, p.sel)
	defer c.d.Close()
	const n = 8 << 20
	want := bytes.Repeat([]byte{1, 2, 3, 4}, n/4)
	a := must(c.d.Queue("a"))(t)
	from := must(c.d.Buffer("from", n))(t)
	ok(t, a.Write(from, 0, want))
	got := make([]byte, n)
	bad := 0
	for range 30 {
		clear(got)
		r := must(a.ReadAsync(from, 0, got))(t)
		ok(t, must(a.Marker())(t).Wait())
		if !bytes.Equal(got, want) {
			bad++
		}
		ok(t, r.Wait())
	}
	if bad > 0 {
		t.Errorf("%d of 30 markers were complete before the read in front of them", bad)
	}
}

// failingLaunches is a driver with late reads whose launches fail while they run.
type failingLaunches struct{ lateReads }

func (l failingLaunches) Open(index int) (driver.Device, error) {
	d, err := l.Driver.Open(index)
	return &failingDevice{lateDevice: lateDevice{Device: d}}, err
}

type failingDevice struct {
	lateDevice
	launches sync.Map
}

func (d *failingDevice) Launch(q, k driver.Handle, g driver.Grid, wait []driver.Event) (driver.Event, error) {
	e, err := d.Device.Launch(q, k, g, wait)
	d.launches.Store(e, true)
	return e, err
}

func (d *failingDevice) EventDone(e driver.Event) (bool, error) {
	if _, fails := d.launches.Load(e); fails {
		return false, nil
	}
	return d.lateDevice.EventDone(e)
}

func (d *failingDevice) WaitEvent(e driver.Event) error {
	err := d.lateDevice.WaitEvent(e)
	if _, fails := d.launches.Load(e); fails {
		err = driver.ErrKernelFault
	}
	return err
}

// TestReadsBeforeFailures: a command behind a launch that failed, and that launch, are complete after the reads that
// the launch came after.
func TestReadsBeforeFailures(t *testing.T) {
	p := serveWith(t, Options{}, "reads, and launches fail")
	c := open(t, p.sel)
	defer c.d.Close()
	want := bytes.Repeat([]byte{1, 2, 3, 4}, elements)
	a := must(c.d.Queue("a"))(t)
	from := must(c.d.Buffer("from", len(want)))(t)
	ok(t, a.Write(from, 0, want))
	for kind, opt := range map[string]gpustate.QueueOptions{"in order": {Profiling: true},
		"out of order": {Profiling: true, OutOfOrder: true}} {
		q := must(c.d.QueueWith(kind, opt))(t)
		for _, behind := range []bool{false, true} {
			got := bytes.Repeat([]byte{9}, len(want))
			r := must(a.ReadAsync(from, 0, got))(t)
			last := must(q.Launch(c.k, []int{1}, nil, r))(t)
			if behind {
				last = must(q.Marker())(t)
			}
			if err := last.Wait(); behind != (err == nil) {
				t.Errorf("%s, behind %v: got %v", kind, behind, err)
			}
			if !bytes.Equal(got, want) {
				t.Errorf("%s, behind %v: the bytes of the read have not come", kind, behind)
			}
			ok(t, r.Wait())
		}
	}
}

// lateFills is a driver whose fills are complete in time, but whose caller learns of it late.
type lateFills struct{ driver.Driver }

func (l lateFills) Open(index int) (driver.Device, error) {
	d, err := l.Driver.Open(index)
	return &lateFiller{lateDevice{Device: d}}, err
}

type lateFiller struct{ lateDevice }

func (d *lateFiller) Fill(q, m driver.Handle, p driver.Place, pattern []byte, wait []driver.Event) (driver.Event,
	error) {
	e, err := d.Device.Fill(q, m, p, pattern, wait)
	if e != 0 {
		d.reads.Store(e, true)
	}
	return e, err
}

func (d *lateFiller) Transfer(q driver.Handle, t driver.Transfer, wait []driver.Event) (driver.Event, error) {
	return d.Device.Transfer(q, t, wait)
}

// TestReportedInOrder: a client that knows a command to be complete finds those complete that it came after, and may
// ask for their times.
func TestReportedInOrder(t *testing.T) {
	ordered := gpustate.QueueOptions{Profiling: true}
	unordered := gpustate.QueueOptions{Profiling: true, OutOfOrder: true}
	queues := map[string][2]gpustate.QueueOptions{ // of the fill, of what comes after it
		"in order":               {ordered, ordered},
		"lazy behind":            {ordered, {}},
		"out of order":           {unordered, unordered},
		"out of order, behind":   {ordered, unordered},
		"out of order, in front": {unordered, ordered},
	}
	type command func(c *counter, q *gpustate.Queue, e *gpustate.Event) (*gpustate.Event, error)
	commands := map[string]command{
		"a launch": func(c *counter, q *gpustate.Queue, e *gpustate.Event) (*gpustate.Event, error) {
			return q.Launch(c.k, []int{1}, nil, e)
		},
		"a read": func(c *counter, q *gpustate.Queue, e *gpustate.Event) (*gpustate.Event, error) {
			return q.ReadAsync(c.b, 0, make([]byte, 8), e)
		},
		"a marker": func(_ *counter, q *gpustate.Queue, e *gpustate.Event) (*gpustate.Event, error) {
			return q.Marker(e)
		},
		"behind a launch": func(c *counter, q *gpustate.Queue, e *gpustate.Event) (*gpustate.Event, error) {
			l, err := q.Launch(c.k, []int{1}, nil, e)
			if err != nil {
				return nil, err
			}
			return q.ReadAsync(c.b, 0, make([]byte, 8), l)
		},
		"behind a barrier": func(c *counter, q *gpustate.Queue, e *gpustate.Event) (*gpustate.Event, error) {
			if _, err := q.Barrier(e); err != nil {
				return nil, err
			}
			return q.Launch(c.k, []int{1}, nil)
		},
	}
	both(t, func(t *testing.T, o Options) {
		p := serveWith(t, o, "fills")
		c := open(t, p.sel)
		defer c.d.Close()
		behind := func(t *testing.T, e, last *gpustate.Event) {
			ok(t, last.Wait())
			if !must(e.Done())(t) {
				t.Error("the command that it came after is not complete")
			}
		}
		for kind, opt := range queues {
			front, back := must(c.d.QueueWith("front", opt[0]))(t), must(c.d.QueueWith("back", opt[1]))(t)
			for name, command := range commands {
				t.Run(kind+"/"+name, func(t *testing.T) {
					e := must(front.Fill(c.b, 0, 8, []byte{1}))(t)
					behind(t, e, must(command(c, back, e))(t))
					e = must(front.Fill(c.b, 0, 8, []byte{1}))(t)
					behind(t, e, must(command(c, front, e))(t))
				})
			}
			t.Run(kind+"/a marker behind all", func(t *testing.T) {
				e := must(front.Fill(c.b, 0, 8, []byte{1}))(t)
				behind(t, e, must(front.Marker())(t))
			})
			ok(t, front.Release())
			ok(t, back.Release())
		}
	})
}

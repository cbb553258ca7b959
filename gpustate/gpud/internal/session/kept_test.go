package session

import (
	"bufio"
	"errors"
	"net"
	"os"
	"runtime"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-hpc/holdfast/gpustate/gpud/internal/usage"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/driver"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/fake"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/wire"
	"github.com/holdfast-hpc/holdfast/internal/shm"
)

// marks is a device whose markers are complete when the test says so.
type marks struct {
	driver.Device

	mu      sync.Mutex
	changed *sync.Cond
	last    driver.Event
	over    map[driver.Event]error // those that are complete
	flushes int
	waits   int // in WaitEvent
}

func (d *marks) Marker(driver.Handle, []driver.Event) (driver.Event, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.last++
	return d.last, nil
}

func (d *marks) Flush(driver.Handle) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.flushes++
	return nil
}

func (d *marks) EventDone(e driver.Event) (bool, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	err, over := d.over[e]
	return over, err
}

func (d *marks) WaitEvent(e driver.Event) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.waits++
	d.changed.Broadcast()
	for {
		if err, over := d.over[e]; over {
			return err
		}
		d.changed.Wait()
	}
}

func (d *marks) ReleaseEvent(driver.Event) {}

// complete lets markers be complete.
func (d *marks) complete(err error, list ...driver.Event) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, e := range list {
		d.over[e] = err
	}
	d.changed.Broadcast()
}

// waited returns when so many waits have begun.
func (d *marks) waited(n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for d.waits < n {
		d.changed.Wait()
	}
}

// keeper is a session with two in-order queues, 2 and 3, whose client has a ring.
type keeper struct {
	*Session
	dev     *marks
	reports chan wire.Done
}

func newKeeper(t *testing.T) *keeper {
	t.Helper()
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(16)) // as where there are cores to stay awake on
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	ok(t, err)
	var ends []*net.UnixConn
	for _, fd := range fds {
		f := os.NewFile(uintptr(fd), "")
		c, err := net.FileConn(f)
		ok(t, errors.Join(err, f.Close()))
		ends = append(ends, c.(*net.UnixConn))
	}
	f, shared, err := shm.New("memory", wire.SharedBytes)
	ok(t, errors.Join(err, f.Close()))
	client, err := wire.NewRing(ends[0], shared, true)
	ok(t, err)
	lib := &fake.Library{}
	k := &keeper{Session: New(&Service{Usages: &usage.Table{}}, ends[1], Identity{}, &usage.Usage{}, nil),
		reports: make(chan wire.Done, 1000)}
	under, err := lib.Open(1)
	ok(t, err)
	infos, err := lib.Devices()
	ok(t, err)
	k.dev = &marks{Device: under, over: map[driver.Event]error{}}
	k.dev.changed = sync.NewCond(&k.dev.mu)
	k.Session.dev, k.drv, k.arena = Device{Info: infos[1], At: 1}, k.dev, shared
	ok(t, k.useRing())
	k.ring.Waited(time.Hour, 0) // a short wait: it stays awake for the next one
	for id := range uint64(2) {
		ok(t, k.createQueue(&wire.CreateQueue{ID: 2 + id, Desc: driver.QueueDesc{Lazy: true}}))
	}
	var reader sync.WaitGroup
	reader.Go(func() {
		_ = wire.ReadFrames(bufio.NewReader(client), func(op wire.Op, body []byte) error {
			var m wire.Done
			if op != wire.OpDone {
				return nil
			}
			err := wire.Decode(body, &m)
			k.reports <- m
			return err
		})
	})
	t.Cleanup(func() {
		k.handOver()
		k.dev.mu.Lock()
		last := k.dev.last
		k.dev.mu.Unlock()
		for e := driver.Event(1); e <= last; e++ {
			k.dev.complete(nil, e)
		}
		client.Release()
		ok(t, ends[0].Close())
		reader.Wait()
		for _, o := range k.objects {
			if q, is := o.(*queue); is {
				ok(t, q.close())
			}
		}
		k.ring.Release() // both sides' memory is unmapped
		ok(t, errors.Join(under.Close(), shm.Free(shared), ends[1].Close()))
	})
	return k
}

// hear takes in a message.
func (k *keeper) hear(t *testing.T, m wire.Message) {
	t.Helper()
	frame := wire.Append(nil, m)
	ok(t, k.dispatch(wire.Op(frame[4]), frame[5:]))
}

// mark issues markers with these events of the client.
func (k *keeper) mark(t *testing.T, queue uint64, events ...uint64) {
	t.Helper()
	for _, e := range events {
		k.hear(t, &wire.Marker{Queue: queue, Event: e})
	}
}

// hears checks which events are reported to the client next, and in which order.
func (k *keeper) hears(t *testing.T, events ...uint64) {
	t.Helper()
	var got []uint64
	for range events {
		m := <-k.reports
		got = append(got, m.Event)
	}
	if !slices.Equal(got, events) {
		t.Fatalf("the client gets the report of events %d, want %d", got, events)
	}
}

func (k *keeper) keeps(t *testing.T, n int) {
	t.Helper()
	if len(k.items) != n {
		t.Fatalf("%d commands are kept, want %d", len(k.items), n)
	}
}

// TestKept: the reading goroutine tells of commands in order, without a wait in the driver.
func TestKept(t *testing.T) {
	k := newKeeper(t)
	k.mark(t, 2, 11, 12, 13)
	k.keeps(t, 3)
	k.dev.complete(nil, 1, 3)
	k.onWait(false)
	k.hears(t, 11)
	k.keeps(t, 2)
	failure := errors.New("a failure")
	k.dev.complete(failure, 2)
	k.onWait(false)
	if m := <-k.reports; m.Event != 12 || m.Err == nil {
		t.Fatalf("the client gets the report of event %d, error %v; want event 12 and an error", m.Event, m.Err)
	}
	k.hears(t, 13)
	k.keeps(t, 0)
	if k.dev.waits != 0 || k.dev.flushes == 0 {
		t.Errorf("%d waits in the driver, want none; %d flushes, want one at least", k.dev.waits, k.dev.flushes)
	}
}

// TestKeptBetweenMessages: commands are complete for the client also while messages come without a pause.
func TestKeptBetweenMessages(t *testing.T) {
	k := newKeeper(t)
	k.mark(t, 2, 11)
	k.dev.complete(nil, 1)
	for range 16 {
		k.hear(t, &wire.Flush{Queue: 2})
	}
	k.hears(t, 11)
}

// TestHandedOver: before the reading goroutine sleeps or does what may take long, and when a command of another
// queue comes, the queue's goroutine gets the commands. What comes behind them goes the same way, so that
// the client gets the reports in order.
func TestHandedOver(t *testing.T) {
	for name, handOver := range map[string]func(k *keeper){
		"it sleeps":         func(k *keeper) { k.onWait(true) },
		"a long call":       func(k *keeper) { k.hear(t, &wire.Finish{Queue: 3, Req: 1}) },
		"another queue":     func(k *keeper) { k.mark(t, 3, 99) },
		"very many":         func(k *keeper) { k.mark(t, 2, rangeOf(1000, mostKept-1)...) },
		"the client is off": func(k *keeper) { k.handOver() },
	} {
		t.Run(name, func(t *testing.T) {
			k := newKeeper(t)
			k.mark(t, 2, 11, 12)
			k.keeps(t, 2)
			handOver(k)
			k.dev.waited(1)
			k.mark(t, 2, 13)
			if k.queue != nil && k.queue.followed.Load() > 0 {
				t.Fatal("a command is kept behind one that the queue's goroutine has")
			}
			issued := k.dev.last
			k.dev.complete(nil, issued)
			k.onWait(false)
			select {
			case m := <-k.reports:
				t.Fatalf("the client gets the report of event %d before those in front of it", m.Event)
			default:
			}
			k.dev.complete(nil, 1, 2)
			k.hears(t, 11, 12)
			for e := driver.Event(3); e < issued; e++ {
				k.dev.complete(nil, e)
			}
			q, err := object[*queue](k.Session, 2, "queue")
			ok(t, err)
			for q.followed.Load() > 0 {
				runtime.Gosched()
			}
			k.mark(t, 2, 14)
			if !slices.ContainsFunc(k.items, func(i item) bool { return i.ev == 14 }) {
				t.Error("nothing is kept any more")
			}
		})
	}
}

func rangeOf(first uint64, n int) (list []uint64) {
	for i := range n {
		list = append(list, first+uint64(i))
	}
	return list
}

package gpustate

import (
	"context"
	"errors"
	"testing"

	"github.com/holdfast-hpc/holdfast/gpustate/internal/checkpoint"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/driver"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/fake"
)

// migrate is Device.Migrate to a device that is open.
func (d *Device) migrate(ctx context.Context, drv driver.Device) error {
	return d.watched(ctx, drv, &checkpoint.Stopwatch{})
}

// TestMigrateFaults lets a migration fail at each allocation and write: the
// program continues where it was.
func TestMigrateFaults(t *testing.T) {
	d, _ := fakeDevice(t)
	s := big(t, d)
	lib := &fake.Library{}
	for _, fault := range []struct {
		name string
		set  func(int)
		n    int
	}{{"allocation", lib.Faults.FailAlloc, 5}, {"write", lib.Faults.FailWrite, 3}} {
		for n := 1; n <= fault.n; n++ {
			other := must(lib.Open(1))(t)
			fault.set(n)
			if err := d.migrate(context.Background(), other); err == nil {
				t.Fatalf("%s %d fails, the migration does not", fault.name, n)
			}
			fault.set(0)
			if lib.Faults.Live() != 0 {
				t.Fatalf("%s %d fails: %d objects left on the new device", fault.name, n, lib.Faults.Live())
			}
			s.expect(t, 2)
		}
	}
	ok(t, d.migrate(context.Background(), must(lib.Open(1))(t)))
	s.expect(t, 2)
	s.step(t)
	s.expect(t, 4)
	if lib.Faults.Live() == 0 {
		t.Error("nothing is on the new device")
	}
	ok(t, d.Close())
	if n := lib.Faults.Live(); n != 0 {
		t.Errorf("%d objects left after Close", n)
	}
}

// TestMigrateEnds ends a migration by its context.
func TestMigrateEnds(t *testing.T) {
	d, _ := fakeDevice(t)
	s := big(t, d)
	lib := &fake.Library{}
	ctx, cancel := context.WithCancelCause(context.Background())
	why := errors.New("the job is over")
	cancel(why)
	if err := d.migrate(ctx, must(lib.Open(0))(t)); !errors.Is(err, why) {
		t.Errorf("got %v, want %v", err, why)
	}
	s.expect(t, 2)
}

// TestEventsOverMigration keeps events of before valid: their commands are
// complete.
func TestEventsOverMigration(t *testing.T) {
	for _, index := range []int{0, 1} { // with and without an event per command
		lib := &fake.Library{}
		d := newDevice(must(lib.Open(index))(t))
		s := newSetup(t, d, 64)
		s.fill(t)
		e := s.step(t)
		w := must(s.q.WriteAsync(s.x, 0, make([]byte, 4)))(t)
		ok(t, d.migrate(context.Background(), must(lib.Open(1-index))(t)))
		for _, e := range []*Event{e, w} {
			if done, err := e.Done(); !done || err != nil {
				t.Errorf("device %d: done %v, %v after a migration", index, done, err)
			}
			ok(t, e.Wait())
		}
		must(s.q.Launch(s.k, []int{64}, nil, e, w))(t)
		ok(t, d.Close())
		ok(t, e.Wait())
		if err := s.q.Finish(); !errors.Is(err, ErrClosed) {
			t.Errorf("finish after close: %v", err)
		}
	}
}

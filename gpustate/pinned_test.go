package gpustate

import (
	"testing"

	"github.com/holdfast-hpc/holdfast/gpustate/internal/driver"
	"golang.org/x/sys/unix"
)

// counting counts how often a device is closed.
type counting struct {
	driver.Device
	closed int
}

func (c *counting) Close() error {
	c.closed++
	return c.Device.Close()
}

// TestCloseUnpinsMessages: memory that was page-locked for messages, which nobody unpins, keeps no device open. Memory
// that the program pinned does, until it is unpinned.
func TestCloseUnpinsMessages(t *testing.T) {
	mem, err := unix.Mmap(-1, 0, 2*pageBytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Munmap(mem) }()
	for _, c := range []struct {
		name string
		pin  func(d *Device, r *Range) (func() error, error)
		left int
	}{
		{"messages", func(_ *Device, r *Range) (func() error, error) { return r.Pin(mem) }, 0},
		{"the program", func(d *Device, _ *Range) (func() error, error) { return d.Pin(mem[pageBytes:]) }, 1},
	} {
		d := tallyDevice(t, 0)
		q, err := d.Queue("q")
		if err != nil {
			t.Fatal(err)
		}
		b, err := d.Buffer("b", 8)
		if err != nil {
			t.Fatal(err)
		}
		unpin, err := c.pin(d, q.Range(b, 0, 8))
		if err != nil {
			t.Fatal(err)
		}
		s := &counting{Device: d.state.Session.Device}
		d.state.Session.Device = s
		if err := d.Close(); err != nil {
			t.Error(err)
		}
		if s.closed != 1-c.left {
			t.Errorf("%s: the driver's device was closed %d times after Close, want %d", c.name, s.closed, 1-c.left)
		}
		if err := unpin(); err != nil || s.closed != 1 {
			t.Errorf("%s: the driver's device was closed %d times after the end (%v), want 1", c.name, s.closed, err)
		}
	}
}

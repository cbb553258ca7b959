package gpustate

import (
	"testing"

	"golang.org/x/sys/unix"
)

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
		s := d.drv
		if err := d.Close(); err != nil {
			t.Error(err)
		}
		if s.users != c.left {
			t.Errorf("%s: %d users of the driver's device are left after Close, want %d", c.name, s.users, c.left)
		}
		if err := unpin(); err != nil || s.users != 0 {
			t.Errorf("%s: %d users are left after the end (%v)", c.name, s.users, err)
		}
	}
}

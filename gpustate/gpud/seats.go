package gpud

import (
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/holdfast-hpc/holdfast/gpustate/internal/wire"
)

// seat is what is counted of one client. Whoever serves the client writes it, in
// the server's process or in a worker; the server reads it.
type seat struct {
	device     atomic.Int64 // with 1 added; 0 until the client has chosen
	used       atomic.Int64 // bytes of device memory
	shared     atomic.Int64 // bytes of the client's memory that are mapped here
	unfinished atomic.Int64 // commands
	commands   atomic.Int64
	written    atomic.Int64 // bytes to the device
	read       atomic.Int64 // bytes from it
}

// seatBytes is a page for each, so that a worker can change its own alone.
const seatBytes = 4096

// seats are the counts of all clients that a server has room for, in memory that
// it shares with its workers.
type seats struct {
	file *os.File // nil in a worker
	mem  []byte
	own  []byte // in a worker: the page of its seat
	n    int
}

func newSeats(n int) (*seats, error) {
	f, b, err := wire.NewShared(n * seatBytes)
	if err != nil {
		return nil, err
	}
	return &seats{file: f, mem: b, n: n}, nil
}

// mapSeats maps the seats of a server in a worker: its own to write, all to read.
func mapSeats(f *os.File, n, own int) (*seats, error) {
	t := &seats{n: n}
	var err error
	if t.mem, err = unix.Mmap(int(f.Fd()), 0, n*seatBytes, unix.PROT_READ, unix.MAP_SHARED); err != nil {
		return nil, fmt.Errorf("map the counts of the server: %w", err)
	}
	t.own, err = unix.Mmap(int(f.Fd()), int64(own)*seatBytes, seatBytes, unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("map the counts of this client: %w", err)
	}
	return t, nil
}

func (t *seats) at(i int) *seat { return (*seat)(unsafe.Pointer(&t.mem[i*seatBytes])) }

// mine is the seat that a worker writes.
func (t *seats) mine() *seat { return (*seat)(unsafe.Pointer(&t.own[0])) }

// on calls do for the seat of each client of a device.
func (t *seats) on(device int, do func(*seat)) {
	for i := range t.n {
		if s := t.at(i); s.device.Load() == int64(device)+1 {
			do(s)
		}
	}
}

// used is the memory of all clients of a device.
func (t *seats) used(device int) (bytes int64) {
	t.on(device, func(s *seat) { bytes += s.used.Load() })
	return bytes
}

// allShared is the shared memory of all clients.
func (t *seats) allShared() (bytes int64) {
	for i := range t.n {
		bytes += t.at(i).shared.Load()
	}
	return bytes
}

// clear makes a seat free for the next client.
func (s *seat) clear() {
	for _, v := range []*atomic.Int64{&s.device, &s.used, &s.shared, &s.unfinished, &s.commands, &s.written, &s.read} {
		v.Store(0)
	}
}

func (t *seats) close() error { return errors.Join(t.file.Close(), wire.FreeShared(t.mem)) }

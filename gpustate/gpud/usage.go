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

// usage is what is counted of one client. Whoever serves the client writes it, in
// the server's process or in a worker; the server reads it.
type usage struct {
	device     atomic.Int64 // with 1 added; 0 until the client has chosen
	used       atomic.Int64 // bytes of device memory
	shared     atomic.Int64 // bytes of the client's memory that are mapped here
	unfinished atomic.Int64 // commands
	commands   atomic.Int64
	written    atomic.Int64 // bytes to the device
	read       atomic.Int64 // bytes from it
}

// usageBytes is a page for each, so that a worker can change its own alone.
const usageBytes = 4096

// usages are the counts of all clients that a server has room for, in memory that
// it shares with its workers.
type usages struct {
	file *os.File // nil in a worker
	mem  []byte
	own  []byte // in a worker: the page of its usage
	n    int
}

func newUsages(n int) (*usages, error) {
	f, b, err := wire.NewShared(n * usageBytes)
	if err != nil {
		return nil, err
	}
	return &usages{file: f, mem: b, n: n}, nil
}

// mapUsages maps the usages of a server in a worker: its own to write, all to read.
func mapUsages(f *os.File, n, own int) (*usages, error) {
	t := &usages{n: n}
	var err error
	if t.mem, err = unix.Mmap(int(f.Fd()), 0, n*usageBytes, unix.PROT_READ, unix.MAP_SHARED); err != nil {
		return nil, fmt.Errorf("map the counts of the server: %w", err)
	}
	t.own, err = unix.Mmap(int(f.Fd()), int64(own)*usageBytes, usageBytes, unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("map the counts of this client: %w", err)
	}
	return t, nil
}

func (t *usages) at(i int) *usage { return (*usage)(unsafe.Pointer(&t.mem[i*usageBytes])) }

// mine is the usage that a worker writes.
func (t *usages) mine() *usage { return (*usage)(unsafe.Pointer(&t.own[0])) }

// on calls do for the usage of each client of a device.
func (t *usages) on(device int, do func(*usage)) {
	for i := range t.n {
		if s := t.at(i); s.device.Load() == int64(device)+1 {
			do(s)
		}
	}
}

// used is the memory of all clients of a device.
func (t *usages) used(device int) (bytes int64) {
	t.on(device, func(s *usage) { bytes += s.used.Load() })
	return bytes
}

// allShared is the shared memory of all clients.
func (t *usages) allShared() (bytes int64) {
	for i := range t.n {
		bytes += t.at(i).shared.Load()
	}
	return bytes
}

// clear makes a usage free for the next client.
func (s *usage) clear() {
	for _, v := range []*atomic.Int64{&s.device, &s.used, &s.shared, &s.unfinished, &s.commands, &s.written, &s.read} {
		v.Store(0)
	}
}

func (t *usages) close() error { return errors.Join(t.file.Close(), wire.FreeShared(t.mem)) }

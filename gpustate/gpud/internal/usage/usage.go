// Package usage counts the memory that a server's clients take of its devices and of the machine, and computes the
// share of one more. The counts lie in memory that a server shares with its workers.
package usage

import (
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/holdfast-hpc/holdfast/internal/shm"
)

// Usage has the counts of one client. The worker that serves the client writes it; the server reads it.
type Usage struct {
	device     atomic.Int64 // with 1 added; 0 until the client has chosen
	Used       atomic.Int64 // bytes of device memory
	Shared     atomic.Int64 // bytes of the client's memory that are mapped here
	Unfinished atomic.Int64 // commands
	Commands   atomic.Int64
	Written    atomic.Int64 // bytes to the device
	Read       atomic.Int64 // bytes from it
}

// pageBytes is a page for each, so that a worker can change its own alone.
const pageBytes = 4096

// Table is the counts of all clients that a server has room for, in memory that it
// shares with its workers.
type Table struct {
	file *os.File // nil in a worker
	mem  []byte
	own  []byte // in a worker: the page of its usage
	n    int
}

// New makes the table of a server for n clients. The server closes it.
func New(n int) (*Table, error) {
	f, b, err := shm.New("memory", n*pageBytes)
	if err != nil {
		return nil, err
	}
	return &Table{file: f, mem: b, n: n}, nil
}

// Map maps the table of a server, of n usages, in a worker: page own to write, all to
// read. It ends with the process.
func Map(f *os.File, n, own int) (*Table, error) {
	t := &Table{n: n}
	var err error
	if t.mem, err = unix.Mmap(int(f.Fd()), 0, n*pageBytes, unix.PROT_READ, unix.MAP_SHARED); err != nil {
		return nil, fmt.Errorf("map the counts of the server: %w", err)
	}
	t.own, err = unix.Mmap(int(f.Fd()), int64(own)*pageBytes, pageBytes, unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("map the counts of this client: %w", err)
	}
	return t, nil
}

// File returns the file that workers map.
func (t *Table) File() *os.File { return t.file }

// Len returns how many clients there is room for.
func (t *Table) Len() int { return t.n }

// At returns the usage on page i.
func (t *Table) At(i int) *Usage { return (*Usage)(unsafe.Pointer(&t.mem[i*pageBytes])) }

// Mine returns the usage that a worker writes.
func (t *Table) Mine() *Usage { return (*Usage)(unsafe.Pointer(&t.own[0])) }

// used returns the memory of all clients of a device.
func (t *Table) used(device int) (bytes int64) {
	for i := range t.n {
		if s := t.At(i); s.device.Load() == int64(device)+1 {
			bytes += s.Used.Load()
		}
	}
	return bytes
}

// allShared returns the shared memory of all clients.
func (t *Table) allShared() (bytes int64) {
	for i := range t.n {
		bytes += t.At(i).Shared.Load()
	}
	return bytes
}

// Clear makes a usage free for the next client.
func (s *Usage) Clear() {
	for _, v := range []*atomic.Int64{&s.device, &s.Used, &s.Shared, &s.Unfinished, &s.Commands, &s.Written, &s.Read} {
		v.Store(0)
	}
}

// Close gives the memory back; no worker is left.
func (t *Table) Close() error { return errors.Join(t.file.Close(), shm.Free(t.mem)) }

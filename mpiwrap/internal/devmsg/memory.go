package devmsg

import (
	"fmt"
	"math/bits"
	"slices"
	"sync"

	"github.com/holdfast-hpc/holdfast/internal/shm"
)

// Memory is a range of device memory of a message; package mpiwrap's DeviceRange documents the methods.
type Memory interface {
	Bytes() int
	Check() error
	Device() any
	Kind() string
	Read(dst []byte) error
	ReadPieces(off int, dst [][]byte) (waits []func() error, err error)
	Write(src []byte) error
	Mark() (mark any, err error)
	WritePiece(mark any, off int, src []byte) (wait func() error, err error)
	Whole(do func() error) error
	Lend(mark any, do func(pointer uintptr) error) error
	LendWith(mark, other, after any, do func(pointer, other uintptr) error) error
	Common(other any) int
	Pin(b []byte) (unpin func() error, err error)
}

// SmallBytes is the size of a block that is page-locked for its device.
const SmallBytes = 64 << 10

// Pool keeps host memory for messages, from its first use to the end of the process: network
// cards may have registered it. The zero value is ready. Its methods may be called at once.
type Pool struct {
	mu   sync.Mutex
	free [64][]*area // by the logarithm of the size
}

// area is memory that a Pool gives again and again, to one block at a time.
type area struct {
	bytes  []byte
	pinned []any // devices that it is page-locked for
}

// Block is memory of a Pool.
type Block struct {
	Bytes []byte
	pool  *Pool
	area  *area
}

// Take gives n bytes for a message of m that fills them; Free takes them back.
func (p *Pool) Take(m Memory, n int) (*Block, error) {
	b, err := p.TakeUnpinned(m, n)
	if err == nil {
		b.Pin(m)
	}
	return b, err
}

// TakeUnpinned is Take for a message that may leave most of the memory unused: pages of a large
// block that are not written take no memory, and are not page-locked.
func (p *Pool) TakeUnpinned(m Memory, n int) (*Block, error) {
	a, err := p.take(bits.Len(uint(max(n, SmallBytes) - 1)))
	if err != nil {
		return nil, err
	}
	b := &Block{Bytes: a.bytes[:n], pool: p, area: a}
	if n <= SmallBytes {
		b.Pin(m)
	}
	return b, nil
}

// take gives an area of 1<<class bytes.
func (p *Pool) take(class int) (*area, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if k := len(p.free[class]); k > 0 {
		a := p.free[class][k-1]
		p.free[class] = p.free[class][:k-1]
		return a, nil
	}
	b, err := shm.Private(1 << class)
	if err != nil {
		return nil, fmt.Errorf("map %d bytes of host memory for a message: %w", 1<<class, err)
	}
	return &area{bytes: b}, nil
}

// Pin page-locks the block for the device of m, once: it pays for a block that is filled.
func (b *Block) Pin(m Memory) {
	if d := m.Device(); !slices.Contains(b.area.pinned, d) {
		b.area.pinned = append(slices.DeleteFunc(b.area.pinned, Closed), d)
		_, _ = m.Pin(b.area.bytes) // without, transfers take longer
	}
}

// Free gives the block back. Doing it again, or with no block, does nothing.
func (b *Block) Free() {
	if b == nil || b.area == nil {
		return
	}
	p := b.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	class := bits.Len(uint(len(b.area.bytes) - 1))
	p.free[class] = append(p.free[class], b.area)
	b.area, b.Bytes = nil, nil
}

// Closed reports whether a device of Memory is closed, as far as it tells.
func Closed(device any) bool {
	d, ok := device.(interface{ Closed() bool })
	return ok && d.Closed()
}

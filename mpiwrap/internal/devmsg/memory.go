package devmsg

import (
	"fmt"
	"maps"
	"math/bits"
	"sync"
	"unsafe"

	"github.com/holdfast-hpc/holdfast/internal/shm"
)

// Memory is a range of device memory that a message is read from or written to; package
// mpiwrap's DeviceRange says what each method promises.
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
	Pin(b []byte) (unpin func() error, err error)
}

// Pair is a Memory that is lent together with another one of its device.
type Pair interface {
	Memory
	LendWith(mark, other, after any, do func(pointer, other uintptr) error) error
}

// Sharer is a Memory that knows how many of its bytes are those of another one.
type Sharer interface{ Common(other any) int }

// Common is how many bytes two ranges have in common, as far as that is known.
func Common(a, b Memory) int {
	if s, ok := a.(Sharer); ok {
		return s.Common(b)
	}
	return 0
}

// SmallBytes is the size of a block that is page-locked for its device.
const SmallBytes = 64 << 10

// Pool keeps host memory for messages, from its first use to the end of the process: network
// cards may have registered it. The zero value is ready. Its methods may be called at once.
type Pool struct {
	mu     sync.Mutex
	small  map[any][][]byte // by device
	left   [][]byte         // by devices that are closed
	large  [64][][]byte     // by the logarithm of the size
	pinned map[pinKey]bool  // large blocks
}

// Block is memory of a Pool.
type Block struct {
	Bytes []byte
	pool  *Pool
	whole []byte
	of    any // device, of a small block
}

// Take gives n bytes for messages of m; Free takes them back. Pages of a large block that
// nobody writes to take no memory.
func (p *Pool) Take(m Memory, n int) (*Block, error) {
	if n <= SmallBytes {
		return p.takeSmall(m, n)
	}
	class := bits.Len(uint(n - 1))
	p.mu.Lock()
	if k := len(p.large[class]); k > 0 {
		b := p.large[class][k-1]
		p.large[class] = p.large[class][:k-1]
		p.mu.Unlock()
		return &Block{Bytes: b[:n], pool: p, whole: b}, nil
	}
	p.mu.Unlock()
	b, err := mmap(1 << class)
	if err != nil {
		return nil, err
	}
	return &Block{Bytes: b[:n], pool: p, whole: b}, nil
}

func (p *Pool) takeSmall(m Memory, n int) (*Block, error) {
	of := m.Device()
	p.mu.Lock()
	if k := len(p.small[of]); k > 0 {
		b := p.small[of][k-1]
		p.small[of] = p.small[of][:k-1]
		p.mu.Unlock()
		return &Block{Bytes: b[:n], pool: p, whole: b, of: of}, nil
	}
	b := p.leftBy(of)
	p.mu.Unlock()
	if b == nil {
		var err error
		if b, err = mmap(SmallBytes); err != nil {
			return nil, err
		}
	}
	_, _ = m.Pin(b) // without, transfers take longer
	return &Block{Bytes: b[:n], pool: p, whole: b, of: of}, nil
}

// leftBy gives a block that a closed device has left, nil if there is none. of is another device. mu is held.
func (p *Pool) leftBy(of any) (b []byte) {
	for d, list := range p.small {
		if d != of && Closed(d) {
			p.left = append(p.left, list...)
			delete(p.small, d)
			maps.DeleteFunc(p.pinned, func(k pinKey, _ bool) bool { return k.device == d })
		}
	}
	if n := len(p.left); n > 0 {
		b, p.left = p.left[n-1], p.left[:n-1]
	}
	return b
}

// Closed says whether a device of Memory is closed, as far as it tells.
func Closed(device any) bool {
	d, ok := device.(interface{ Closed() bool })
	return ok && d.Closed()
}

// Pin page-locks a large block for the device of m, once: it pays for a block that is filled.
func (b *Block) Pin(m Memory) {
	if len(b.whole) == SmallBytes {
		return // it is
	}
	key := pinKey{unsafe.SliceData(b.whole), m.Device()}
	b.pool.mu.Lock()
	done := b.pool.pinned[key]
	if b.pool.pinned == nil {
		b.pool.pinned = map[pinKey]bool{}
	}
	b.pool.pinned[key] = true
	b.pool.mu.Unlock()
	if !done {
		_, _ = m.Pin(b.whole) // without, transfers take longer
	}
}

// pinKey is a block and a device.
type pinKey struct {
	block  *byte
	device any
}

// Free gives the block back. Doing it again, or with no block, does nothing.
func (b *Block) Free() {
	if b == nil || b.whole == nil {
		return
	}
	p := b.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(b.whole) == SmallBytes {
		if p.small == nil {
			p.small = map[any][][]byte{}
		}
		p.small[b.of] = append(p.small[b.of], b.whole)
	} else {
		class := bits.Len(uint(len(b.whole) - 1))
		p.large[class] = append(p.large[class], b.whole)
	}
	b.whole, b.Bytes = nil, nil
}

func mmap(n int) ([]byte, error) {
	b, err := shm.Private(n)
	if err != nil {
		return nil, fmt.Errorf("map %d bytes of host memory for a message: %w", n, err)
	}
	return b, nil
}

package capture

import (
	"errors"
	"fmt"
	"sync"

	"github.com/holdfast-hpc/holdfast/internal/program"
	"github.com/holdfast-hpc/holdfast/internal/shm"
	"github.com/holdfast-hpc/holdfast/storage"
)

// pageBytes is the alignment of everything in a pool, for direct I/O.
const pageBytes = 4096

// pool is memory for captures that stays mapped and touched: copying into fresh memory would cost page faults, up to
// seventy times the copy. It is filled for one epoch, leased to the writers of that epoch, and claimed for the next.
type pool struct {
	*pinned
	limit  int64 // bytes in all, 0 = no bound
	memory program.Memory

	mu     sync.Mutex // guards the fields below
	chunks [][]byte
	used   []int        // bytes given out of each chunk
	device map[int]bool // chunks that a device's contents went to
	mapped int64        // includes leased memory
	grown  bool         // a capture had to map memory while the program waited
	out    *Lease       // the last lease, until it is over; or nil
	last   Captured     // contents of the memory; zero: nothing whole
	left   bool         // the memory is the program.Memory's to free
}

func newPool(limit int64, memory program.Memory, pinned *pinned) *pool {
	if memory == nil {
		memory = private{}
	}
	return &pool{limit: limit, memory: memory, pinned: pinned, device: map[int]bool{}}
}

// Reserve makes room for n bytes ahead of time, from any goroutine. Too little memory is not an error: captures then do
// without the pool. A capture that claims the pool meanwhile waits; an earlier one has mapped the memory that it needs.
func (p *pool) Reserve(n int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if n > p.mapped {
		p.add(n - p.mapped)
	}
}

// add maps one more chunk and touches its pages; it reports whether it could.
func (p *pool) add(n int64) bool {
	n = RoundUp(n)
	if n == 0 {
		return true
	}
	if p.limit > 0 && p.mapped+n > p.limit {
		return false
	}
	b, err := p.memory.Map(int(n))
	if err != nil {
		return false
	}
	p.chunks = append(p.chunks, b)
	p.used = append(p.used, 0)
	p.mapped += n
	return true
}

// Holds reports whether n bytes are within the bound.
func (p *pool) Holds(n int64) bool { return p.limit <= 0 || n <= p.limit }

// Alloc returns n bytes at a page boundary, or nil without room. The contents are those of an earlier epoch.
func (p *pool) Alloc(n int) []byte {
	p.mu.Lock()
	defer p.mu.Unlock()
	b, _ := p.take(n)
	return b
}

// AllocDevice is Alloc for bytes that come from a device; PinUsed makes the next
// ones come faster.
func (p *pool) AllocDevice(n int) []byte {
	p.mu.Lock()
	defer p.mu.Unlock()
	b, chunk := p.take(n)
	if b != nil {
		p.device[chunk] = true
	}
	return b
}

// LeastChunk is the least that a capture or restore maps: one that grows a little each time does not map each time.
const LeastChunk = 1 << 20

// take is Alloc with the index of the chunk; mu is held.
func (p *pool) take(n int) (b []byte, chunk int) {
	size := int(RoundUp(int64(n)))
	for i, c := range p.chunks {
		if len(c)-p.used[i] >= size {
			b := c[p.used[i] : p.used[i]+n : p.used[i]+size]
			p.used[i] += size
			return b, i
		}
	}
	if !p.add(max(int64(size), LeastChunk)) {
		return nil, 0
	}
	p.grown = true
	last := len(p.chunks) - 1
	p.used[last] = size
	return p.chunks[last][:n:size], last
}

// PinUsed pins the chunks that devices' contents have gone to: the next ones come faster.
func (p *pool) PinUsed() {
	p.mu.Lock()
	var used [][]byte
	for i := range p.device {
		used = append(used, p.chunks[i])
	}
	p.mu.Unlock()
	for _, c := range used {
		p.pinned.Pin(c)
	}
}

// private is memory that only this process maps.
type private struct{ program.Memory }

func (private) Map(n int) ([]byte, error) { return shm.Touched(n) }

func (private) Unmap(b []byte) error { return shm.Free(b) }

// HasGrown reports whether a capture since the last call had to map memory while the
// program waited.
func (p *pool) HasGrown() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	g := p.grown
	p.grown = false
	return g
}

func (p *pool) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	var errs []error
	for _, c := range p.chunks {
		if p.out != nil && p.out.held > 0 {
			break // a write that hangs still reads it; it ends with the process
		}
		errs = append(errs, p.pinned.Unpin(c))
		if !p.left {
			errs = append(errs, p.memory.Unmap(c))
		}
	}
	p.chunks, p.used, p.device, p.mapped = nil, nil, nil, 0
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("unmap capture pool: %w", err)
	}
	return nil
}

// RoundUp rounds n bytes up to whole pages of the pool.
func RoundUp(n int64) int64 { return (n + pageBytes - 1) / pageBytes * pageBytes }

// copyPiece is the size of a goroutine's copies: several times the caches, so that the work spreads over cores.
const copyPiece = 8 << 20

// A Copy is one stretch of memory to be copied.
type Copy struct{ Dst, Src []byte }

// copyAll carries out jobs with up to workers goroutines.
func copyAll(jobs []Copy, workers int) {
	var pieces []Copy
	for _, j := range jobs {
		for len(j.Src) > copyPiece {
			pieces = append(pieces, Copy{j.Dst[:copyPiece], j.Src[:copyPiece]})
			j.Dst, j.Src = j.Dst[copyPiece:], j.Src[copyPiece:]
		}
		if len(j.Src) > 0 {
			pieces = append(pieces, j)
		}
	}
	workers = min(workers, len(pieces))
	if workers <= 1 {
		for _, j := range pieces {
			copy(j.Dst, j.Src)
		}
		return
	}
	var wg sync.WaitGroup
	work := make(chan Copy, len(pieces))
	for _, j := range pieces {
		work <- j
	}
	close(work)
	for range workers {
		wg.Go(func() {
			for j := range work {
				copy(j.Dst, j.Src)
			}
		})
	}
	wg.Wait()
}

// Captured is an epoch whose capture lies in memory.
type Captured struct {
	Epoch    storage.Epoch
	Sections []storage.Section
}

// Remember notes that memory which is shared with a program in another process holds the
// capture of an epoch, until the next one begins.
func (p *Protected) Remember(e storage.Epoch, s *Snapshot) {
	if _, here := p.pool.memory.(private); !here && s != nil && s.InMemory() {
		p.pool.remember(Captured{e, s.Sections})
	}
}

func (p *pool) remember(c Captured) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.last = c
}

// Renew returns the memory that a restore has used for small values, so that Reserve can make one piece for captures.
// No capture has been taken.
func (p *Protected) Renew() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	var errs []error
	for _, c := range p.chunks {
		errs = append(errs, p.memory.Unmap(c))
	}
	p.chunks, p.used, p.mapped = nil, nil, 0
	return errors.Join(errs...)
}

// Leave returns the newest capture, if all of it is still in memory, and keeps Close from unmapping it. No capture
// follows.
func (p *Protected) Leave() Captured {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.left = true
	return p.last
}

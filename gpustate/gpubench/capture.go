package gpubench

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast-hpc/holdfast/gpustate"
)

// Shape of the state and of the reader that stands for storage.
const (
	bufferBytes = 1 << 30
	chunkBytes  = 4 << 20
	readers     = 16
)

// captures measures captures and restores of all sizes.
func (r *runner) captures() error {
	for _, size := range r.opt.Sizes {
		if err := r.size(size); err != nil {
			return err
		}
	}
	return nil
}

func (r *runner) size(size int64) (err error) {
	where := fmt.Sprintf("%.3g GiB", float64(size)/(1<<30))
	const others = 256 << 20 // what is taken besides
	if r.info.GlobalBytes > 0 && size+others > r.info.GlobalBytes {
		r.skip(where, "capture", fmt.Sprintf("the device has %d bytes", r.info.GlobalBytes))
		return nil
	}
	pool, err := unix.Mmap(-1, 0, int(size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		r.skip(where, "capture", fmt.Sprintf("host memory: %v", err))
		return nil
	}
	defer unix.Munmap(pool)
	_ = unix.Madvise(pool, unix.MADV_HUGEPAGE)
	warm(pool)
	d, err := gpustate.Open(r.opt.Select)
	if err != nil {
		return err
	}
	defer d.Close()
	unpin, err := r.pin(d, where, pool)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, unpin()) }()
	bufs, err := fill(d, size, pool)
	if err != nil {
		return err
	}
	var record []byte
	shadows := []shadow{{"shadow", -1, size}, {"half a shadow", size / 2, size / 2}, {"no shadow", 0, 0}}
	if r.info.HostMemory {
		shadows = shadows[2:]
	}
	for _, s := range shadows {
		d.LimitShadow(s.limit)
		if record, err = r.capture(d, where, s, size, pool); err != nil {
			return err
		}
	}
	for _, b := range bufs {
		if err := b.Release(); err != nil {
			return err
		}
	}
	return r.restore(where, size, record, pool)
}

// pin pins what captures and readers use, as package coordinated does, and
// reports what that costs once.
func (r *runner) pin(d *gpustate.Device, where string, pool []byte) (unpin func() error, err error) {
	r.chunks, err = unix.Mmap(-1, 0, readers*chunkBytes, unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_POPULATE)
	if err != nil {
		return nil, err
	}
	begin := time.Now()
	first, err := d.Pin(pool)
	if err != nil {
		return nil, errors.Join(err, unix.Munmap(r.chunks))
	}
	if !r.info.HostMemory {
		r.report(Result{Suite: "gpu", Case: where, Metric: "pin the capture pool, once", Value: time.Since(begin).Seconds(),
			Unit: "s", Runs: 1})
	}
	second, err := d.Pin(r.chunks)
	if err != nil {
		return nil, errors.Join(err, first(), unix.Munmap(r.chunks))
	}
	return func() error { return errors.Join(second(), first(), unix.Munmap(r.chunks)) }, nil
}

// warm touches all pages, in parallel.
func warm(b []byte) {
	var wg sync.WaitGroup
	const share = 64 << 20
	next := atomic.Int64{}
	for range readers {
		wg.Go(func() {
			for {
				at := int(next.Add(share)) - share
				if at >= len(b) {
					return
				}
				for i := at; i < min(at+share, len(b)); i += 4096 {
					b[i] = 1
				}
			}
		})
	}
	wg.Wait()
}

// mark writes what tells one chunk from another.
func mark(b []byte, content int, off int64) {
	binary.LittleEndian.PutUint64(b, uint64(off)<<16|uint64(content)<<1|1)
	binary.LittleEndian.PutUint64(b[len(b)-8:], ^(uint64(off)<<16 | uint64(content)<<1 | 1))
}

func marked(b []byte, content int, off int64) error {
	want := uint64(off)<<16 | uint64(content)<<1 | 1
	if binary.LittleEndian.Uint64(b) != want || binary.LittleEndian.Uint64(b[len(b)-8:]) != ^want {
		return fmt.Errorf("content %d at %d holds other bytes", content, off)
	}
	return nil
}

// fill makes the state and gives each chunk its mark.
func fill(d *gpustate.Device, size int64, scratch []byte) ([]*gpustate.Buffer, error) {
	q, err := d.Queue("fill")
	if err != nil {
		return nil, err
	}
	limit := int64(bufferBytes)
	if m := d.Info().MaxAllocBytes; m > 0 {
		limit = min(limit, m/chunkBytes*chunkBytes)
	}
	var bufs []*gpustate.Buffer
	for left := size; left > 0; {
		n := min(left, limit)
		b, err := d.Buffer(fmt.Sprint("state ", len(bufs)), int(n))
		if err != nil {
			return nil, err
		}
		for off := int64(0); off < n; off += chunkBytes {
			c := scratch[off:min(off+chunkBytes, n)]
			mark(c, len(bufs), off)
		}
		if err := q.Write(b, 0, scratch[:n]); err != nil {
			return nil, err
		}
		bufs, left = append(bufs, b), left-n
	}
	return bufs, nil
}

// capture measures how long the program waits and how long it takes until all
// bytes have been read in chunks, as storage does. The bytes are checked.
func (r *runner) capture(d *gpustate.Device, where string, s shadow, size int64, pool []byte) (record []byte, err error) {
	where += ", " + s.name
	var blocked, total, down []float64
	for i := range r.opt.Runs + 1 {
		free := pool
		begin := time.Now()
		c, err := d.Capture(r.ctx, func(n int) []byte {
			if n > len(free) {
				return nil
			}
			b := free[:n]
			free = free[n:]
			return b
		})
		if err != nil {
			return nil, err
		}
		stopped := time.Since(begin)
		if err := r.drain(c); err != nil {
			return nil, errors.Join(err, c.Release())
		}
		all := time.Since(begin)
		record = c.Record()
		if err := c.Release(); err != nil {
			return nil, err
		}
		if i > 0 {
			blocked = append(blocked, stopped.Seconds())
			total = append(total, all.Seconds())
			down = append(down, float64(s.bytes)/(all-stopped).Seconds()/1e9)
		}
	}
	r.waiting(where, s, size, blocked, total, down)
	return record, nil
}

// shadow is how much of the state is copied within the device.
type shadow struct {
	name  string
	limit int64 // for LimitShadow
	bytes int64 // of the state
}

// waiting reports a capture's times beside that of a pinned copy of everything.
// The program is to wait a tenth of the copy of what the shadow takes, and a
// ninth more than the copy of the rest.
func (r *runner) waiting(where string, s shadow, size int64, blocked, total, down []float64) {
	copying := float64(size) / r.pinned
	most, least := atMost, atLeast
	if r.info.HostMemory || r.info.Kind == "fake" {
		most, least = noGoal, noGoal
	}
	part := float64(s.bytes) / float64(size)
	r.figure(where, "program waits", "s", blocked, copying, 0.1*part+(1-part)/0.9, most)
	r.figure(where, "all read", "s", total, copying, 0, noGoal)
	if s.bytes > 0 {
		r.figure(where, "download behind the program", "GB/s", down, r.pinned/1e9, 0.9, least)
	}
}

// drain reads a capture as storage does: chunk by chunk, several at a time.
func (r *runner) drain(c *gpustate.Capture) error {
	type chunk struct {
		i   int
		off int64
		n   int64
	}
	work := make(chan chunk, 1024)
	go func() {
		defer close(work)
		for i, content := range c.Contents() {
			for off := int64(0); off < content.Bytes; off += chunkBytes {
				work <- chunk{i, off, min(chunkBytes, content.Bytes-off)}
			}
		}
	}()
	errs := make([]error, readers)
	var wg sync.WaitGroup
	for g := range errs {
		wg.Go(func() {
			buf := r.chunks[g*chunkBytes : (g+1)*chunkBytes]
			for k := range work {
				b := c.Slice(k.i, k.off, k.n)
				if b == nil {
					b = buf[:k.n]
					if err := c.ReadAt(r.ctx, k.i, b, k.off); err != nil && errs[g] == nil {
						errs[g] = err
						continue
					}
				}
				if err := marked(b, k.i, k.off); err != nil && errs[g] == nil {
					errs[g] = err
				}
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// restore measures a restore from host memory into a device that has nothing.
func (r *runner) restore(where string, size int64, record, pool []byte) error {
	d, err := gpustate.Open(r.opt.Select)
	if err != nil {
		return err
	}
	defer d.Close()
	base := map[int]int64{} // where contents lie in the pool
	bufs := []int64{}
	limit := int64(bufferBytes)
	if m := r.info.MaxAllocBytes; m > 0 {
		limit = min(limit, m/chunkBytes*chunkBytes)
	}
	for at := int64(0); at < size; at += limit {
		base[len(bufs)] = at
		n := min(limit, size-at)
		for off := int64(0); off < n; off += chunkBytes {
			mark(pool[at+off:at+min(off+chunkBytes, n)], len(bufs), off)
		}
		bufs = append(bufs, n)
	}
	seconds, err := r.repeat(func() error {
		return d.Restore(r.ctx, record, func(i int, dst []byte, off int64) error {
			copy(dst, pool[base[i]+off:])
			return nil
		})
	})
	if err != nil {
		return err
	}
	goal := atLeast
	if r.info.HostMemory {
		goal = noGoal
	}
	r.figure(where, "restore", "GB/s", rates(seconds, size), r.upload/1e9, 0.8, goal)
	d.LimitShadow(-1)
	c, err := d.Capture(r.ctx, nil)
	if err != nil {
		return err
	}
	return errors.Join(r.drain(c), c.Release())
}

package gpu

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/holdfast-hpc/holdfast/bench"
	"github.com/holdfast-hpc/holdfast/gpustate"
)

// Shape of the state and of the reader that stands for storage.
const (
	bufferBytes = 1 << 30
	chunkBytes  = 4 << 20
	readers     = 16
)

// size measures captures and restores of one size.
func (s *suite) size(ctx context.Context, where string, size int64) (err error) {
	const others = 256 << 20 // further measurements
	if s.info.GlobalBytes > 0 && size+others > s.info.GlobalBytes {
		s.Skip(where, "capture", fmt.Errorf("too large for this device, which has %d bytes", s.info.GlobalBytes))
		return nil
	}
	pool, err := unix.Mmap(-1, 0, int(size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		s.Skip(where, "capture", fmt.Errorf("host memory: %w", err))
		return nil
	}
	defer unix.Munmap(pool)
	_ = unix.Madvise(pool, unix.MADV_HUGEPAGE)
	warm(pool)
	d, err := gpustate.Open(s.Select)
	if err != nil {
		return err
	}
	defer d.Close()
	unpin, err := s.pin(d, where, pool)
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
	if s.info.HostMemory {
		shadows = shadows[2:]
	}
	for _, sh := range shadows {
		d.LimitShadow(sh.limit)
		if record, err = s.capture(ctx, d, where, sh, size, pool); err != nil {
			return err
		}
	}
	if err := s.increments(ctx, d, where, size, bufs); err != nil {
		return err
	}
	for _, b := range bufs {
		if err := b.Release(); err != nil {
			return err
		}
	}
	if err := s.restore(ctx, where, size, record, pool); err != nil {
		return err
	}
	return s.incremented(ctx, where, size)
}

// pin pins the memory of captures and readers, as package coordinated does, and reports the cost,
// which is paid once.
func (s *suite) pin(d *gpustate.Device, where string, pool []byte) (unpin func() error, err error) {
	s.chunks, err = unix.Mmap(-1, 0, readers*chunkBytes, unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_POPULATE)
	if err != nil {
		return nil, err
	}
	var first func() error
	took, err := bench.Seconds(func() (err error) { first, err = d.Pin(pool); return err })
	if err != nil {
		return nil, errors.Join(err, unix.Munmap(s.chunks))
	}
	if !s.info.HostMemory {
		s.Add(row(where, "pin the capture pool, once", "s").Of(bench.Samples{took}, nil, nil))
	}
	second, err := d.Pin(s.chunks)
	if err != nil {
		return nil, errors.Join(err, first(), unix.Munmap(s.chunks))
	}
	return func() error { return errors.Join(second(), first(), unix.Munmap(s.chunks)) }, nil
}

// warm touches all pages, in parallel.
func warm(b []byte) {
	var g errgroup.Group
	g.SetLimit(readers)
	for share := range slices.Chunk(b, 64<<20) {
		g.Go(func() error {
			for i := 0; i < len(share); i += 4096 {
				share[i] = 1
			}
			return nil
		})
	}
	_ = g.Wait() // touching cannot fail
}

// largest returns the size of the buffers that hold the state.
func largest(i gpustate.Info) int64 {
	if m := i.MaxAllocBytes; m > 0 {
		return min(bufferBytes, m/chunkBytes*chunkBytes)
	}
	return bufferBytes
}

// markAll writes a different mark into each chunk of a content.
func markAll(b []byte, content int) {
	for off := 0; off < len(b); off += chunkBytes {
		c, word := b[off:min(off+chunkBytes, len(b))], uint64(off)<<16|uint64(content)<<1|1
		binary.LittleEndian.PutUint64(c, word)
		binary.LittleEndian.PutUint64(c[len(c)-8:], ^word)
	}
}

func marked(b []byte, content int, off int64) error {
	want := uint64(off)<<16 | uint64(content)<<1 | 1
	if binary.LittleEndian.Uint64(b) != want || binary.LittleEndian.Uint64(b[len(b)-8:]) != ^want {
		return fmt.Errorf("content %d at offset %d was not restored as it was captured", content, off)
	}
	return nil
}

// fill makes the state and gives each chunk its mark.
func fill(d *gpustate.Device, size int64, scratch []byte) ([]*gpustate.Buffer, error) {
	q, err := d.Queue("fill")
	if err != nil {
		return nil, err
	}
	var bufs []*gpustate.Buffer
	for left := size; left > 0; {
		n := min(left, largest(d.Info()))
		b, err := d.Buffer(fmt.Sprint("state ", len(bufs)), int(n))
		if err != nil {
			return nil, err
		}
		markAll(scratch[:n], len(bufs))
		if err := q.Write(b, 0, scratch[:n]); err != nil {
			return nil, err
		}
		bufs, left = append(bufs, b), left-n
	}
	return bufs, nil
}

// capture measures how long the program waits, and how long it takes to read all bytes in chunks,
// as storage does. The bytes are checked.
func (s *suite) capture(ctx context.Context, d *gpustate.Device, where string, sh shadow, size int64,
	pool []byte) (record []byte, err error) {
	took, err := bench.Repeat(ctx, s.Runs, func(took bench.Set) error {
		free := pool
		begin := time.Now()
		c, err := d.Capture(ctx, func(n int) []byte {
			if n > len(free) {
				return nil
			}
			b := free[:n]
			free = free[n:]
			return b
		})
		if err != nil {
			return err
		}
		stopped := time.Since(begin)
		if err := s.drain(ctx, c); err != nil {
			return errors.Join(err, c.Release())
		}
		all := time.Since(begin)
		record = c.Record()
		took.Add("blocked", stopped.Seconds())
		took.Add("total", all.Seconds())
		took.Add("down", float64(sh.bytes)/(all-stopped).Seconds()/1e9)
		return c.Release()
	})
	if err != nil {
		return nil, err
	}
	s.waiting(where+", "+sh.name, sh, size, took)
	return record, nil
}

// shadow is how much of the state is copied within the device.
type shadow struct {
	name  string
	limit int64 // for LimitShadow
	bytes int64 // of the state
}

// waiting reports the times of a capture beside that of a pinned copy of everything. The goal is a
// tenth of the copy of the shadowed part, and ten ninths of the copy of the rest.
func (s *suite) waiting(where string, sh shadow, size int64, took bench.Set) {
	copying := bench.Samples{float64(size) / s.pinned}
	part := float64(sh.bytes) / float64(size)
	s.Add(row(where, "program waits", "s").Of(took["blocked"], copying, s.goal(bench.AtMost(0.1*part+(1-part)/0.9))),
		row(where, "all read", "s").Of(took["total"], copying, nil))
	if sh.bytes > 0 {
		s.Add(row(where, "download behind the program", "GB/s").Of(took["down"], bench.Samples{s.pinned / 1e9},
			s.goal(bench.AtLeast(0.9))))
	}
}

// drain reads a capture as storage does: chunk by chunk, several at a time.
func (s *suite) drain(ctx context.Context, c *gpustate.Capture) error {
	free := make(chan []byte, readers)
	for b := range slices.Chunk(s.chunks, chunkBytes) {
		free <- b
	}
	var g errgroup.Group
	g.SetLimit(readers)
	for i, content := range c.Contents() {
		for off := int64(0); off < content.Bytes; off += chunkBytes {
			g.Go(func() error {
				n := min(chunkBytes, content.Bytes-off)
				if b := c.Slice(i, off, n); b != nil {
					return marked(b, i, off)
				}
				buf := <-free
				defer func() { free <- buf }()
				if err := c.ReadAt(ctx, i, buf[:n], off); err != nil {
					return err
				}
				return marked(buf[:n], i, off)
			})
		}
	}
	return g.Wait()
}

// restore measures a restore from host memory into an empty device.
func (s *suite) restore(ctx context.Context, where string, size int64, record, pool []byte) error {
	d, err := gpustate.Open(s.Select)
	if err != nil {
		return err
	}
	defer d.Close()
	base := map[int]int64{} // where contents lie in the pool
	bufs := []int64{}
	limit := largest(s.info)
	for at := int64(0); at < size; at += limit {
		base[len(bufs)] = at
		n := min(limit, size-at)
		markAll(pool[at:at+n], len(bufs))
		bufs = append(bufs, n)
	}
	took, err := bench.InTurn(ctx, s.Runs, bench.Timed(func() error {
		return d.Restore(ctx, record, func(i int, dst []byte, off int64) error {
			copy(dst, pool[base[i]+off:])
			return nil
		})
	}))
	if err != nil {
		return err
	}
	s.Add(row(where, "restore", "GB/s").Of(took[0].Rates(float64(size)/1e9), bench.Samples{s.upload / 1e9},
		s.goal(bench.AtLeast(0.8))))
	d.LimitShadow(-1)
	c, err := d.Capture(ctx, nil)
	if err != nil {
		return err
	}
	return errors.Join(s.drain(ctx, c), c.Release())
}

package checkpoint

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"

	"github.com/holdfast-hpc/holdfast/gpustate/internal/chunkhash"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/driver"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/object"
	"github.com/holdfast-hpc/holdfast/internal/invariants"
)

// Hashes computes, for each content in order, the hashes of its chunks, where the bytes are in
// device memory, and there: they do not cross the bus. Chunks that lie in host memory, or on two
// pieces of device memory, have the zero Hash. The program may run meanwhile; its kernels share
// the device with that of the hashes, which reads the captured bytes once. A device that cannot
// run it gives an error that matches driver.ErrUnsupported. If a device is full, the little memory that
// the hashes take is made by bringing a block of a capture to the host, whose chunks have none then.
// The call is local.
func (c *Capture) Hashes(ctx context.Context) ([][]chunkhash.Sum, error) {
	for {
		hashes, err := c.hashOnce(ctx)
		if !errors.Is(err, driver.ErrOutOfMemory) || !c.of.evictFrom(c.drv) {
			return hashes, err
		}
	}
}

func (c *Capture) hashOnce(ctx context.Context) ([][]chunkhash.Sum, error) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if c.drv == nil {
		return nil, fmt.Errorf("hash a capture: %w", object.ErrReleased)
	}
	hashes := make([][]chunkhash.Sum, len(c.contents))
	var pieces []piece
	for i := range hashes {
		n := c.contents[i].Bytes
		hashes[i] = make([]chunkhash.Sum, chunksOf(n))
		for _, p := range c.parts[i] {
			if x, ok := whole(p, n); ok {
				x.to = hashes[i][x.first : x.first+x.chunks]
				pieces = append(pieces, x)
			}
		}
	}
	if err := c.drv.hash(ctx, c.of.HashKey(), pieces); err != nil {
		return nil, fmt.Errorf("hash a capture on %s: %w", c.drv.Info(), err)
	}
	if invariants.Enabled {
		return hashes, c.checkHashes(ctx, pieces)
	}
	return hashes, nil
}

// hash computes the hashes of all chunks of the pieces and puts them where they belong.
func (s *Session) hash(ctx context.Context, key *chunkhash.Key, pieces []piece) error {
	if len(pieces) == 0 {
		return nil
	}
	cp, err := s.take(&s.reads)
	if err != nil {
		return err
	}
	defer s.reads.give(cp)
	h := &s.hasher
	h.mu.Lock()
	defer h.mu.Unlock()
	if err := h.ready(cp, key); err != nil {
		return err
	}
	var chunks int64
	for i := range pieces {
		pieces[i].at = chunks
		chunks += pieces[i].chunks
	}
	raw := make([]byte, chunks*chunkhash.RawBytes)
	results, err := cp.drv.CreateMem(driver.MemDesc{Kind: driver.MemBuffer, Bytes: int64(len(raw))})
	if err != nil {
		return err
	}
	for _, p := range pieces {
		if err = context.Cause(ctx); err == nil {
			err = h.launch(cp, p, results)
		}
		if err != nil {
			break
		}
	}
	if err = errors.Join(err, cp.drv.Finish(cp.q)); err == nil {
		_, err = cp.read(results, driver.Bytes(0, int64(len(raw))), raw, true)
	}
	if err = errors.Join(err, cp.drv.ReleaseMem(results)); err != nil {
		return err
	}
	sums := chunkhash.Sums(raw)
	for _, p := range pieces {
		copy(p.to, sums[p.at:])
	}
	return nil
}

// warmHasher makes the kernel of the hashes while there is other work.
func (s *Session) warmHasher(key *chunkhash.Key) {
	cp, err := s.take(&s.reads)
	if err != nil {
		return
	}
	defer s.reads.give(cp)
	s.hasher.mu.Lock()
	defer s.hasher.mu.Unlock()
	_ = s.hasher.ready(cp, key) // whoever needs it tries again
}

// piece is a range of device memory that whole chunks of a content follow each other in.
type piece struct {
	mem           driver.Handle
	off, bytes    int64 // in the memory
	first, chunks int64 // of the content
	at            int64 // of all chunks
	to            []chunkhash.Sum
}

// chunksOf returns how many chunks a content of n bytes has.
func chunksOf(n int64) int64 { return (n + chunkhash.Bytes - 1) / chunkhash.Bytes }

// whole finds the chunks of a content of n bytes that lie in a part of it from end to end.
func whole(p part, n int64) (piece, bool) {
	first := chunksOf(p.off)
	end := p.off + p.bytes
	if end < n {
		end = end / chunkhash.Bytes * chunkhash.Bytes
	}
	begin := first * chunkhash.Bytes
	x := piece{mem: p.mem, first: first, off: p.memOff + begin - p.off, bytes: end - begin}
	x.chunks = chunksOf(x.bytes)
	return x, p.host == nil && x.bytes > 0 && x.off%16 == 0
}

// checkHashes computes the hashes on the host.
func (c *Capture) checkHashes(ctx context.Context, pieces []piece) error {
	key := c.of.HashKey()
	buf := make([]byte, chunkhash.Bytes)
	for _, p := range pieces {
		for i := range p.chunks {
			b := buf[:min(chunkhash.Bytes, p.bytes-i*chunkhash.Bytes)]
			if err := c.readPart(ctx, part{mem: p.mem, memOff: p.off + i*chunkhash.Bytes}, 0, b); err != nil {
				return err
			}
			invariants.Check(p.to[i] == key.Of(b), "chunk %d: the device and the host hash different bytes", p.first+i)
		}
	}
	return nil
}

// hasher is the kernel of the hashes on one device, made at its first use.
type hasher struct {
	mu      sync.Mutex
	program driver.Handle
	kernel  driver.Handle
	key     driver.Handle
	failed  error // why there is none; it is not tried again
}

// ready makes the kernel; mu is held.
func (h *hasher) ready(cp *copier, key *chunkhash.Key) (err error) {
	if h.failed != nil || h.kernel != nil {
		return h.failed
	}
	if g := cp.drv.Info().MaxGroup; g < chunkhash.Lanes {
		h.failed = fmt.Errorf("its work-groups have at most %d items, %d are needed: %w", g, chunkhash.Lanes,
			driver.ErrUnsupported)
		return h.failed
	}
	if err = h.build(cp, key); err != nil {
		err = errors.Join(err, h.close(cp.drv))
		if !errors.Is(err, driver.ErrOutOfMemory) && !errors.Is(err, driver.ErrDeviceLost) {
			h.failed = errors.Join(driver.ErrUnsupported, err)
			err = h.failed
		}
	}
	return err
}

func (h *hasher) build(cp *copier, key *chunkhash.Key) (err error) {
	if h.program, err = cp.drv.Build(driver.ProgramDesc{Name: chunkhash.Kernel, OpenCL: chunkhash.OpenCL,
		CUDA: chunkhash.CUDA, PTX: chunkhash.PTX}); err != nil {
		return err
	}
	b := key.Encode()
	if h.key, err = cp.drv.CreateMem(driver.MemDesc{Kind: driver.MemBuffer, Bytes: int64(len(b))}); err != nil {
		return err
	}
	if _, err = cp.write(h.key, driver.Bytes(0, int64(len(b))), b, true); err != nil {
		return err
	}
	h.kernel, err = cp.drv.CreateKernel(h.program, chunkhash.Kernel)
	return err
}

// drop gives the device memory of the kernel back until it is needed again, and reports whether there
// was any.
func (h *hasher) drop(drv driver.Device) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.kernel != nil && h.close(drv) == nil
}

// close releases the objects of ready.
func (h *hasher) close(drv driver.Device) error {
	var errs []error
	if h.kernel != nil {
		errs = append(errs, drv.ReleaseKernel(h.kernel))
	}
	if h.key != nil {
		errs = append(errs, drv.ReleaseMem(h.key))
	}
	if h.program != nil {
		errs = append(errs, drv.ReleaseProgram(h.program))
	}
	h.kernel, h.key, h.program = nil, nil, nil
	return errors.Join(errs...)
}

// launch hashes one piece.
func (h *hasher) launch(cp *copier, p piece, results driver.Handle) error {
	value := func(v int64) driver.Arg {
		return driver.Arg{Kind: driver.ArgValue, Value: binary.NativeEndian.AppendUint64(nil, uint64(v))}
	}
	memory := func(m driver.Handle) driver.Arg { return driver.Arg{Kind: driver.ArgMem, Handle: m} }
	for i, a := range []driver.Arg{memory(p.mem), value(p.off), value(p.bytes), memory(h.key), memory(results),
		value(p.at)} {
		if err := cp.drv.SetArg(h.kernel, i, a); err != nil {
			return err
		}
	}
	g := driver.Grid{Dims: 1, Global: [3]int{int(p.chunks) * chunkhash.Lanes, 1, 1},
		Local: [3]int{chunkhash.Lanes, 1, 1}}
	ev, err := cp.drv.Launch(cp.q, h.kernel, g, nil)
	if err != nil {
		return err
	}
	cp.drv.ReleaseEvent(ev)
	return nil
}

// Package raw drives a device without gpustate, for the baselines of the suites.
package raw

import (
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-hpc/holdfast/gpustate"
	"github.com/holdfast-hpc/holdfast/gpustate/gpubench"
)

// Device is a device without recording.
type Device struct {
	d     gpubench.Device
	queue gpubench.Handle
}

// Open opens the device that sel selects.
func Open(sel gpustate.Select) (*Device, error) {
	g, err := gpustate.Open(sel)
	if err != nil {
		return nil, err
	}
	info := g.Info()
	if err := g.Close(); err != nil {
		return nil, err
	}
	r := &Device{}
	if r.d, err = gpubench.Open(info.Kind, info.Index); err != nil {
		return nil, err
	}
	if r.queue, err = r.d.CreateQueue(gpubench.QueueDesc{}); err != nil {
		return nil, errors.Join(err, r.d.Close())
	}
	return r, nil
}

// Close closes the device.
func (r *Device) Close() error {
	return errors.Join(r.d.ReleaseQueue(r.queue), r.d.Close())
}

// Build returns how long the device takes to build a program and its kernels.
func (r *Device) Build(src gpustate.Sources, options string, kernels []string) (took time.Duration, err error) {
	start := time.Now()
	p, err := r.d.Build(gpubench.ProgramDesc{Name: "raw", OpenCL: src.OpenCL, CUDA: src.CUDA, Options: options})
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, r.d.ReleaseProgram(p)) }()
	for _, name := range kernels {
		k, err := r.d.CreateKernel(p, name)
		if err != nil {
			return 0, err
		}
		defer func() { err = errors.Join(err, r.d.ReleaseKernel(k)) }()
	}
	return time.Since(start), nil
}

// Upload returns how long bytes take from pinned memory to the device, where
// they go round in one piece.
func (r *Device) Upload(bytes int64) (took time.Duration, err error) {
	piece := min(bytes, 64<<20)
	if piece == 0 {
		return 0, nil
	}
	mem, err := r.d.CreateMem(gpubench.MemDesc{Kind: gpubench.MemBuffer, Bytes: piece})
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, r.d.ReleaseMem(mem)) }()
	host, err := r.d.AllocPinned(int(piece))
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, host.Free()) }()
	clear(host.Bytes())
	// The first transfer may map memory.
	for round := range 2 {
		start := time.Now()
		for done := int64(0); done < bytes; done += piece {
			n := min(piece, bytes-done)
			ev, err := r.d.Transfer(r.queue, gpubench.Transfer{Mem: mem, Host: host.Bytes()[:n]}, nil)
			if err != nil {
				return 0, err
			}
			r.d.ReleaseEvent(ev)
			if round == 0 {
				break
			}
		}
		if err := r.d.Finish(r.queue); err != nil {
			return 0, err
		}
		took = time.Since(start)
	}
	return took, nil
}

// Copies are two blocks of a device and one of pinned memory, to copy between.
type Copies struct {
	*Device
	mem  [2]gpubench.Handle
	host gpubench.Pinned
}

// Copies takes blocks of that number of bytes. Free gives them back.
func (r *Device) Copies(bytes int64) (c *Copies, err error) {
	c = &Copies{Device: r}
	for i := range c.mem {
		if c.mem[i], err = r.d.CreateMem(gpubench.MemDesc{Kind: gpubench.MemBuffer, Bytes: bytes}); err != nil {
			return nil, err
		}
	}
	if c.host, err = r.d.AllocPinned(int(bytes)); err != nil {
		return nil, err
	}
	for i := range c.host.Bytes() {
		c.host.Bytes()[i] = byte(i)
	}
	return c, nil
}

// Free gives the blocks back.
func (c *Copies) Free() error {
	return errors.Join(c.host.Free(), c.d.ReleaseMem(c.mem[0]), c.d.ReleaseMem(c.mem[1]))
}

// Up copies to the device so often, and waits.
func (c *Copies) Up(times int) error {
	return c.many(times, func() (gpubench.Event, error) {
		return c.d.Transfer(c.queue, gpubench.Transfer{Mem: c.mem[0], Host: c.host.Bytes()}, nil)
	})
}

// Down copies to the host so often, and waits.
func (c *Copies) Down(times int) error {
	return c.many(times, func() (gpubench.Event, error) {
		return c.d.Transfer(c.queue, gpubench.Transfer{Mem: c.mem[0], Host: c.host.Bytes(), Read: true}, nil)
	})
}

// Inside copies within the device so often, and waits.
func (c *Copies) Inside(times int) error {
	all := gpubench.Bytes(0, int64(len(c.host.Bytes())))
	return c.many(times, func() (gpubench.Event, error) {
		return c.d.Copy(c.queue, c.mem[1], all, c.mem[0], all, nil)
	})
}

func (r *Device) many(times int, do func() (gpubench.Event, error)) error {
	for range times {
		ev, err := do()
		if err != nil {
			return err
		}
		r.d.ReleaseEvent(ev)
	}
	return r.d.Finish(r.queue)
}

// Peer is a block of each of two devices, to copy between: with CUDA as cudaMemcpyPeer does.
type Peer struct {
	to, from *Device
	dst, src gpubench.Handle
	copy     gpubench.PeerCopier
	bytes    int64
}

// Peer takes blocks of that number of bytes here and on another device, which may be this one, opened a second time.
// Without copies between devices the error matches gpustate.ErrUnsupported. Free gives the blocks back.
func (r *Device) Peer(from *Device, bytes int64) (p *Peer, err error) {
	p = &Peer{to: r, from: from, bytes: bytes}
	var ok bool
	if p.copy, ok = r.d.(gpubench.PeerCopier); !ok {
		return nil, fmt.Errorf("copies between devices of kind %q: %w", r.d.Info().Kind, gpustate.ErrUnsupported)
	}
	desc := gpubench.MemDesc{Kind: gpubench.MemBuffer, Bytes: bytes}
	if p.dst, err = r.d.CreateMem(desc); err != nil {
		return nil, err
	}
	if p.src, err = from.d.CreateMem(desc); err != nil {
		return nil, errors.Join(err, r.d.ReleaseMem(p.dst))
	}
	return p, nil
}

// Copy copies the block of the other device to this one's, and waits.
func (p *Peer) Copy() error {
	ok, err := p.copy.CopyFrom(p.to.queue, p.dst, p.from.d, p.src, p.bytes)
	if err == nil && !ok {
		err = gpustate.ErrUnsupported
	}
	return err
}

// Free gives the blocks back.
func (p *Peer) Free() error { return errors.Join(p.to.d.ReleaseMem(p.dst), p.from.d.ReleaseMem(p.src)) }

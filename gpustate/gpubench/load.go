package gpubench

import (
	"errors"
	"time"

	"github.com/holdfast-hpc/holdfast/gpustate"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/driver"
)

// Raw is a device without recording, for baselines.
type Raw struct {
	d     driver.Device
	queue driver.Handle
}

// OpenRaw opens the device that sel selects.
func OpenRaw(sel gpustate.Select) (*Raw, error) {
	g, err := gpustate.Open(sel)
	if err != nil {
		return nil, err
	}
	r := &runner{info: g.Info()}
	if err := g.Close(); err != nil {
		return nil, err
	}
	raw := &Raw{}
	if raw.d, err = r.bare(); err != nil {
		return nil, err
	}
	if raw.queue, err = raw.d.CreateQueue(driver.QueueDesc{}); err != nil {
		return nil, errors.Join(err, raw.d.Close())
	}
	return raw, nil
}

// Close closes the device.
func (r *Raw) Close() error {
	return errors.Join(r.d.ReleaseQueue(r.queue), r.d.Close())
}

// Build returns how long the device takes to build a program and its kernels.
func (r *Raw) Build(src gpustate.Sources, options string, kernels []string) (took time.Duration, err error) {
	start := time.Now()
	p, err := r.d.Build(driver.ProgramDesc{Name: "raw", OpenCL: src.OpenCL, CUDA: src.CUDA, Options: options})
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
func (r *Raw) Upload(bytes int64) (took time.Duration, err error) {
	piece := min(bytes, 64<<20)
	if piece == 0 {
		return 0, nil
	}
	mem, err := r.d.CreateMem(driver.MemDesc{Kind: driver.MemBuffer, Bytes: piece})
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
			ev, err := r.d.Write(r.queue, mem, 0, host.Bytes()[:n], false, nil)
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

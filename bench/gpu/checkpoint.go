package gpu

import (
	"context"
	"errors"
	"io"

	"github.com/holdfast-hpc/holdfast/bench"
	"github.com/holdfast-hpc/holdfast/gpustate"
	"github.com/holdfast-hpc/holdfast/gpustate/gpubench"
)

// Setup says how much device memory Work takes, and of which device.
type Setup struct {
	Bytes int
	PCI   string
}

// Work is the process that the CUDA driver checkpoints: it takes device memory
// and waits until its input ends.
func Work(_ context.Context, s Setup, in io.Reader, out io.Writer) error {
	d, err := gpustate.Open(gpustate.Select{Kind: "cuda", PCI: s.PCI})
	if err != nil {
		return err
	}
	b, err := d.Buffer("state", s.Bytes)
	if err != nil {
		return err
	}
	q, err := d.Queue("q")
	if err != nil {
		return err
	}
	part := make([]byte, min(s.Bytes, 64<<20))
	for i := range part {
		part[i] = byte(i * 7)
	}
	for off := 0; off+len(part) <= s.Bytes; off += len(part) {
		if err := q.Write(b, off, part); err != nil {
			return err
		}
	}
	return bench.Answer(in, out, func(struct{}, *struct{}) error { return nil })
}

// driverCheckpoint measures the checkpoint and restore of the CUDA driver itself, of a process that
// holds 4 GiB, for comparison.
func (s *suite) driverCheckpoint(ctx context.Context) error {
	const where, bytes = "driver's own checkpoint", 4 << 30
	if s.info.Kind != "cuda" {
		s.Skip(where, "checkpoint", errors.New("only the CUDA driver has one"))
		return nil
	}
	p, err := bench.StartProcess(ctx, s.Worker("gpu", Setup{bytes, s.info.PCI}))
	if err != nil {
		return err
	}
	if p.Do(struct{}{}, &struct{}{}) != nil { // it holds the memory when it answers
		err = errors.New("the process that holds device memory failed")
	} else {
		err = s.checkpoint(where, bytes, p.Cmd.Process.Pid)
	}
	if err != nil {
		s.Skip(where, "checkpoint", err)
	}
	return p.Close()
}

func (s *suite) checkpoint(where string, bytes float64, pid int) error {
	stopped, saving, restoring, err := gpubench.Checkpoint(pid)
	if err != nil {
		return err
	}
	one := func(v float64) bench.Samples { return bench.Samples{v} }
	s.Add(row(where, "program waits, 4 GiB", "s").Of(one(stopped.Seconds()), one(bytes/s.pinned), nil),
		row(where, "checkpoint", "GB/s").Of(one(bytes/saving.Seconds()/1e9), one(s.pinned/1e9), nil),
		row(where, "restore", "GB/s").Of(one(bytes/restoring.Seconds()/1e9), one(s.upload/1e9), nil))
	return nil
}

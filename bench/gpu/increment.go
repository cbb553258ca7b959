package gpu

import (
	"context"
	"errors"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/holdfast-hpc/holdfast/bench"
	"github.com/holdfast-hpc/holdfast/gpustate"
)

// changedPart is the part of each buffer that changes between two captures of the increment figures.
const changedPart = 10

// increments measures captures of which a tenth differs from the capture before: the device hashes its contents, and
// only chunks with another hash are read. It is compared with reading a capture of the same state whole.
func (s *suite) increments(ctx context.Context, d *gpustate.Device, where string, size int64,
	bufs []*gpustate.Buffer) error {
	if s.info.HostMemory {
		return nil // its captures are in host memory at once
	}
	d.LimitShadow(-1)
	q, err := d.Queue("fill")
	if err != nil {
		return err
	}
	begin := time.Now()
	first, err := d.Capture(ctx, nil)
	if err != nil {
		return err
	}
	if err := s.drain(ctx, first); err != nil {
		return errors.Join(err, first.Release())
	}
	whole := time.Since(begin).Seconds()
	before, err := first.Hashes(ctx)
	if err = errors.Join(err, first.Release()); err != nil {
		s.Skip(where+", a tenth changed", "hash", err)
		return nil
	}
	round := byte(0)
	took, err := bench.Repeat(ctx, s.Runs, func(took bench.Set) error {
		round++
		for _, b := range bufs {
			if err := change(q, b, round); err != nil {
				return err
			}
		}
		if err := q.Finish(); err != nil {
			return err
		}
		begin := time.Now()
		c, err := d.Capture(ctx, nil)
		if err != nil {
			return err
		}
		stopped := time.Now()
		now, err := c.Hashes(ctx)
		hashed := time.Now()
		var crossed int64
		if err == nil {
			crossed, err = s.drainChanged(ctx, c, before, now)
		}
		before = now
		took.Add("blocked", stopped.Sub(begin).Seconds())
		took.Add("hash", hashed.Sub(stopped).Seconds())
		took.Add("crossed", float64(crossed))
		took.Add("all", time.Since(begin).Seconds())
		return errors.Join(err, c.Release())
	})
	if err != nil {
		return err
	}
	at := where + ", a tenth changed"
	full, copying := bench.Samples{whole}, bench.Samples{float64(size) / s.pinned}
	s.Add(row(at, "hash on the device", "GB/s").Of(took["hash"].Rates(float64(size)/1e9),
		bench.Samples{s.inside / 1e9}, s.goal(bench.AtLeast(0.5))),
		row(at, "program waits", "s").Of(took["blocked"], copying, s.goal(bench.AtMost(0.1))),
		row(at, "bytes over the bus", "GB").Of(took["crossed"].Times(1e-9), bench.Samples{float64(size) / 1e9},
			s.goal(bench.AtMost(0.15))),
		row(at, "all read", "s").Of(took["all"], full, s.goal(bench.AtMost(0.25))))
	return nil
}

// change writes other bytes to the first tenth of a buffer.
func change(q *gpustate.Queue, b *gpustate.Buffer, round byte) error {
	data := make([]byte, max(b.Bytes()/changedPart/gpustate.HashBytes, 1)*gpustate.HashBytes)
	for i := 100; i < len(data); i += gpustate.HashBytes {
		data[i] = round
	}
	return q.Write(b, 0, data[:min(len(data), b.Bytes())])
}

// drainChanged reads the chunks whose hash is another one than before, in runs of at most
// chunkBytes, as storage does, and tells how many bytes that were.
func (s *suite) drainChanged(ctx context.Context, c *gpustate.Capture, before, now [][]gpustate.Hash) (int64, error) {
	free := make(chan []byte, readers)
	for i := range readers {
		free <- s.chunks[i*chunkBytes : (i+1)*chunkBytes]
	}
	var crossed int64
	var g errgroup.Group
	g.SetLimit(readers)
	for i, content := range c.Contents() {
		same := func(k int) bool { return now[i][k] == before[i][k] && now[i][k] != gpustate.Hash{} }
		for k := 0; k < len(now[i]); {
			if same(k) {
				k++
				continue
			}
			end := k + 1
			for end < len(now[i]) && end-k < chunkBytes/gpustate.HashBytes && !same(end) {
				end++
			}
			off := int64(k) * gpustate.HashBytes
			n := min(int64(end)*gpustate.HashBytes, content.Bytes) - off
			crossed += n
			g.Go(func() error {
				buf := <-free
				defer func() { free <- buf }()
				return c.ReadAt(ctx, i, buf[:n], off)
			})
			k = end
		}
	}
	return crossed, g.Wait()
}

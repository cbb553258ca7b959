package main

import (
	"context"
	"fmt"

	"github.com/holdfast-hpc/holdfast/apps/internal/job"
	"github.com/holdfast-hpc/holdfast/apps/matmul/kernel"
	"github.com/holdfast-hpc/holdfast/coordinated"
	"github.com/holdfast-hpc/holdfast/gpustate"
	"github.com/holdfast-hpc/holdfast/mpiwrap"
)

// A summa is the state of one rank. Protected values are marked.
type summa[T real] struct {
	*job.Job
	config         *config
	input          *inputs
	grid           grid
	rowOf, colOf   int           // the rank's place in the grid
	across, along  *mpiwrap.Comm // the ranks of its row, of its column
	rows, cols     span          // of C
	sharedA        span          // the part of the shared dimension its block of A has
	sharedB        span
	a, b           []T // the rank's blocks, read or made again at a restart
	panels         []panel
	hostA, hostB   [2][]T // panels as they arrive; slot = panel mod 2
	uploads        [2][2]*gpustate.Event
	queue          *gpustate.Queue
	kernel         *gpustate.Kernel
	deviceC        *gpustate.Buffer    // protected with the device, as are the panels
	panelA, panelB [2]*gpustate.Buffer // slot = panel mod 2

	next int64 // protected: the next panel to multiply, of all repeats; it is on the device
	done int64 // protected in its place with -elastic: shared indices multiplied, of all repeats
}

// multiply is the program on one rank.
func multiply[T real](ctx context.Context, c *config, j *job.Job) error {
	input, err := c.load()
	if err != nil {
		return err
	}
	s, err := newSumma[T](c, j, input)
	if err != nil {
		return err
	}
	run := fmt.Sprintf("%s float32 %t panel %d repeat %d", input.name, c.single, c.width, c.repeat)
	restored, err := s.restore(ctx, run)
	if err != nil {
		return err
	}
	// The restore builds the programs of the checkpoint while it reads the contents, so this comes after it.
	if err := s.Device.Build("matmul", kernel.Sources, kernel.Options(c.single),
		map[string]**gpustate.Kernel{kernel.Multiply: &s.kernel}); err != nil {
		return err
	}
	if restored {
		s.Sayf("continues from panel %d of %d", s.next, s.steps())
	} else {
		zero := make([]T, s.rows.len()*s.cols.len())
		if err := s.queue.Write(s.deviceC, 0, gpustate.Bytes(zero)); err != nil {
			return err
		}
		if err := s.fetch(0); err != nil {
			return err
		}
	}
	if err := s.loop(ctx); err != nil {
		return err
	}
	return s.finish()
}

// restore restores the newest checkpoint. One of another number of ranks may end within a panel of this grid, which is
// cut there; the panels on the device are brought there again.
func (s *summa[T]) restore(ctx context.Context, run string) (bool, error) {
	if !s.Elastic() {
		return s.Restore(ctx, run, nil, job.State{Name: "next", Value: &s.next})
	}
	c := job.Array{Name: "c", Memory: coordinated.InBuffer[T](s.deviceC), Layout: coordinated.Block(
		[]int{s.input.m, s.input.n}, []int{s.grid.rows, s.grid.cols}, s.World.Rank())}
	restored, err := s.Restore(ctx, run, []job.Array{c}, job.State{Name: "done", Value: &s.done})
	if err != nil || !restored {
		return restored, err
	}
	k := int64(s.input.k)
	s.panels = cut(s.panels, int(s.done%k))
	s.next = s.done / k * int64(len(s.panels))
	for _, p := range s.panels {
		if int64(p.hi) <= s.done%k {
			s.next++
		}
	}
	if s.next < int64(s.steps()) {
		err = s.fetch(int(s.next))
	}
	return true, err
}

// newSumma places the rank in the grid, makes its communicators and its blocks,
// and gets or creates the objects on the device.
func newSumma[T real](c *config, j *job.Job, input *inputs) (*summa[T], error) {
	g := newGrid(j.World.Size())
	if input.m < g.rows || input.n < g.cols || input.k < g.cols || input.k < g.rows {
		return nil, fmt.Errorf("product of %dx%d and %dx%d on a grid of %d by %d ranks: "+
			"want a row and a column at least per rank",
			input.m, input.k, input.k, input.n, g.rows, g.cols)
	}
	row, col := j.World.Rank()/g.cols, j.World.Rank()%g.cols
	s := &summa[T]{Job: j, config: c, input: input, grid: g, rowOf: row, colOf: col,
		rows: share(input.m, g.rows, row), cols: share(input.n, g.cols, col),
		sharedA: share(input.k, g.cols, col), sharedB: share(input.k, g.rows, row),
		panels: g.panels(input.k, c.width)}
	var err error
	if s.across, err = j.World.Split(row, col); err != nil {
		return nil, err
	}
	if s.along, err = j.World.Split(col, row); err != nil {
		return nil, err
	}
	if err := s.prepare(); err != nil {
		return nil, err
	}
	if s.a, err = block[T](input.a, s.rows, s.sharedA); err != nil {
		return nil, fmt.Errorf("matrix A: %w", err)
	}
	if s.b, err = block[T](input.b, s.sharedB, s.cols); err != nil {
		return nil, fmt.Errorf("matrix B: %w", err)
	}
	return s, nil
}

func (s *summa[T]) prepare() (err error) {
	if s.queue, err = s.Device.MainQueue(); err != nil {
		return err
	}
	size := len(gpustate.Bytes(make([]T, 1)))
	if s.deviceC, err = s.Device.Buffer("c", size*s.rows.len()*s.cols.len()); err != nil {
		return err
	}
	width := min(s.config.width, s.input.k)
	for slot := range 2 {
		if s.hostA[slot], err = job.HostMemory[T](s.Device, s.rows.len()*width); err != nil {
			return err
		}
		if s.hostB[slot], err = job.HostMemory[T](s.Device, width*s.cols.len()); err != nil {
			return err
		}
		if s.panelA[slot], err = s.Device.Buffer(fmt.Sprint("panel a ", slot), size*len(s.hostA[slot])); err != nil {
			return err
		}
		if s.panelB[slot], err = s.Device.Buffer(fmt.Sprint("panel b ", slot), size*len(s.hostB[slot])); err != nil {
			return err
		}
	}
	return nil
}

// steps returns the number of panels to multiply in all.
func (s *summa[T]) steps() int { return s.config.repeat * len(s.panels) }

func (s *summa[T]) panel(step int) panel { return s.panels[step%len(s.panels)] }

func (s *summa[T]) loop(ctx context.Context) error {
	shown := s.Progress(s.steps())
	for ; s.next < int64(s.steps()); s.next++ {
		if err := s.Checkpoints.Point(ctx); err != nil {
			return err
		}
		at := int(s.next)
		shown.Step(at)
		if err := s.launch(at); err != nil {
			return err
		}
		s.done += int64(s.panel(at).len())
		if at+1 < s.steps() {
			if err := s.fetch(at + 1); err != nil {
				return err
			}
		}
	}
	if err := s.queue.Finish(); err != nil {
		return err
	}
	shown.Step(int(s.next))
	return s.Hold(ctx)
}

// launch starts multiplying a panel and returns at once.
func (s *summa[T]) launch(at int) error {
	m, n, k := s.rows.len(), s.cols.len(), s.panel(at).len()
	if err := job.Launch(s.queue, s.kernel, kernel.Global(m, n, s.config.single), kernel.Local(), s.deviceC,
		s.panelA[at%2], s.panelB[at%2], int32(m), int32(n), int32(k)); err != nil {
		return fmt.Errorf("panel %d: %w", at, err)
	}
	return s.queue.Flush()
}

// fetch broadcasts a panel from its owners and starts its copy to the device.
// The device multiplies the one before meanwhile.
func (s *summa[T]) fetch(at int) error {
	slot := at % 2
	for _, e := range s.uploads[slot] {
		if e == nil {
			continue
		}
		if err := e.Wait(); err != nil {
			return err
		}
	}
	a, b := s.packed(at)
	askA, err := mpiwrap.Ibcast(s.across, a, s.panel(at).ownerCol)
	if err != nil {
		return err
	}
	askB, err := mpiwrap.Ibcast(s.along, b, s.panel(at).ownerRow)
	if err != nil {
		return err
	}
	if err := mpiwrap.WaitAll(askA, askB); err != nil {
		return err
	}
	if s.uploads[slot][0], err = s.queue.WriteAsync(s.panelA[slot], 0, gpustate.Bytes(a)); err != nil {
		return err
	}
	s.uploads[slot][1], err = s.queue.WriteAsync(s.panelB[slot], 0, gpustate.Bytes(b))
	return err
}

// packed returns the host memory of a panel, filled in on its owners.
func (s *summa[T]) packed(at int) (a, b []T) {
	p, slot := s.panel(at), at%2
	a, b = s.hostA[slot][:s.rows.len()*p.len()], s.hostB[slot][:p.len()*s.cols.len()]
	if p.ownerCol == s.colOf {
		width := s.sharedA.len()
		for i := range s.rows.len() {
			from := i*width + p.lo - s.sharedA.lo
			copy(a[i*p.len():(i+1)*p.len()], s.a[from:])
		}
	}
	if p.ownerRow == s.rowOf {
		copy(b, s.b[(p.lo-s.sharedB.lo)*s.cols.len():])
	}
	return a, b
}

package main

import (
	"context"
	"fmt"

	"github.com/holdfast-hpc/holdfast/apps/internal/job"
	"github.com/holdfast-hpc/holdfast/apps/smithwaterman/kernel"
	"github.com/holdfast-hpc/holdfast/coordinated"
	"github.com/holdfast-hpc/holdfast/gpustate"
	"github.com/holdfast-hpc/holdfast/mpiwrap"
)

// A lockstep is a sweep that any number of ranks continues. All ranks are at the same diagonal of the whole matrix at a
// Point, and no border is under way. Tiles are those of the whole matrix, and a rank owns whole columns of them.
type lockstep struct {
	*sweep
	lo, hi, tiles int              // columns of tiles: the rank's lo to hi-1, of so many
	edges         *gpustate.Buffer // the right border of each of the rank's tile columns, the last one first
}

// tileColumns is how many columns of tiles a matrix has, and those that a rank owns, lo to hi-1.
func tileColumns(columns, rank, size int) (lo, hi, tiles int) {
	tiles = (columns + kernel.Cols - 1) / kernel.Cols
	return tiles * rank / size, tiles * (rank + 1) / size, tiles
}

// lockstep is the program on one rank with -elastic.
func (c *config) lockstep(ctx context.Context, j *job.Job, p *problem) error {
	columns := len(p.b.Codes)
	l := &lockstep{}
	l.lo, l.hi, l.tiles = tileColumns(columns, j.World.Rank(), j.World.Size())
	if len(p.a.Codes) == 0 || l.tiles < j.World.Size() {
		return fmt.Errorf("%d by %d letters on %d ranks with -elastic: want a letter of the first sequence, and %d of "+
			"the second for each rank", len(p.a.Codes), columns, j.World.Size(), kernel.Cols)
	}
	begin, end := l.lo*kernel.Cols, min(l.hi*kernel.Cols, columns)
	e, err := newEngine(j.Device, p.scoring, part{a: p.a.Codes, b: p.b.Codes[begin:end], begin: begin,
		keep: !c.scoreOnly})
	if err != nil {
		return err
	}
	l.sweep = &sweep{Job: j, problem: p, engine: e}
	if l.edges, err = j.Device.Buffer("edges", 4*(l.hi-l.lo)*kernel.Border); err != nil {
		return err
	}
	restored, err := l.Restore(ctx, p.identity(c.scoreOnly), l.arrays(columns),
		job.State{Name: "next", Value: &l.next})
	if err != nil {
		return err
	}
	if err := e.build(j.Device); err != nil {
		return err
	}
	if restored {
		l.Sayf("continues from diagonal %d of %d", l.next, l.diagonals())
		err = l.resume()
	} else {
		err = e.prepare()
	}
	if err != nil {
		return err
	}
	if err := l.loop(ctx); err != nil {
		return err
	}
	return l.finish(c)
}

// diagonals is how many there are in the whole matrix.
func (l *lockstep) diagonals() int { return l.engine.strips() + l.tiles - 1 }

// arrays are the rank's shares of what all ranks have together. A column of tiles stands for itself; edges are in the
// order of the buffer, from the right to the left.
func (l *lockstep) arrays(columns int) []job.Array {
	e, n := l.engine, l.hi-l.lo
	in := func(name string, b *gpustate.Buffer, dims, start, count []int) job.Array {
		return job.Array{Name: name, Memory: coordinated.InBuffer[int32](b), Layout: coordinated.Array{Dims: dims,
			Boxes: []coordinated.Box{{Start: start, Count: count}}}}
	}
	list := []job.Array{
		in("top", e.top, []int{2, columns}, []int{0, e.begin}, []int{2, len(e.b)}),
		in("best", e.best, []int{l.tiles, 3}, []int{l.lo, 0}, []int{n, 3}),
		in("edges", l.edges, []int{l.tiles, kernel.Border}, []int{l.tiles - l.hi, 0}, []int{n, kernel.Border}),
	}
	if e.keep {
		list = append(list,
			in("kept borders", e.keptBorder, []int{e.strips(), l.tiles, kernel.Border}, []int{0, l.lo, 0},
				[]int{e.strips(), n, kernel.Border}),
			in("kept rows", e.keptRow, []int{e.keptRows(), 2, columns}, []int{0, 0, e.begin},
				[]int{e.keptRows(), 2, len(e.b)}))
	}
	return list
}

// resume brings what was restored to its places on this number of ranks.
func (l *lockstep) resume() error {
	e, n := l.engine, l.hi-l.lo
	top, best := make([]int32, 2*len(e.b)), make([]int32, 3*n)
	edges := make([]int32, n*kernel.Border)
	for to, from := range map[*gpustate.Buffer][]int32{e.top: top, e.best: best, l.edges: edges} {
		if err := e.queue.Read(to, 0, gpustate.Bytes(from)); err != nil {
			return err
		}
	}
	for t := range n { // columns count from the rank's first
		best[3*t+2] = int32(t*kernel.Cols) + best[3*t+2]%kernel.Cols
	}
	if err := e.prepare(); err != nil {
		return err
	}
	if err := e.queue.Write(e.top, 0, gpustate.Bytes(top)); err != nil {
		return err
	}
	if err := e.queue.Write(e.best, 0, gpustate.Bytes(best)); err != nil {
		return err
	}
	edge := func(t int) []int32 { return edges[(n-1-t)*kernel.Border:][:kernel.Border] }
	for t := 1; t < n; t++ { // what the next tile of a strip needs from the one before
		if strip := int(l.next) - l.lo - t; strip >= 0 && strip < e.strips() {
			if err := e.setBorder(strip, edge(t-1)); err != nil {
				return err
			}
		}
	}
	return l.exchange(int(l.next)-1, edge(n-1))
}

// loop computes the diagonals that are left.
func (l *lockstep) loop(ctx context.Context) error {
	shown, err := l.Progress(l.diagonals())
	if err != nil {
		return err
	}
	defer shown.Done()
	for ; l.next < int64(l.diagonals()); l.next++ {
		if err := l.Checkpoints.Point(ctx); err != nil {
			return err
		}
		shown.Step(int(l.next))
		if err := l.step(int(l.next)); err != nil {
			return err
		}
	}
	if err := l.engine.queue.Finish(); err != nil {
		return err
	}
	shown.Step(int(l.next))
	return l.Hold(ctx)
}

// step computes one diagonal of the whole matrix, and passes on the borders that the next one needs.
func (l *lockstep) step(diagonal int) error {
	e := l.engine
	own := diagonal - l.lo
	if own >= 0 && own < e.diagonals() {
		if err := e.launch(own); err != nil {
			return err
		}
		// Tile t of the rank was at strip own-t: its edge follows that of tile t+1, as the borders of strips do.
		first, last := max(0, own-e.strips()+1), min(own, e.tiles()-1)
		const record = 4 * kernel.Border
		if _, err := e.queue.Copy(l.edges, (e.tiles()-1-last)*record, e.border, (own-last)*record,
			(last-first+1)*record); err != nil {
			return err
		}
	}
	var record []int32
	if ended := l.ended(diagonal); ended >= 0 && ended < e.strips() && l.hi < l.tiles {
		record = make([]int32, kernel.Border)
		if err := e.rightBorder(ended, record); err != nil {
			return err
		}
	}
	return l.exchange(diagonal, record)
}

// ended is the strip that the rank's last tile was at in a diagonal.
func (l *lockstep) ended(diagonal int) int { return diagonal - l.hi + 1 }

// exchange sends the right border of the strip that ended with a diagonal to the right, and takes in that of the left.
// It returns when all ranks have theirs.
func (l *lockstep) exchange(diagonal int, record []int32) error {
	e, rank := l.engine, l.World.Rank()
	if ended := l.ended(diagonal); ended >= 0 && ended < e.strips() && l.hi < l.tiles {
		request, err := mpiwrap.Isend(l.World, record, rank+1, tagBorder)
		if err != nil {
			return err
		}
		l.sends = append(l.sends, send{request, record})
	}
	if strip := diagonal + 1 - l.lo; strip >= 0 && strip < e.strips() && l.lo > 0 {
		left := make([]int32, kernel.Border)
		if _, err := mpiwrap.Recv(l.World, left, rank-1, tagBorder); err != nil {
			return err
		}
		if err := e.setBorder(strip, left); err != nil {
			return err
		}
	}
	if err := l.sent(true); err != nil {
		return err
	}
	return l.World.Barrier()
}

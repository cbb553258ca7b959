package main

import (
	"fmt"

	"github.com/holdfast-hpc/holdfast/apps/internal/job"
	"github.com/holdfast-hpc/holdfast/apps/smithwaterman/align"
	"github.com/holdfast-hpc/holdfast/apps/smithwaterman/kernel"
	"github.com/holdfast-hpc/holdfast/gpustate"
)

// A part is one rank's share of the matrix: all rows, and the columns from
// begin on.
type part struct {
	a, b  []byte // codes of all rows and of the rank's columns
	begin int    // place of b in the whole second sequence
	keep  bool   // whether the trace back is to be possible
}

// strips and tiles return the number of rows and columns of tiles.
func (p *part) strips() int { return (len(p.a) + kernel.Rows - 1) / kernel.Rows }
func (p *part) tiles() int  { return (len(p.b) + kernel.Cols - 1) / kernel.Cols }

// diagonals returns how many launches compute the part.
func (p *part) diagonals() int { return p.strips() + p.tiles() - 1 }

// An engine holds one rank's part on its device.
type engine struct {
	part
	scoring  *align.Scoring
	queue    *gpustate.Queue
	diagonal *gpustate.Kernel

	codesA, codesB, pair, top, border, best, keptBorder, keptRow *gpustate.Buffer
}

// newEngine gets or creates the memory and the queue on the device. Contents come from
// prepare or from a restore.
func newEngine(dev *job.Device, s *align.Scoring, p part) (*engine, error) {
	e := &engine{part: p, scoring: s}
	var err error
	if e.queue, err = dev.MainQueue(); err != nil {
		return nil, err
	}
	borders, rows := 1, 1
	if p.keep {
		borders, rows = p.strips()*p.tiles()*kernel.Border, (p.strips()+kernel.Keep-1)/kernel.Keep*2*len(p.b)
	}
	for _, b := range []struct {
		buffer **gpustate.Buffer
		name   string
		bytes  int
	}{
		{&e.codesA, "rows", len(p.a)}, {&e.codesB, "columns", len(p.b)},
		{&e.pair, "scores", 4 * len(s.Pair)}, {&e.top, "top", 8 * len(p.b)},
		{&e.border, "border", 4 * p.strips() * kernel.Border}, {&e.best, "best", 12 * p.tiles()},
		{&e.keptBorder, "kept borders", 4 * borders}, {&e.keptRow, "kept rows", 4 * rows},
	} {
		if *b.buffer, err = dev.Buffer(b.name, b.bytes); err != nil {
			return nil, err
		}
	}
	return e, nil
}

// build gets or builds the kernels. It comes after the restore, which builds the
// programs of the checkpoint while it reads the contents.
func (e *engine) build(dev *job.Device) error {
	return dev.Build("smithwaterman", kernel.Sources, kernel.Options,
		map[string]**gpustate.Kernel{kernel.Diagonal: &e.diagonal})
}

// prepare writes the borders of the matrix and the inputs.
func (e *engine) prepare() error {
	top := make([]int32, 2*len(e.b))
	for i := len(e.b); i < len(top); i++ {
		top[i] = align.Low
	}
	border := make([]int32, e.strips()*kernel.Border)
	for i := range border { // each strip's record: the column left of the matrix
		if i%kernel.Border > kernel.Rows {
			border[i] = align.Low
		}
	}
	for _, w := range []struct {
		to   *gpustate.Buffer
		from []byte
	}{
		{e.codesA, e.a}, {e.codesB, e.b}, {e.pair, gpustate.Bytes(e.scoring.Pair[:])},
		{e.top, gpustate.Bytes(top)}, {e.border, gpustate.Bytes(border)}, {e.best, make([]byte, 12*e.tiles())},
	} {
		if err := e.queue.Write(w.to, 0, w.from); err != nil {
			return err
		}
	}
	return nil
}

func (e *engine) setBorder(strip int, record []int32) error {
	return e.queue.Write(e.border, 4*strip*kernel.Border, gpustate.Bytes(record))
}

// rightBorder reads the border that the last tile of a strip has left. It waits
// for the launches before.
func (e *engine) rightBorder(strip int, record []int32) error {
	return e.queue.Read(e.border, 4*strip*kernel.Border, gpustate.Bytes(record))
}

// launch starts a diagonal of tiles and returns at once.
func (e *engine) launch(diagonal int) error {
	first := max(0, diagonal-e.strips()+1)
	last := min(diagonal, e.tiles()-1)
	keep := int32(0)
	if e.keep {
		keep = 1
	}
	if err := job.Launch(e.queue, e.diagonal, []int{(last - first + 1) * kernel.Rows}, []int{kernel.Rows},
		e.codesA, e.codesB, e.pair, e.top, e.border, e.best, e.keptBorder, e.keptRow,
		int32(len(e.a)), int32(len(e.b)), int32(e.tiles()), int32(diagonal), int32(first),
		e.scoring.Open, e.scoring.Extend, keep); err != nil {
		return fmt.Errorf("diagonal %d: %w", diagonal, err)
	}
	return e.queue.Flush()
}

// bestCell reads the best cell of the part, with the column in the whole second
// sequence.
func (e *engine) bestCell() (align.Best, error) {
	found := make([]int32, 3*e.tiles())
	if err := e.queue.Read(e.best, 0, gpustate.Bytes(found)); err != nil {
		return align.Best{}, err
	}
	var best align.Best
	for t := range e.tiles() {
		c := align.Best{Score: found[3*t], Row: int(found[3*t+1]), Col: int(found[3*t+2]) + e.begin}
		if c.Score > 0 && c.Better(best) {
			best = c
		}
	}
	return best, nil
}

// block reads the borders of the block of kept rows and one tile column that has a
// cell, and returns the first row and column of the block. The cell is relative to the part.
func (e *engine) block(row, col int) (k *align.Block, firstRow, firstCol int, err error) {
	group, tile := row/(kernel.Rows*kernel.Keep), col/kernel.Cols
	firstRow, firstCol = group*kernel.Rows*kernel.Keep, tile*kernel.Cols
	endCol := min(firstCol+kernel.Cols, len(e.b))
	k = align.Whole(e.a[firstRow:row+1], e.b[firstCol:endCol])
	at := group * 2 * len(e.b)
	if err = e.queue.Read(e.keptRow, 4*(at+firstCol), gpustate.Bytes(k.TopH)); err != nil {
		return nil, 0, 0, err
	}
	if err = e.queue.Read(e.keptRow, 4*(at+len(e.b)+firstCol), gpustate.Bytes(k.TopF)); err != nil {
		return nil, 0, 0, err
	}
	record := make([]int32, kernel.Border)
	for r := 0; r < len(k.A); r += kernel.Rows {
		strip := (firstRow + r) / kernel.Rows
		off := 4 * (strip*e.tiles() + tile) * kernel.Border
		if err = e.queue.Read(e.keptBorder, off, gpustate.Bytes(record)); err != nil {
			return nil, 0, 0, err
		}
		copy(k.LeftH[r:], record[1:kernel.Rows+1])
		copy(k.LeftE[r:], record[kernel.Rows+1:])
		if r == 0 {
			k.Corner = record[0]
		}
	}
	return k, firstRow, firstCol, nil
}

// back follows the alignment through the part until it leaves it to the left or
// is done. The walk's place is in the whole matrix.
func (e *engine) back(w *align.Walk) error {
	w.Col -= e.begin
	for w.Row >= 0 && w.Col >= 0 && w.State != align.Done {
		k, row, col, err := e.block(w.Row, w.Col)
		if err != nil {
			return err
		}
		w.Row, w.Col = w.Row-row, w.Col-col
		e.scoring.Fill(k).Back(w)
		w.Row, w.Col = w.Row+row, w.Col+col
	}
	w.Col += e.begin
	return nil
}

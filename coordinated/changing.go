package coordinated

import (
	"errors"
	"fmt"
	"reflect"

	"github.com/holdfast-hpc/holdfast/coordinated/internal/capture"
	"github.com/holdfast-hpc/holdfast/gpustate"
	"github.com/holdfast-hpc/holdfast/internal/layout"
)

// Changing says how an array is divided whose dimensions, or whose division among the ranks, change while the program
// runs: an adaptive mesh, particles that move from rank to rank, a series that grows.
type Changing struct {
	// Now returns the array as it is, and what this rank has of it. It is called while the program waits in a Point
	// that takes a checkpoint, and must not send or receive. The ranks return the same dimensions, or all of them a
	// List.
	Now func() Array

	// Restored returns what this rank is to have of the array that is being restored, of the dimensions of the epoch.
	// It is called in Restore, once for each epoch that is tried, and is better a function of what it is given alone.
	// An error fails Restore. Nil: with as many ranks as the epoch has, each gets what it had; with others, the first
	// dimension is divided evenly. Then the boxes lie in memory one after the other, without ghosts.
	Restored func(was SavedArray) (Array, error)
}

// DivisionError says that an array of an epoch cannot be divided as Changing.Restored has it, or has no memory then.
// Restore fails with it.
//
//	Name string
//	Dims []int64 // in the epoch
//	Err  error
type DivisionError = capture.DivisionError

// SavedArray is an array as an epoch has it.
type SavedArray struct {
	Dims  []int
	Ranks int   // that wrote the epoch
	Boxes []Box // what this rank had, packed in memory, if as many ranks wrote the epoch; else nil
}

// List is the array of one dimension that all ranks' elements make up, in order of rank, of which this rank has n:
// what Changing.Now returns for particles. The ranks find out at the checkpoint where each begins.
func List(n int) Array {
	a := Array{Dims: []int{n}, list: true}
	if n > 0 {
		a.Boxes = []Box{{Start: []int{0}, Count: []int{n}}}
	}
	return a
}

// ProtectChanging is ProtectGlobal for an array whose dimensions or division change. memory is a pointer to a slice, or
// InBufferAt of a pointer to a buffer: the slice and the buffer may be others at each checkpoint.
//
// Restore gives the slice the length that the array takes, in new memory where it was shorter. A buffer that is too
// small is replaced by a new one without a name, and released: take slices and buffers from their variables after
// Restore, and set kernel arguments then.
//
// Each checkpoint compares what the ranks declare. It fails with a *DiffersError where they say other dimensions, and
// with the text of a *HoleError, *OverlapError or *ShapeError where boxes do not fit together. Restore fails with one
// of these, on all ranks, if what Restored returns does not have each element once.
func (c *Checkpointer) ProtectChanging(name string, a Changing, memory any) error {
	return c.protect(name, memory, func() error {
		if a.Now == nil {
			return errors.New("Changing.Now is nil; it says what the rank has when a checkpoint is taken")
		}
		m, isDevice := memory.(capture.DeviceMemory)
		if isDevice && m.At == nil {
			return errors.New("the array's buffer may become too small; pass a pointer to it, with InBufferAt")
		}
		err := c.state.AddChanging(name, capture.Changing{
			Now: func() (capture.Division, error) { now := a.Now(); return now.division() },
			Restored: func(saved *layout.Array, ranks int, mine []layout.Part) (capture.Division, error) {
				return c.again(&a, saved, ranks, mine)
			},
		}, memory)
		if err == nil && isDevice && c.opt.MaxShadow != 0 {
			(*m.At).Device().LimitShadow(max(c.opt.MaxShadow, 0))
		}
		return err
	})
}

// ProtectList makes this rank's elements of a list that all ranks have together part of every checkpoint: particles,
// say, whose number differs from rank to rank and from step to step. list is a pointer to a slice. With the same number
// of ranks Restore gives each what it had; with another, each gets an equal share of all elements, in their order, to
// send on to where they belong. It is ProtectChanging of a List.
func (c *Checkpointer) ProtectList(name string, list any) error {
	v := reflect.ValueOf(list)
	if v.Kind() != reflect.Pointer || v.IsNil() || v.Elem().Kind() != reflect.Slice {
		return c.protect(name, list, func() error {
			return errors.New("a list is a pointer to a slice; for a buffer use ProtectChanging with InBufferAt")
		})
	}
	return c.ProtectChanging(name, Changing{Now: func() Array { return List(v.Elem().Len()) }}, list)
}

// InBufferAt is InBuffer of a buffer that may be replaced, by the program or by Restore: memory of ProtectChanging.
// The new one is on the same device.
func InBufferAt[T any](b **gpustate.Buffer) any {
	return capture.DeviceMemory{At: b, Elem: reflect.TypeFor[T]()}
}

// again is what this rank is to have of an array of an epoch.
func (c *Checkpointer) again(of *Changing, saved *layout.Array, ranks int,
	mine []layout.Part) (d capture.Division, err error) {
	was := SavedArray{Dims: narrow(saved.Dims), Ranks: ranks, Boxes: packed(mine)}
	var a Array
	switch {
	case of.Restored != nil:
		if a, err = of.Restored(was); err != nil {
			return d, err
		}
	case ranks == c.topo.Size():
		a = Array{Dims: was.Dims, Boxes: was.Boxes}
	default:
		grid := make([]int, len(was.Dims))
		for i := range grid {
			grid[i] = 1
		}
		grid[0] = c.topo.Size()
		a = Block(was.Dims, grid, c.topo.Rank)
	}
	if a.list {
		return d, errors.New("the function Restored returned a List, of which nobody knows where it begins; return " +
			"Block, Variable or boxes, or leave out Restored")
	}
	return a.division()
}

// packed is parts as boxes that lie in memory one after the other.
func packed(parts []layout.Part) (list []Box) {
	at := 0
	for i := range parts {
		b := Box{Offset: at}
		for _, spans := range parts[i].Spans {
			b.Start, b.Count = append(b.Start, int(spans[0].Start)), append(b.Count, int(spans[0].Count))
			if len(spans) > 1 || spans[0].Times > 1 {
				b.spans = parts[i].Spans
			}
		}
		at += int(parts[i].Elems())
		list = append(list, b)
	}
	return list
}

// division checks the boxes and says where they lie.
func (a *Array) division() (d capture.Division, err error) {
	d = capture.Division{Dims: wide(a.Dims), List: a.list}
	switch {
	case a.err != nil:
		return d, a.err
	case len(a.Dims) == 0:
		return d, errors.New("the array has no dimensions; divide it by Block, BlockCyclic, Variable or List, or " +
			"give Dims and Boxes")
	}
	for k, n := range a.Dims {
		if n < 0 {
			return d, fmt.Errorf("dimension %d has %d indices", k, n)
		}
	}
	for i := range a.Boxes {
		b, err := a.Boxes[i].block(len(a.Dims))
		if err != nil {
			return d, err
		}
		d.Blocks = append(d.Blocks, b)
		d.Need = max(d.Need, a.Boxes[i].end())
	}
	return d, nil
}

// end is the index in memory behind the box and its ghosts.
func (b *Box) end() int64 {
	n := int64(1)
	for d, count := range b.counts() {
		whole := count + entry(b.Low, d) + entry(b.High, d)
		if b.Pitch != nil {
			whole = max(whole, b.Pitch[d])
		}
		n *= int64(whole)
	}
	return int64(b.Offset) + n
}

func narrow(list []int64) (out []int) {
	for _, n := range list {
		out = append(out, int(n))
	}
	return out
}

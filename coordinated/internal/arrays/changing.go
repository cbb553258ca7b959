package arrays

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"

	"github.com/holdfast-hpc/holdfast/gpustate"
	"github.com/holdfast-hpc/holdfast/internal/layout"
	"github.com/holdfast-hpc/holdfast/storage"
)

// A Division is a rank's share of an array at one time.
type Division struct {
	Dims   []int64
	Blocks []Block
	Need   int64 // elements of memory that the blocks take, ghosts included
	List   bool  // one block, behind those of the ranks before: Place has its offset
}

// Changing is an array whose division changes.
type Changing struct {
	// Now is asked at each checkpoint.
	Now func() (Division, error)
	// Restored is called in a restore, with the epoch's array: parts are this rank's, if the number of ranks is the
	// same.
	Restored func(saved *layout.Array, ranks int, parts []layout.Part) (Division, error)
}

// changing holds the state of an array whose division changes.
type changing struct {
	Changing
	list bool          // as Division has it
	p    *Protected    // that the array is part of
	v    reflect.Value // the program's slice, or
	at   **gpustate.Buffer
	dev  *gpustate.Device // that has the buffer

	fresh bool // a restore reads to memory that the program does not know yet
}

// changes ends the type of a changing array, for comparing declarations.
const changes = ", with dimensions that change"

// AddChanging protects this rank's share of an array whose dimensions may change. x is a pointer to a slice, or a
// DeviceMemory with a pointer to the buffer.
func (p *Protected) AddChanging(name string, of Changing, x any) error {
	if err := p.Free(name); err != nil {
		return err
	}
	g := &array{changing: &changing{Changing: of, p: p}, local: layout.Local{Array: layout.Array{Name: name,
		Kind: layout.Divided, Section: sectionArray + name}}}
	m, isDevice := x.(DeviceMemory)
	if isDevice {
		if m.At == nil || *m.At == nil {
			return fmt.Errorf("no buffer; make it first, and pass a pointer to it to InBufferAt")
		}
		m.Buffer = *m.At
		g.changing.at, g.changing.dev = m.At, m.Buffer.Device()
		x = m
	}
	if err := p.memoryOf(g, x); err != nil {
		return err
	}
	if g.slice != nil {
		g.changing.v = g.slice.V
	}
	p.add(g)
	return nil
}

// Changes reports whether any array may change.
func (p *Protected) Changes() bool { return len(p.changing()) > 0 }

func (p *Protected) changing() (list []*array) {
	for _, g := range p.arrays {
		if g.changing != nil {
			list = append(list, g)
		}
	}
	slices.SortFunc(list, func(a, b *array) int { return cmp.Compare(a.local.Name, b.local.Name) })
	return list
}

// divide adopts a new division, and the places of its blocks.
func (g *array) divide(d *Division) error {
	g.local.Dims, g.blocks, g.changing.list = d.Dims, d.Blocks, d.List
	if at := g.changing.at; at != nil {
		if *at == nil {
			return errors.New("there is no buffer any more; a rank without elements keeps a small one")
		}
		if (*at).Device() != g.changing.dev {
			return errors.New("the buffer is on another device than before; an array stays on its device")
		}
		g.dev.Buffer = *at
	}
	return g.changed()
}

// changed checks the blocks and adopts them.
func (g *array) changed() error {
	g.local.Parts = partsOf(g.blocks)
	if err := g.local.Fits(-1); err != nil {
		return err
	}
	if err := errors.Join(g.inMemory(), g.apart()); err != nil {
		return err
	}
	g.changing.p.cut(g)
	if g.dev != nil {
		g.share()
	}
	return nil
}

// Plan asks the program how it divides arrays of the epoch's dimensions, and prepares memory for that. It precedes Read
// if Changes is true. It returns the arrays as they will be, for the ranks to judge.
func (a *Attempt) Plan(ctx context.Context, src Source) ([]byte, error) {
	var l *storage.Layout
	own := src.Own()
	if own != nil {
		l = own.Layout()
	} else {
		infos, err := src.Entries(ctx)
		if err != nil {
			return nil, err
		}
		l = infos[0].Layout
	}
	out := &storage.Layout{}
	for _, g := range a.r.p.changing() {
		saved := find(l, g.local.Name)
		if saved == nil || saved.Kind != layout.Divided || saved.Type != g.local.Type {
			have := ""
			if saved != nil {
				have = describe(&saved.Array)
			}
			return nil, a.Mismatch(g.local.Name, have, "array of "+g.local.Type+changes)
		}
		var mine []layout.Part
		if own != nil {
			mine = layout.Join(saved.Parts) // as they were declared
		}
		if err := a.plan(g, &saved.Array, src.Size(), mine); err != nil {
			return nil, Unfit(fmt.Errorf("restore %q, which has the dimensions %v in the epoch: %w", g.local.Name,
				saved.Dims, err))
		}
		out.Arrays = append(out.Arrays, g.declared())
	}
	return sayLayout(out)
}

// unfit marks an error of the program's division of an epoch: no other epoch would help.
type unfit struct{ error }

func (e unfit) Unwrap() error { return e.error }

// Unfit marks such an error.
func Unfit(err error) error { return unfit{err} }

// IsUnfit reports whether an error is marked so.
func IsUnfit(err error) bool {
	return errors.As(err, new(unfit))
}

// find returns the array of this name of a rank of the epoch, or nil.
func find(l *storage.Layout, name string) *layout.Local {
	if l != nil {
		for i := range l.Arrays {
			if l.Arrays[i].Name == name {
				return &l.Arrays[i]
			}
		}
	}
	return nil
}

// plan readies one array.
func (a *Attempt) plan(g *array, saved *layout.Array, ranks int, mine []layout.Part) error {
	d, err := g.changing.Restored(saved, ranks, mine)
	if err != nil {
		return err
	}
	if !slices.Equal(d.Dims, saved.Dims) {
		return fmt.Errorf("it is divided as an array of %v; Restored returns one of the dimensions that it is given",
			d.Dims)
	}
	g.changing.fresh = false
	if g.dev != nil {
		err = a.planBuffer(g, d.Need*g.local.Elem)
	} else {
		a.planSlice(g, int(d.Need))
	}
	if err != nil {
		return err
	}
	g.local.Dims, g.blocks, g.changing.list = d.Dims, d.Blocks, false
	return g.changed()
}

// planSlice has the array read to a slice of n elements, which becomes the program's when all ranks have theirs: the
// beginning of the present slice, or a new one.
func (a *Attempt) planSlice(g *array, n int) {
	v := g.changing.v
	was, now := reflect.New(v.Type()).Elem(), reflect.New(v.Type()).Elem()
	was.Set(v)
	if n <= v.Len() {
		now.Set(v.Slice(0, n))
	} else {
		now.Set(reflect.MakeSlice(v.Type(), n, n))
		g.changing.fresh = true
	}
	g.slice.V = now
	a.OnUndo(func() error { g.slice.V = v; return nil })
	a.OnApply(g.local.Name, func() error { v.Set(now); g.slice.V = v; return nil }, func() { v.Set(was) })
}

// planBuffer has the array read to the buffer, or to a new one if that is too small.
func (a *Attempt) planBuffer(g *array, bytes int64) error {
	at := g.changing.at
	was := *at
	g.dev.Buffer = was
	if int64(was.Bytes()) >= bytes {
		return nil
	}
	now, err := g.changing.dev.Buffer("", int(bytes))
	if err != nil {
		return err
	}
	g.dev.Buffer, g.changing.fresh = now, true
	a.OnUndo(func() error { g.dev.Buffer = was; return now.Release() })
	a.OnApply(g.local.Name, func() error { *at = now; return nil }, func() { *at = was })
	a.OnFinish(func() {
		if err := was.Release(); err != nil {
			a.r.log.Warn("holdfast: cannot release the buffer that a restore has replaced", "array", g.local.Name,
				"error", err)
		}
	})
	return nil
}

package capture

import (
	"errors"
	"fmt"

	"github.com/holdfast-hpc/holdfast/internal/layout"
	"github.com/holdfast-hpc/holdfast/internal/program"
)

// elsewhere is an array of a program in another process. Its bytes come to shared memory of
// the pool, and go from there, by the program's own hands.
type elsewhere struct {
	*program.Array
	pool   *pool
	shared []byte // what was saved last, or is being loaded
}

func (p *Protected) newRegion(x any) (region, error) {
	a, ok := x.(*program.Array)
	if !ok {
		return newRegion(x)
	}
	return &elsewhere{Array: a, pool: p.pool}, nil
}

func (r namedRegion) isElsewhere() bool {
	_, is := r.region.(*elsewhere)
	return is
}

// isAbsent says that a checkpoint neither takes the region nor restores it.
func (r namedRegion) isAbsent() bool {
	e, is := r.region.(*elsewhere)
	return is && e.Absent()
}

// AddElsewhere protects the share that a rank of a program in another process has of a global array.
func (p *Protected) AddElsewhere(name string, a *program.Array) error {
	if err := p.free(name); err != nil {
		return err
	}
	g := &global{away: &elsewhere{Array: a, pool: p.pool}, local: layout.Local{Array: layout.Array{Name: name,
		Type: a.Layout, Elem: int64(a.Elem), Kind: layout.Divided, Section: sectionArray + name}}}
	if err := g.renew(); err != nil {
		return err
	}
	p.globals, p.names[name] = append(p.globals, g), true
	return nil
}

// renew asks a program in another process what the rank has of the array at present.
func (g *global) renew() error {
	if g.away == nil || g.away.Absent() {
		return nil
	}
	g.local.Dims, g.local.Parts = g.away.Shape()
	g.blocks = nil
	base := int64(0)
	for _, part := range g.local.Parts {
		g.blocks = append(g.blocks, Block{part, layout.Dense(&part, base)})
		base += part.Elems()
	}
	if err := g.local.Fits(-1); err != nil {
		return err
	}
	if base*g.local.Elem != g.bytes() {
		return fmt.Errorf("%q has %d elements in its parts, and %d bytes", g.local.Name, base, g.bytes())
	}
	return nil
}

// presentGlobals and presentReplicas are what a checkpoint takes now: a program in another process may have taken
// something out.
func (p *Protected) presentGlobals() (list []*global) {
	for _, g := range p.globals {
		if g.away == nil || !g.away.Absent() {
			list = append(list, g)
		}
	}
	return list
}

func (p *Protected) presentReplicas() (list []*replica) {
	for _, r := range p.replicas {
		if !r.isAbsent() {
			list = append(list, r)
		}
	}
	return list
}

const moreMemory = "give the node more memory, or raise max_pool or the daemon's limits (ulimit -v, ulimit -f)"

// saveElsewhere has the program copy its arrays to the pool. What the capture itself does not read may come later.
func (p *Protected) saveElsewhere(s *Snapshot) error {
	var moves []program.Move
	add := func(name string, r region, unread bool) error {
		e, is := r.(*elsewhere)
		if !is || e.Absent() {
			return nil
		}
		n := e.bytes()
		if e.shared = p.pool.alloc(int(n)); e.shared == nil {
			return fmt.Errorf("capture %q: no memory for its %d bytes; %s", name, n, moreMemory)
		}
		moves = append(moves, program.Move{Array: e.Array, Shared: e.shared, Late: unread && n >= inlineBytes})
		return nil
	}
	var errs []error
	for _, r := range p.regions {
		errs = append(errs, add(r.name, r.region, true))
	}
	for _, r := range p.replicas {
		errs = append(errs, add(r.name, r.region, false))
	}
	for _, g := range p.globals {
		if g.away != nil {
			errs = append(errs, g.renew(), add(g.local.Name, g.away, true))
		}
	}
	if err := errors.Join(errs...); err != nil || len(moves) == 0 {
		return err
	}
	var err error
	s.arrived, err = p.pool.memory.Save(moves)
	return err
}

// kind is that of a slice of such elements in Go.
func (r *elsewhere) kind() string                { return "slice " + r.Layout }
func (r *elsewhere) bytes() int64                { return r.Bytes() }
func (r *elsewhere) view() ([]byte, bool, error) { return r.shared, true, nil }

// stage reads to shared memory; the program copies when all ranks have theirs.
func (r *elsewhere) stage(n int64) (*staged, error) {
	if err := r.takes(n); err != nil {
		return nil, err
	}
	if int64(len(r.shared)) != n || n > 0 && r.shared == nil { // unless an attempt before had it
		if r.shared = r.pool.alloc(int(n)); r.shared == nil {
			return nil, fmt.Errorf("no memory for %d bytes; %s", n, moreMemory)
		}
	}
	return r.staged(r.shared), nil
}

// stageFrom is stage of verified bytes that lie in shared memory already.
func (r *elsewhere) stageFrom(shared []byte) (*staged, error) {
	if err := r.takes(int64(len(shared))); err != nil {
		return nil, err
	}
	return r.staged(shared), nil
}

func (r *elsewhere) staged(shared []byte) *staged {
	return &staged{dst: shared, last: func() {
		r.pool.memory.Load(program.Move{Array: r.Array, Shared: shared})
	}}
}

func (r *elsewhere) takes(n int64) error {
	if n != r.bytes() && !r.AnySize {
		return &LengthError{n / int64(r.Elem), r.Count()}
	}
	return nil
}

// LengthError says that a checkpoint has another number of elements of an array than the program protects.
type LengthError struct{ Saved, Now int64 }

// Error gives both numbers.
func (e *LengthError) Error() string {
	return fmt.Sprintf("the checkpoint has %d elements, the program %d", e.Saved, e.Now)
}

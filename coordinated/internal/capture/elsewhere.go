package capture

import (
	"fmt"

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

// saveElsewhere has the program copy its arrays to the pool.
func (p *Protected) saveElsewhere() error {
	var moves []program.Move
	for _, r := range p.regions {
		e, is := r.region.(*elsewhere)
		if !is || e.Absent() {
			continue
		}
		n := e.bytes()
		if e.shared = p.pool.alloc(int(n)); e.shared == nil {
			return fmt.Errorf("capture %q: no memory for its %d bytes; give the node more memory, or raise max_pool",
				r.name, n)
		}
		moves = append(moves, program.Move{Array: e.Array, Shared: e.shared})
	}
	if len(moves) == 0 {
		return nil
	}
	return p.pool.memory.Save(moves)
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
			return nil, fmt.Errorf("no memory for %d bytes; give the node more memory, or raise max_pool", n)
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
		return fmt.Errorf("the checkpoint has %d bytes, the program %d; protect as many elements as the "+
			"checkpoint has", n, r.bytes())
	}
	return nil
}

package capture

import (
	"errors"
	"fmt"

	"github.com/holdfast-hpc/holdfast/internal/program"
)

// Foreign is an array of a program in another process. Its bytes come to shared memory of
// the pool, and go from there, by the program's own hands.
type Foreign struct {
	*program.Array
	Shared []byte // the last saved bytes, or those being loaded
	pool   *pool
}

// NewForeign has no bytes yet.
func (p *Protected) NewForeign(a *program.Array) *Foreign { return &Foreign{Array: a, pool: p.pool} }

// NewRegion returns the form of a value that the program passed to Protect.
func (p *Protected) NewRegion(x any) (Region, error) {
	if a, ok := x.(*program.Array); ok {
		return p.NewForeign(a), nil
	}
	return newRegion(x)
}

// Foreign returns the array of a program in another process; nil: the region is memory of this process.
func (r Named) Foreign() *Foreign {
	f, _ := r.Region.(*Foreign)
	return f
}

// IsAbsent reports whether checkpoints skip the region.
func (r Named) IsAbsent() bool {
	f := r.Foreign()
	return f != nil && f.Absent()
}

const moreMemory = "give the node more memory, or raise max_pool or the daemon's limits (ulimit -v, ulimit -f)"

// A ForeignCopy is an array that its program copies to shared memory. Late reports that the capture does not read it,
// so its bytes may come afterwards.
type ForeignCopy struct {
	Name string
	*Foreign
	Late bool
}

// copyForeign has the program copy its arrays to the pool.
func (p *Protected) copyForeign(s *Snapshot, list []ForeignCopy) error {
	var moves []program.Move
	var errs []error
	for _, f := range list {
		if f.Absent() {
			continue
		}
		n := f.Bytes()
		if f.Shared = p.Alloc(int(n)); f.Shared == nil {
			errs = append(errs, fmt.Errorf("capture %q: no memory for its %d bytes; %s", f.Name, n, moreMemory))
		}
		moves = append(moves, program.Move{Array: f.Array, Shared: f.Shared, Late: f.Late && n >= InlineBytes})
	}
	if err := errors.Join(errs...); err != nil || len(moves) == 0 {
		return err
	}
	var err error
	s.arrived, err = p.pool.memory.Save(moves)
	return err
}

// Kind returns the kind of a slice of such elements in Go.
func (r *Foreign) Kind() string { return "slice " + r.Layout }

// View returns the bytes of the last copy.
func (r *Foreign) View() ([]byte, bool, error) { return r.Shared, true, nil }

// stage reads to shared memory; the program copies when all ranks have theirs.
func (r *Foreign) stage(n int64) (*staged, error) {
	if err := r.takes(n); err != nil {
		return nil, err
	}
	if int64(len(r.Shared)) != n || n > 0 && r.Shared == nil { // unless an attempt before had it
		if r.Shared = r.pool.Alloc(int(n)); r.Shared == nil {
			return nil, fmt.Errorf("no memory for %d bytes; %s", n, moreMemory)
		}
	}
	return r.staged(r.Shared), nil
}

// stageFrom is stage of verified bytes that lie in shared memory already.
func (r *Foreign) stageFrom(shared []byte) (*staged, error) {
	if err := r.takes(int64(len(shared))); err != nil {
		return nil, err
	}
	return r.staged(shared), nil
}

func (r *Foreign) staged(shared []byte) *staged {
	return &staged{dst: shared, last: func() {
		r.pool.memory.Load(program.Move{Array: r.Array, Shared: shared})
	}}
}

func (r *Foreign) takes(n int64) error {
	if n != r.Bytes() && !r.AnySize {
		return &LengthError{n / int64(r.Elem), r.Count()}
	}
	return nil
}

// LengthError reports that a checkpoint has another number of elements of an array than the program protects.
type LengthError struct{ Saved, Now int64 }

// Error gives both numbers.
func (e *LengthError) Error() string {
	return fmt.Sprintf("the checkpoint has %d elements, the program %d", e.Saved, e.Now)
}

package mpiwrap

import (
	"fmt"
	"slices"

	"github.com/holdfast-hpc/holdfast/mpiwrap/internal/call"
	"github.com/holdfast-hpc/holdfast/mpiwrap/internal/driver"
)

// Fold combines in into acc, element by element: acc[i] = acc[i] op in[i]. acc
// comes from lower ranks than in. Both have the same length.
type Fold[T Scalar] func(acc, in []T)

const foldTag = 1

// ReduceFunc combines the src of all ranks with f into root's dest. dest may be src; other ranks' dest is ignored.
// Collective over c.
func ReduceFunc[T Scalar](c *Comm, dest, src []T, f Fold[T], root int) error {
	if err := c.checkRoot(call.Reduce, root); err != nil {
		return err
	}
	if c.rank == root && len(dest) != len(src) {
		return c.badLength(call.Reduce, "dest has %d elements, src %d", len(dest), len(src))
	}
	return c.folding(call.Reduce, func(s *Comm) error {
		acc := append([]T(nil), src...)
		if err := foldUp(s, acc, f); err != nil {
			return err
		}
		switch {
		case root == 0 && s.rank == 0:
			copy(dest, acc)
		case s.rank == 0: // the result moves to root
			return s.st.Driver.Send(driver.Standard, bytesOf(acc), root, foldTag, s.ch.Handle)
		case s.rank == root:
			return s.recvExactly(bytesOf(dest), 0)
		}
		return nil
	})
}

// AllreduceFunc combines the src of all ranks with f into every rank's dest, which may be src. Collective over c.
func AllreduceFunc[T Scalar](c *Comm, dest, src []T, f Fold[T]) error {
	if len(dest) != len(src) {
		return c.badLength(call.Allreduce, "dest has %d elements, src %d", len(dest), len(src))
	}
	return c.folding(call.Allreduce, func(s *Comm) error {
		acc := append([]T(nil), src...)
		if err := foldUp(s, acc, f); err != nil {
			return err
		}
		copy(dest, acc)
		return s.st.Driver.Collective(driver.Coll{Kind: driver.Bcast, Type: typeOf[T](), Count: len(dest),
			Recv: bytesOf(dest), Comm: s.ch.Handle})
	})
}

// ScanFunc combines the src of ranks 0 to the caller's with f into dest, which may be src. The ranks work one after the
// other. Collective over c.
func ScanFunc[T Scalar](c *Comm, dest, src []T, f Fold[T]) error {
	if len(dest) != len(src) {
		return c.badLength(call.Scan, "dest has %d elements, src %d", len(dest), len(src))
	}
	return c.folding(call.Scan, func(s *Comm) error {
		acc, err := scanChain(s, src, f, nil)
		copy(dest, acc)
		return err
	})
}

// ExscanFunc combines the src of the ranks below the caller's with f into dest, which may be src. Rank 0's dest is
// unchanged. Collective over c.
func ExscanFunc[T Scalar](c *Comm, dest, src []T, f Fold[T]) error {
	if len(dest) != len(src) {
		return c.badLength(call.Exscan, "dest has %d elements, src %d", len(dest), len(src))
	}
	return c.folding(call.Exscan, func(s *Comm) error {
		below := make([]T, len(src))
		_, err := scanChain(s, src, f, below)
		if s.rank > 0 {
			copy(dest, below)
		}
		return err
	})
}

// folding runs a reduction as one collective of c on its side communicator.
func (c *Comm) folding(op call.Op, run func(s *Comm) error) error {
	if err := c.channel().Usable(op.String()); err != nil {
		return err
	}
	a, err := c.enter(op)
	if err != nil {
		return err
	}
	defer a.Leave()
	s, err := c.side()
	if err == nil {
		err = run(s)
	}
	return c.ch.Wrap(op.String(), NoPeer, NoTag, err)
}

// foldUp leaves the result of all ranks in rank 0's acc. Each rank holds a run
// of neighbouring ranks at every step, so the order is that of the ranks.
func foldUp[T Scalar](s *Comm, acc []T, f Fold[T]) error {
	in := make([]T, len(acc))
	for mask := 1; mask < s.size; mask <<= 1 {
		if s.rank&mask != 0 {
			return s.st.Driver.Send(driver.Standard, bytesOf(acc), s.rank-mask, foldTag, s.ch.Handle)
		}
		if s.rank+mask < s.size {
			if err := s.recvExactly(bytesOf(in), s.rank+mask); err != nil {
				return err
			}
			f(acc, in)
		}
	}
	return nil
}

// scanChain returns the fold up to this rank, and stores that of the ranks below
// in below unless it is nil.
func scanChain[T Scalar](s *Comm, src []T, f Fold[T], below []T) ([]T, error) {
	acc := append([]T(nil), src...)
	if s.rank > 0 {
		in := make([]T, len(src))
		if err := s.recvExactly(bytesOf(in), s.rank-1); err != nil {
			return nil, err
		}
		copy(below, in)
		f(in, src)
		acc = in
	}
	if s.rank+1 < s.size {
		if err := s.st.Driver.Send(driver.Standard, bytesOf(acc), s.rank+1, foldTag, s.ch.Handle); err != nil {
			return nil, err
		}
	}
	return acc, nil
}

// recvExactly receives a message of the same length as buf.
func (c *Comm) recvExactly(buf []byte, source int) error {
	st, err := c.st.Driver.Recv(buf, source, foldTag, c.ch.Handle)
	if err == nil && int(st.Bytes) != len(buf) {
		return &driver.Error{Class: driver.ClassCount,
			Text: fmt.Sprintf("rank %d gave %d bytes, this rank %d", source, st.Bytes, len(buf)), Err: ErrLength}
	}
	return err
}

// IallreduceFunc starts an AllreduceFunc. Collective over c.
func IallreduceFunc[T Scalar](c *Comm, dest, src []T, f Fold[T]) (*Request, error) {
	return gatherAndFold(c, &driver.Coll{Kind: driver.Allgather}, call.Allreduce, dest, src, (*Comm).Size, f)
}

// IscanFunc starts a ScanFunc. Collective over c.
func IscanFunc[T Scalar](c *Comm, dest, src []T, f Fold[T]) (*Request, error) {
	return gatherAndFold(c, &driver.Coll{Kind: driver.Allgather}, call.Scan, dest, src, func(c *Comm) int {
		return c.rank + 1
	}, f)
}

// IexscanFunc starts an ExscanFunc. Collective over c.
func IexscanFunc[T Scalar](c *Comm, dest, src []T, f Fold[T]) (*Request, error) {
	return gatherAndFold(c, &driver.Coll{Kind: driver.Allgather}, call.Exscan, dest, src, (*Comm).Rank, f)
}

// IreduceFunc starts a ReduceFunc. Collective over c.
func IreduceFunc[T Scalar](c *Comm, dest, src []T, f Fold[T], root int) (*Request, error) {
	if err := c.checkRoot(call.Reduce, root); err != nil {
		return nil, err
	}
	a := &driver.Coll{Kind: driver.Gather, Root: root}
	if c.rank != root {
		a.Type, a.Count, a.Send = typeOf[T](), len(src), bytesOf(slices.Clone(src))
		return c.launch(a)
	}
	return gatherAndFold(c, a, call.Reduce, dest, src, (*Comm).Size, f)
}

// gatherAndFold starts gathering the src of all ranks by a, and folds those of the first n into dest when it is
// complete; none leaves it as it is.
func gatherAndFold[T Scalar](c *Comm, a *driver.Coll, op call.Op, dest, src []T, n func(*Comm) int,
	f Fold[T]) (*Request, error) {
	if err := c.channel().Usable(op.String()); err != nil {
		return nil, err
	}
	if len(dest) != len(src) {
		return nil, c.badLength(op, "dest has %d elements, src %d", len(dest), len(src))
	}
	all := make([]T, len(src)*c.size)
	a.Type, a.Count, a.Send, a.Recv = typeOf[T](), len(src), bytesOf(slices.Clone(src)), bytesOf(all)
	return c.launchThen(a, op, func() error {
		for i := range n(c) {
			if i == 0 {
				copy(dest, blockOf(all, 0, c.size))
			} else {
				f(dest, blockOf(all, i, c.size))
			}
		}
		return nil
	})
}

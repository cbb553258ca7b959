package mpiwrap

import (
	"bytes"
	"fmt"
	"math"

	"github.com/holdfast-hpc/holdfast/mpiwrap/internal/call"
	"github.com/holdfast-hpc/holdfast/mpiwrap/internal/driver"
	"github.com/holdfast-hpc/holdfast/mpiwrap/internal/request"
)

// Op is a reduction operator of MPI's. For operators written in Go see
// AllreduceFunc.
type Op int32

// The operators. Max and Min need an order, so no complex numbers; logical and
// bitwise ones are for integers. Replace and NoOp are for windows only.
const (
	Sum     = Op(driver.Sum)
	Prod    = Op(driver.Prod)
	Max     = Op(driver.Max)
	Min     = Op(driver.Min)
	Land    = Op(driver.Land)
	Band    = Op(driver.Band)
	Lor     = Op(driver.Lor)
	Bor     = Op(driver.Bor)
	Lxor    = Op(driver.Lxor)
	Bxor    = Op(driver.Bxor)
	Replace = Op(driver.Replace)
	NoOp    = Op(driver.NoOp)
)

// collOps are the calls behind the driver's kinds.
var collOps = [driver.Kinds]call.Op{call.Barrier, call.Bcast, call.Gather, call.Gatherv, call.Scatter, call.Scatterv,
	call.Allgather, call.Allgatherv, call.Alltoall, call.Alltoallv, call.Reduce, call.Allreduce,
	call.ReduceScatterBlock, call.ReduceScatter, call.Scan, call.Exscan}

// enter publishes and counts a collective over c.
func (c *Comm) enter(op call.Op) (*request.Activity, error) {
	a, err := c.ch.Block(op, NoPeer, NoTag)
	if err == nil && !c.ch.Private {
		c.st.Count(&c.entered, 1)
	}
	return a, err
}

// run does a blocking collective.
func (c *Comm) run(a *driver.Coll) error {
	op := collOps[a.Kind]
	if err := c.channel().Usable(op.String()); err != nil {
		return err
	}
	act, err := c.enter(op)
	if err != nil {
		return err
	}
	a.Comm = c.ch.Handle
	err = c.st.Driver.Collective(*a)
	act.Leave()
	if err != nil {
		return c.ch.Wrap(op.String(), NoPeer, NoTag, err)
	}
	return nil
}

// launch starts a non-blocking collective.
func (c *Comm) launch(a *driver.Coll) (*Request, error) { return c.launchThen(a, collOps[a.Kind], nil) }

// launchThen is launch for op, which calls finish when MPI is done with it.
func (c *Comm) launchThen(a *driver.Coll, op call.Op, finish func() error) (*Request, error) {
	if err := c.channel().Usable("I" + op.String()); err != nil {
		return nil, err
	}
	act, err := c.ch.Quick(op, NoPeer, NoTag)
	if err != nil {
		return nil, err
	}
	defer act.Leave()
	if !c.ch.Private {
		c.st.Count(&c.entered, 1)
	}
	a.Comm = c.ch.Handle
	r, err := c.ch.Icollective(op, a, finish)
	if err != nil {
		return nil, c.ch.Wrap("I"+op.String(), NoPeer, NoTag, err)
	}
	return r, nil
}

func (c *Comm) badLength(op call.Op, text string, args ...any) error {
	return c.ch.Fail(op.String(), NoPeer, NoTag, ErrLength, fmt.Sprintf(text, args...))
}

func (c *Comm) checkRoot(op call.Op, root int) error {
	if err := c.channel().Usable(op.String()); err != nil {
		return err
	}
	if root < 0 || root >= c.size {
		return c.ch.Fail(op.String(), root, NoTag, ErrRank, fmt.Sprintf("root of a communicator of size %d", c.size))
	}
	return nil
}

func (c *Comm) overlapping(op call.Op) error {
	return c.ch.Fail(op.String(), NoPeer, NoTag, ErrOverlap,
		"give the part of dest that in-place input lies in, or separate memory")
}

// place decides whether a call is in place: src starts where in-place input lies
// in dest. Any other overlap is an error.
func (c *Comm) place(a *driver.Coll, dest, src, input []byte) error {
	switch {
	case sameMemory(src, input):
		a.InPlace, a.Send = true, nil
	case driver.Overlap(dest, src):
		return c.overlapping(collOps[a.Kind])
	default:
		a.Send = src
	}
	a.Recv = dest
	return nil
}

// Barrier returns when every rank of c has called it. Collective over c.
func (c *Comm) Barrier() error {
	return c.run(&driver.Coll{Kind: driver.Barrier})
}

// Ibarrier starts a barrier. Collective over c.
func (c *Comm) Ibarrier() (*Request, error) {
	return c.launch(&driver.Coll{Kind: driver.Barrier})
}

// Bcast copies root's buf to every rank's buf. All have the same length. Collective over c.
func Bcast[T Scalar](c *Comm, buf []T, root int) error {
	a := driver.Coll{Kind: driver.Bcast, Type: typeOf[T](), Count: len(buf), Root: root, Recv: bytesOf(buf)}
	if err := c.checkRoot(call.Bcast, root); err != nil {
		return err
	}
	return c.run(&a)
}

// Ibcast starts a broadcast. Collective over c.
func Ibcast[T Scalar](c *Comm, buf []T, root int) (*Request, error) {
	a := driver.Coll{Kind: driver.Bcast, Type: typeOf[T](), Count: len(buf), Root: root, Recv: bytesOf(buf)}
	if err := c.checkRoot(call.Bcast, root); err != nil {
		return nil, err
	}
	return c.launch(&a)
}

// mostElements is the longest vector that one reduction in MPI takes; a test
// makes it smaller.
var mostElements = math.MaxInt32 &^ 4095

// splits reports whether a is a reduction of more elements than MPI can count, which can be
// made in parts.
func splits(a *driver.Coll) bool {
	switch a.Kind {
	case driver.Reduce, driver.Allreduce, driver.Scan, driver.Exscan:
		return a.Count > mostElements
	}
	return false
}

// runChecked does a blocking collective whose arguments have been checked, in parts where
// it splits.
func (c *Comm) runChecked(a driver.Coll, err error) error {
	if err != nil {
		return err
	}
	if !splits(&a) {
		return c.run(&a)
	}
	size := a.Type.Size()
	for from := 0; from < a.Count; from += mostElements {
		part := a
		part.Count = min(mostElements, a.Count-from)
		lo, hi := from*size, (from+part.Count)*size
		if a.Send != nil {
			part.Send = a.Send[lo:hi]
		}
		if a.Recv != nil {
			part.Recv = a.Recv[lo:hi]
		}
		if err := c.run(&part); err != nil {
			return err
		}
	}
	return nil
}

// launchChecked starts a collective whose arguments have been checked, unless it is too
// large to be one call.
func (c *Comm) launchChecked(a driver.Coll, err error) (*Request, error) {
	if err != nil {
		return nil, err
	}
	if splits(&a) {
		return nil, c.ch.Fail("I"+collOps[a.Kind].String(), NoPeer, NoTag, ErrTooLarge,
			fmt.Sprintf("%d elements", a.Count))
	}
	return c.launch(&a)
}

// checkOp refuses operators that MPI does not define for a type.
func (c *Comm) checkOp(call call.Op, t driver.Type, op Op) error {
	last := Bxor
	switch t {
	case driver.Float32, driver.Float64:
		last = Min
	case driver.Complex64, driver.Complex128:
		last = Prod
	}
	if op < Sum || op > last {
		return c.ch.Fail(call.String(), NoPeer, NoTag, ErrOp, fmt.Sprintf("operator %d", op))
	}
	return nil
}

// reduction fills the arguments of a reduction whose dest and src have the same
// length wherever dest matters.
func reduction[T Scalar](c *Comm, a driver.Coll, dest, src []T, op Op) (driver.Coll, error) {
	a.Type, a.Op, a.Count = typeOf[T](), driver.Op(op), len(src)
	err := c.reduction(&a, bytesOf(dest), bytesOf(src), op)
	return a, err
}

func (c *Comm) reduction(a *driver.Coll, dest, src []byte, op Op) error {
	if err := c.checkOp(collOps[a.Kind], a.Type, op); err != nil {
		return err
	}
	if a.Kind == driver.Reduce {
		if err := c.checkRoot(call.Reduce, a.Root); err != nil {
			return err
		}
		if c.rank != a.Root {
			a.Send = src
			return nil
		}
	}
	if len(dest) != len(src) {
		return c.badLength(collOps[a.Kind], "dest has %d elements, src %d", len(dest)/a.Type.Size(), a.Count)
	}
	if a.Kind == driver.Reduce && c.st.Info.CopyReduce && sameMemory(dest, src) {
		a.Send, a.Recv = bytes.Clone(dest), dest
		return nil
	}
	return c.place(a, dest, src, dest)
}

// Allreduce combines the src of all ranks element by element into every rank's dest. dest may be src. Collective over
// c.
func Allreduce[T Scalar](c *Comm, dest, src []T, op Op) error {
	if len(src) <= mostElements {
		return c.allreduce(bytesOf(dest), bytesOf(src), typeOf[T](), op)
	}
	return c.runChecked(reduction(c, driver.Coll{Kind: driver.Allreduce}, dest, src, op))
}

// allreduce is split and run for the collective that programs call most: with
// its arguments in registers it is a fifth faster for a few bytes.
func (c *Comm) allreduce(dest, src []byte, t driver.Type, op Op) error {
	if err := c.channel().Usable(call.Allreduce.String()); err != nil {
		return err
	}
	if err := c.checkOp(call.Allreduce, t, op); err != nil {
		return err
	}
	if len(dest) != len(src) {
		return c.badLength(call.Allreduce, "dest has %d elements, src %d", len(dest)/t.Size(), len(src)/t.Size())
	}
	inPlace := sameMemory(dest, src)
	if !inPlace && driver.Overlap(dest, src) {
		return c.overlapping(call.Allreduce)
	}
	a, err := c.enter(call.Allreduce)
	if err != nil {
		return err
	}
	err = c.st.Driver.Allreduce(dest, src, t, driver.Op(op), inPlace, c.ch.Handle)
	a.Leave()
	if err != nil {
		return c.ch.Wrap(call.Allreduce.String(), NoPeer, NoTag, err)
	}
	return nil
}

// Iallreduce starts an Allreduce. Collective over c.
func Iallreduce[T Scalar](c *Comm, dest, src []T, op Op) (*Request, error) {
	return c.launchChecked(reduction(c, driver.Coll{Kind: driver.Allreduce}, dest, src, op))
}

// Reduce combines the src of all ranks into root's dest, which may be its src. Other ranks' dest is ignored. Collective
// over c.
func Reduce[T Scalar](c *Comm, dest, src []T, op Op, root int) error {
	return c.runChecked(reduction(c, driver.Coll{Kind: driver.Reduce, Root: root}, dest, src, op))
}

// Ireduce starts a Reduce. Collective over c.
func Ireduce[T Scalar](c *Comm, dest, src []T, op Op, root int) (*Request, error) {
	return c.launchChecked(reduction(c, driver.Coll{Kind: driver.Reduce, Root: root}, dest, src, op))
}

// Scan combines the src of ranks 0 to the caller's into dest, which may be src. Collective over c.
func Scan[T Scalar](c *Comm, dest, src []T, op Op) error {
	return c.runChecked(reduction(c, driver.Coll{Kind: driver.Scan}, dest, src, op))
}

// Iscan starts a Scan. Collective over c.
func Iscan[T Scalar](c *Comm, dest, src []T, op Op) (*Request, error) {
	return c.launchChecked(reduction(c, driver.Coll{Kind: driver.Scan}, dest, src, op))
}

// Exscan combines the src of the ranks below the caller's into dest, which may be src. Rank 0's dest is unchanged.
// Collective over c.
func Exscan[T Scalar](c *Comm, dest, src []T, op Op) error {
	return c.runChecked(reduction(c, driver.Coll{Kind: driver.Exscan}, dest, src, op))
}

// Iexscan starts an Exscan. Collective over c.
func Iexscan[T Scalar](c *Comm, dest, src []T, op Op) (*Request, error) {
	return c.launchChecked(reduction(c, driver.Coll{Kind: driver.Exscan}, dest, src, op))
}

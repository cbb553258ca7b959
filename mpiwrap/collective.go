package mpiwrap

import (
	"bytes"
	"fmt"
	"math"
	"slices"
	"unsafe"

	"github.com/holdfast-hpc/holdfast/mpiwrap/internal/driver"
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
var collOps = [driver.Kinds]opCode{opBarrier, opBcast, opGather, opGatherv, opScatter, opScatterv,
	opAllgather, opAllgatherv, opAlltoall, opAlltoallv, opReduce, opAllreduce,
	opReduceScatterBlock, opReduceScatter, opScan, opExscan}

// enter publishes and counts a collective over c.
func (c *Comm) enter(op opCode) (*activity, error) {
	a, err := c.block(op, NoPeer, NoTag)
	if err == nil && !c.private {
		c.st.count(&c.entered, 1)
	}
	return a, err
}

// run does a blocking collective.
func (c *Comm) run(a *driver.Coll) error {
	op := collOps[a.Kind]
	if err := c.usable(op.String()); err != nil {
		return err
	}
	act, err := c.enter(op)
	if err != nil {
		return err
	}
	a.Comm = c.h
	err = c.st.drv.Collective(*a)
	c.st.layouts.give(a)
	act.leave()
	if err != nil {
		return c.wrap(op.String(), rootOf(a), NoTag, err)
	}
	return nil
}

// rootOf returns the root of a collective that has one.
func rootOf(a *driver.Coll) int {
	switch a.Kind {
	case driver.Bcast, driver.Gather, driver.Gatherv, driver.Scatter, driver.Scatterv, driver.Reduce:
		return a.Root
	}
	return NoPeer
}

// launch starts a non-blocking collective.
func (c *Comm) launch(a *driver.Coll) (*Request, error) {
	op := collOps[a.Kind]
	if err := c.usable("I" + op.String()); err != nil {
		return nil, err
	}
	act, err := c.quick(op, NoPeer, NoTag)
	if err != nil {
		return nil, err
	}
	defer act.leave()
	if !c.private {
		c.st.count(&c.entered, 1)
	}
	a.Comm = c.h
	if a.SendCounts != nil || a.RecvCounts != nil { // MPI keeps them
		mine := *a
		for _, v := range []*[]int32{&a.SendCounts, &a.SendDispls, &a.RecvCounts, &a.RecvDispls} {
			*v = slices.Clone(*v)
		}
		c.st.layouts.give(&mine)
	}
	r := c.newRequest(collRequest, op, NoPeer, NoTag, a.Recv)
	if err := r.begin(a); err != nil {
		return nil, c.wrap("I"+op.String(), NoPeer, NoTag, err)
	}
	r.activate()
	return r, nil
}

// begin starts a collective with everything that MPI keeps held in place.
func (r *Request) begin(a *driver.Coll) (err error) {
	r.hold(a.Send)
	r.hold(a.Recv)
	for _, v := range [][]int32{a.SendCounts, a.SendDispls, a.RecvCounts, a.RecvDispls} {
		if len(v) > 0 && r.c.st.info.Pin {
			r.pin.Pin(unsafe.SliceData(v))
			r.pinned = true
		}
	}
	if r.h, err = r.c.st.drv.Icollective(*a); err != nil {
		r.release()
		return err
	}
	r.state = active
	return nil
}

func (c *Comm) badLength(op opCode, text string, args ...any) error {
	return c.fail(op.String(), NoPeer, NoTag, ErrLength, fmt.Sprintf(text, args...))
}

func (c *Comm) checkRoot(op opCode, root int) error {
	if err := c.usable(op.String()); err != nil {
		return err
	}
	if root < 0 || root >= c.size {
		return c.fail(op.String(), root, NoTag, ErrRank, fmt.Sprintf("root of a communicator of size %d", c.size))
	}
	return nil
}

func (c *Comm) overlapping(op opCode) error {
	return c.fail(op.String(), NoPeer, NoTag, ErrOverlap,
		"give the part of dest that in-place input lies in, or separate memory")
}

// place decides whether a call is in place: src starts where in-place input lies
// in dest. Any other overlap is an error.
func (c *Comm) place(a *driver.Coll, dest, src, input []byte) error {
	switch {
	case sameMemory(src, input):
		a.InPlace, a.Send = true, nil
	case overlap(dest, src):
		return c.overlapping(collOps[a.Kind])
	default:
		a.Send = src
	}
	a.Recv = dest
	return nil
}

// Barrier returns when every rank of c has called it.
func (c *Comm) Barrier() error {
	return c.run(&driver.Coll{Kind: driver.Barrier})
}

// Ibarrier starts a barrier.
func (c *Comm) Ibarrier() (*Request, error) {
	return c.launch(&driver.Coll{Kind: driver.Barrier})
}

// Bcast copies root's buf to every rank's buf. All have the same length.
func Bcast[T Scalar](c *Comm, buf []T, root int) error {
	a := driver.Coll{Kind: driver.Bcast, Type: typeOf[T](), Count: len(buf), Root: root, Recv: bytesOf(buf)}
	if err := c.checkRoot(opBcast, root); err != nil {
		return err
	}
	return c.run(&a)
}

// Ibcast starts a broadcast.
func Ibcast[T Scalar](c *Comm, buf []T, root int) (*Request, error) {
	a := driver.Coll{Kind: driver.Bcast, Type: typeOf[T](), Count: len(buf), Root: root, Recv: bytesOf(buf)}
	if err := c.checkRoot(opBcast, root); err != nil {
		return nil, err
	}
	return c.launch(&a)
}

// mostElements is the longest vector that one reduction in MPI takes; a test
// makes it smaller.
var mostElements = math.MaxInt32 &^ 4095

// split runs a reduction of more elements than MPI can count in parts.
func (c *Comm) split(a *driver.Coll) error {
	most, size := mostElements, a.Type.Size()
	if a.Count <= most {
		return c.run(a)
	}
	for from := 0; from < a.Count; from += most {
		part := *a
		part.Count = min(most, a.Count-from)
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

// checkOp refuses operators that MPI does not define for a type.
func (c *Comm) checkOp(call opCode, t driver.Type, op Op) error {
	last := Bxor
	switch t {
	case driver.Float32, driver.Float64:
		last = Min
	case driver.Complex64, driver.Complex128:
		last = Prod
	}
	if op < Sum || op > last {
		return c.fail(call.String(), NoPeer, NoTag, ErrOp, fmt.Sprintf("operator %d", op))
	}
	return nil
}

// reduction fills the arguments of a reduction whose dest and src have the same
// length wherever dest matters.
func reduction[T Scalar](c *Comm, a *driver.Coll, dest, src []T, op Op) error {
	a.Type, a.Op, a.Count = typeOf[T](), driver.Op(op), len(src)
	return c.reduction(a, bytesOf(dest), bytesOf(src), op)
}

func (c *Comm) reduction(a *driver.Coll, dest, src []byte, op Op) error {
	if err := c.checkOp(collOps[a.Kind], a.Type, op); err != nil {
		return err
	}
	if a.Kind == driver.Reduce {
		if err := c.checkRoot(opReduce, a.Root); err != nil {
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
	if a.Kind == driver.Reduce && c.st.info.CopyReduce && sameMemory(dest, src) {
		a.Send, a.Recv = bytes.Clone(dest), dest
		return nil
	}
	return c.place(a, dest, src, dest)
}

// Allreduce combines the src of all ranks element by element into every rank's
// dest. dest may be src.
func Allreduce[T Scalar](c *Comm, dest, src []T, op Op) error {
	if len(src) <= mostElements {
		return c.allreduce(bytesOf(dest), bytesOf(src), typeOf[T](), op)
	}
	a := driver.Coll{Kind: driver.Allreduce}
	if err := reduction(c, &a, dest, src, op); err != nil {
		return err
	}
	return c.split(&a)
}

// allreduce is split and run for the collective that programs call most: with
// its arguments in registers it is a fifth faster for a few bytes.
func (c *Comm) allreduce(dest, src []byte, t driver.Type, op Op) error {
	if err := c.usable(opAllreduce.String()); err != nil {
		return err
	}
	if err := c.checkOp(opAllreduce, t, op); err != nil {
		return err
	}
	if len(dest) != len(src) {
		return c.badLength(opAllreduce, "dest has %d elements, src %d", len(dest)/t.Size(), len(src)/t.Size())
	}
	inPlace := sameMemory(dest, src)
	if !inPlace && overlap(dest, src) {
		return c.overlapping(opAllreduce)
	}
	a, err := c.enter(opAllreduce)
	if err != nil {
		return err
	}
	err = c.st.drv.Allreduce(dest, src, t, driver.Op(op), inPlace, c.h)
	a.leave()
	if err != nil {
		return c.wrap(opAllreduce.String(), NoPeer, NoTag, err)
	}
	return nil
}

// Iallreduce starts an Allreduce.
func Iallreduce[T Scalar](c *Comm, dest, src []T, op Op) (*Request, error) {
	a := driver.Coll{Kind: driver.Allreduce}
	if err := reduction(c, &a, dest, src, op); err != nil {
		return nil, err
	}
	return c.launchCounted(&a)
}

// Reduce combines the src of all ranks into root's dest, which may be its src.
// dest is not looked at on other ranks.
func Reduce[T Scalar](c *Comm, dest, src []T, op Op, root int) error {
	a := driver.Coll{Kind: driver.Reduce, Root: root}
	if err := reduction(c, &a, dest, src, op); err != nil {
		return err
	}
	return c.split(&a)
}

// Ireduce starts a Reduce.
func Ireduce[T Scalar](c *Comm, dest, src []T, op Op, root int) (*Request, error) {
	a := driver.Coll{Kind: driver.Reduce, Root: root}
	if err := reduction(c, &a, dest, src, op); err != nil {
		return nil, err
	}
	return c.launchCounted(&a)
}

// Scan combines the src of ranks 0 to the caller's into dest, which may be src.
func Scan[T Scalar](c *Comm, dest, src []T, op Op) error {
	a := driver.Coll{Kind: driver.Scan}
	if err := reduction(c, &a, dest, src, op); err != nil {
		return err
	}
	return c.split(&a)
}

// Iscan starts a Scan.
func Iscan[T Scalar](c *Comm, dest, src []T, op Op) (*Request, error) {
	a := driver.Coll{Kind: driver.Scan}
	if err := reduction(c, &a, dest, src, op); err != nil {
		return nil, err
	}
	return c.launchCounted(&a)
}

// Exscan combines the src of the ranks below the caller's into dest, which may be
// src. On rank 0 dest is left as it is.
func Exscan[T Scalar](c *Comm, dest, src []T, op Op) error {
	a := driver.Coll{Kind: driver.Exscan}
	if err := reduction(c, &a, dest, src, op); err != nil {
		return err
	}
	return c.split(&a)
}

// Iexscan starts an Exscan.
func Iexscan[T Scalar](c *Comm, dest, src []T, op Op) (*Request, error) {
	a := driver.Coll{Kind: driver.Exscan}
	if err := reduction(c, &a, dest, src, op); err != nil {
		return nil, err
	}
	return c.launchCounted(&a)
}

// launchCounted starts a reduction unless it is too large to be one call.
func (c *Comm) launchCounted(a *driver.Coll) (*Request, error) {
	if a.Count > mostElements {
		return nil, c.fail("I"+collOps[a.Kind].String(), NoPeer, NoTag, ErrTooLarge,
			fmt.Sprintf("%d elements", a.Count))
	}
	return c.launch(a)
}

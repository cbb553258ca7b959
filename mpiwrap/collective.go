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
		c.entered.Add(1)
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
		c.entered.Add(1)
	}
	a.Comm = c.h
	for _, v := range []*[]int32{&a.SendCounts, &a.SendDispls, &a.RecvCounts, &a.RecvDispls} {
		*v = slices.Clone(*v)
	}
	r := &Request{c: c, kind: collRequest, op: op, buf: a.Recv}
	if err := r.begin(a); err != nil {
		return nil, c.wrap("I"+op.String(), NoPeer, NoTag, err)
	}
	c.st.lock()
	c.st.pending.push(r)
	c.st.unlock()
	return r, nil
}

// begin starts a collective with everything that MPI keeps held in place.
func (r *Request) begin(a *driver.Coll) (err error) {
	r.hold(a.Send)
	r.hold(a.Recv)
	for _, v := range [][]int32{a.SendCounts, a.SendDispls, a.RecvCounts, a.RecvDispls} {
		if len(v) > 0 && r.c.st.info.Pin {
			r.pin.Pin(unsafe.SliceData(v))
		}
	}
	if r.h, err = r.c.st.drv.Icollective(*a); err != nil {
		r.pin.Unpin()
		return err
	}
	r.state = active
	return nil
}

func (c *Comm) badLength(op opCode, text string, args ...any) error {
	return c.fail(op.String(), NoPeer, NoTag, ErrLength, fmt.Sprintf(text, args...))
}

func (c *Comm) checkRoot(op opCode, root int) error {
	if root < 0 || root >= c.size {
		return c.fail(op.String(), root, NoTag, ErrRank, fmt.Sprintf("root of a communicator of size %d", c.size))
	}
	return nil
}

// place decides whether a call is in place: src starts where in-place input lies
// in dest. Any other overlap is an error.
func (c *Comm) place(a *driver.Coll, dest, src, input []byte) error {
	switch {
	case sameMemory(src, input):
		a.InPlace, a.Send = true, nil
	case overlap(dest, src):
		return c.fail(collOps[a.Kind].String(), NoPeer, NoTag, ErrOverlap,
			"give the part of dest that in-place input lies in, or separate memory")
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
func reduction[T Scalar](c *Comm, k driver.Kind, dest, src []T, op Op, root int) (driver.Coll, error) {
	a := driver.Coll{Kind: k, Type: typeOf[T](), Op: driver.Op(op), Count: len(src), Root: root}
	if err := c.checkOp(collOps[k], a.Type, op); err != nil {
		return a, err
	}
	if k == driver.Reduce {
		if err := c.checkRoot(opReduce, root); err != nil {
			return a, err
		}
		if c.rank != root {
			a.Send = bytesOf(src)
			return a, nil
		}
	}
	if len(dest) != len(src) {
		return a, c.badLength(collOps[k], "dest has %d elements, src %d", len(dest), len(src))
	}
	d := bytesOf(dest)
	if k == driver.Reduce && c.st.info.CopyReduce && sameMemory(d, bytesOf(src)) {
		a.Send, a.Recv = bytes.Clone(d), d
		return a, nil
	}
	return a, c.place(&a, d, bytesOf(src), d)
}

// Allreduce combines the src of all ranks element by element into every rank's
// dest. dest may be src.
func Allreduce[T Scalar](c *Comm, dest, src []T, op Op) error {
	a, err := reduction(c, driver.Allreduce, dest, src, op, 0)
	if err != nil {
		return err
	}
	return c.split(&a)
}

// Iallreduce starts an Allreduce.
func Iallreduce[T Scalar](c *Comm, dest, src []T, op Op) (*Request, error) {
	a, err := reduction(c, driver.Allreduce, dest, src, op, 0)
	if err != nil {
		return nil, err
	}
	return c.launchCounted(&a)
}

// Reduce combines the src of all ranks into root's dest, which may be its src.
// dest is not looked at on other ranks.
func Reduce[T Scalar](c *Comm, dest, src []T, op Op, root int) error {
	a, err := reduction(c, driver.Reduce, dest, src, op, root)
	if err != nil {
		return err
	}
	return c.split(&a)
}

// Ireduce starts a Reduce.
func Ireduce[T Scalar](c *Comm, dest, src []T, op Op, root int) (*Request, error) {
	a, err := reduction(c, driver.Reduce, dest, src, op, root)
	if err != nil {
		return nil, err
	}
	return c.launchCounted(&a)
}

// Scan combines the src of ranks 0 to the caller's into dest, which may be src.
func Scan[T Scalar](c *Comm, dest, src []T, op Op) error {
	a, err := reduction(c, driver.Scan, dest, src, op, 0)
	if err != nil {
		return err
	}
	return c.split(&a)
}

// Iscan starts a Scan.
func Iscan[T Scalar](c *Comm, dest, src []T, op Op) (*Request, error) {
	a, err := reduction(c, driver.Scan, dest, src, op, 0)
	if err != nil {
		return nil, err
	}
	return c.launchCounted(&a)
}

// Exscan combines the src of the ranks below the caller's into dest, which may be
// src. On rank 0 dest is left as it is.
func Exscan[T Scalar](c *Comm, dest, src []T, op Op) error {
	a, err := reduction(c, driver.Exscan, dest, src, op, 0)
	if err != nil {
		return err
	}
	return c.split(&a)
}

// Iexscan starts an Exscan.
func Iexscan[T Scalar](c *Comm, dest, src []T, op Op) (*Request, error) {
	a, err := reduction(c, driver.Exscan, dest, src, op, 0)
	if err != nil {
		return nil, err
	}
	return c.launchCounted(&a)
}

// launchCounted starts a reduction unless it is too large to be one call.
func (c *Comm) launchCounted(a *driver.Coll) (*Request, error) {
	if a.Count > mostElements {
		return nil, c.fail("I"+collOps[a.Kind].String(), NoPeer, NoTag, ErrTooLarge, fmt.Sprintf("%d elements", a.Count))
	}
	return c.launch(a)
}

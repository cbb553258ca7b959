package mpiwrap

import (
	"bytes"
	"fmt"
	"math"

	"github.com/holdfast-hpc/holdfast/mpiwrap/internal/call"
	"github.com/holdfast-hpc/holdfast/mpiwrap/internal/driver"
)

// layout checks counts and displacements against a slice of n elements and
// translates them.
func (c *Comm) layout(op call.Op, what string, counts, displs []int, n int) (cs, ds []int32, err error) {
	if err := c.channel().Usable(op.String()); err != nil {
		return nil, nil, err
	}
	if len(counts) != c.size || displs != nil && len(displs) != c.size {
		return nil, nil, c.badLength(op, "%s: %d counts and %d displacements for %d ranks",
			what, len(counts), len(displs), c.size)
	}
	both := make([]int32, 2*c.size)
	cs, ds = both[:c.size:c.size], both[c.size:]
	at := 0
	for i, k := range counts {
		if displs != nil {
			at = displs[i]
		}
		if k < 0 || at < 0 || at+k > n {
			return nil, nil, c.badLength(op, "%s: part of rank %d is elements %d to %d of %d", what, i, at, at+k, n)
		}
		if k > math.MaxInt32 || at > math.MaxInt32 {
			return nil, nil, c.ch.Fail(op.String(), i, NoTag, ErrTooLarge, fmt.Sprintf("%s: %d elements at %d", what, k,
				at))
		}
		cs[i], ds[i] = int32(k), int32(at)
		at += k
	}
	return cs, ds, nil
}

func gatheringv[T Scalar](c *Comm, k driver.Kind, dest []T, counts, displs []int, src []T, root int) (driver.Coll,
	error) {
	a := driver.Coll{Kind: k, Type: typeOf[T](), Count: len(src), Root: root}
	op := collOps[k]
	if k == driver.Gatherv {
		if err := c.checkRoot(op, root); err != nil {
			return a, err
		}
		if c.rank != root {
			a.Send = bytesOf(src)
			return a, nil
		}
	}
	var err error
	if a.RecvCounts, a.RecvDispls, err = c.layout(op, "dest", counts, displs, len(dest)); err != nil {
		return a, err
	}
	if counts[c.rank] != len(src) {
		return a, c.badLength(op, "src has %d elements, counts[%d] says %d", len(src), c.rank, counts[c.rank])
	}
	own := dest[a.RecvDispls[c.rank]:]
	return a, c.place(&a, bytesOf(dest), bytesOf(src), bytesOf(own[:len(src)]))
}

// Gatherv collects counts[i] elements from rank i at displs[i] of root's dest. Other ranks' dest, counts and displs are
// ignored. In place: root's src is its own part of dest. Collective over c.
func Gatherv[T Scalar](c *Comm, dest []T, counts, displs []int, src []T, root int) error {
	return c.runChecked(gatheringv(c, driver.Gatherv, dest, counts, displs, src, root))
}

// Igatherv starts a Gatherv. Collective over c.
func Igatherv[T Scalar](c *Comm, dest []T, counts, displs []int, src []T, root int) (*Request, error) {
	return c.launchChecked(gatheringv(c, driver.Gatherv, dest, counts, displs, src, root))
}

// Allgatherv collects counts[i] elements from rank i at displs[i] of every rank's dest. counts are the same everywhere.
// In place: src is the caller's part of dest. Collective over c.
func Allgatherv[T Scalar](c *Comm, dest []T, counts, displs []int, src []T) error {
	return c.runChecked(gatheringv(c, driver.Allgatherv, dest, counts, displs, src, 0))
}

// Iallgatherv starts an Allgatherv. Collective over c.
func Iallgatherv[T Scalar](c *Comm, dest []T, counts, displs []int, src []T) (*Request, error) {
	return c.launchChecked(gatheringv(c, driver.Allgatherv, dest, counts, displs, src, 0))
}

func scatteringv[T Scalar](c *Comm, dest, src []T, counts, displs []int, root int) (driver.Coll, error) {
	a := driver.Coll{Kind: driver.Scatterv, Type: typeOf[T](), Count: len(dest), Root: root, Recv: bytesOf(dest)}
	if err := c.checkRoot(call.Scatterv, root); err != nil {
		return a, err
	}
	if c.rank != root {
		return a, nil
	}
	var err error
	if a.SendCounts, a.SendDispls, err = c.layout(call.Scatterv, "src", counts, displs, len(src)); err != nil {
		return a, err
	}
	if counts[c.rank] != len(dest) {
		return a, c.badLength(call.Scatterv, "dest has %d elements, counts[%d] says %d", len(dest), c.rank,
			counts[c.rank])
	}
	return a, c.placeAtRoot(&a, bytesOf(src), bytesOf(src[a.SendDispls[c.rank]:]))
}

// placeAtRoot decides whether the root of a scatter has its own part of src in place.
func (c *Comm) placeAtRoot(a *driver.Coll, src, own []byte) error {
	a.Send, a.InPlace = src, sameMemory(a.Recv, own)
	if !a.InPlace && driver.Overlap(src, a.Recv) {
		return c.ch.Fail(collOps[a.Kind].String(), NoPeer, NoTag, ErrOverlap, "")
	}
	return nil
}

// Scatterv deals counts[i] elements at displs[i] of root's src to rank i's dest. Other ranks' src, counts and displs
// are ignored. In place: root's dest is its own part of src. Collective over c.
func Scatterv[T Scalar](c *Comm, dest, src []T, counts, displs []int, root int) error {
	return c.runChecked(scatteringv(c, dest, src, counts, displs, root))
}

// Iscatterv starts a Scatterv. Collective over c.
func Iscatterv[T Scalar](c *Comm, dest, src []T, counts, displs []int, root int) (*Request, error) {
	return c.launchChecked(scatteringv(c, dest, src, counts, displs, root))
}

func exchangingv[T Scalar](c *Comm, dest []T, rcounts, rdispls []int, src []T, scounts, sdispls []int) (a driver.Coll,
	err error) {
	a = driver.Coll{Kind: driver.Alltoallv, Type: typeOf[T]()}
	if a.RecvCounts, a.RecvDispls, err = c.layout(call.Alltoallv, "dest", rcounts, rdispls, len(dest)); err != nil {
		return a, err
	}
	d, s := bytesOf(dest), bytesOf(src)
	if sameMemory(d, s) || len(d)+len(s) == 0 && scounts == nil {
		s, scounts, sdispls = bytes.Clone(s), rcounts, rdispls
	}
	if a.SendCounts, a.SendDispls, err = c.layout(call.Alltoallv, "src", scounts, sdispls, len(src)); err != nil {
		return a, err
	}
	if scounts[c.rank] != rcounts[c.rank] {
		return a, c.badLength(call.Alltoallv, "rank %d sends itself %d elements and expects %d",
			c.rank, scounts[c.rank], rcounts[c.rank])
	}
	return a, c.place(&a, d, s, nil)
}

// Alltoallv sends scounts[i] elements at sdispls[i] of src to rank i and stores rcounts[j] elements from rank j at
// rdispls[j] of dest. When dest and src are the same memory, rcounts and rdispls describe both, at the cost of a copy.
// Collective over c.
func Alltoallv[T Scalar](c *Comm, dest []T, rcounts, rdispls []int, src []T, scounts, sdispls []int) error {
	return c.runChecked(exchangingv(c, dest, rcounts, rdispls, src, scounts, sdispls))
}

// Ialltoallv starts an Alltoallv. Collective over c.
func Ialltoallv[T Scalar](c *Comm, dest []T, rcounts, rdispls []int, src []T, scounts, sdispls []int) (*Request,
	error) {
	return c.launchChecked(exchangingv(c, dest, rcounts, rdispls, src, scounts, sdispls))
}

func reduceParts[T Scalar](c *Comm, dest, src []T, counts []int, op Op) (driver.Coll, error) {
	a := driver.Coll{Kind: driver.ReduceScatter, Type: typeOf[T](), Op: driver.Op(op), Count: len(src)}
	if err := c.checkOp(call.ReduceScatter, a.Type, op); err != nil {
		return a, err
	}
	var err error
	if a.RecvCounts, _, err = c.layout(call.ReduceScatter, "src", counts, nil, len(src)); err != nil {
		return a, err
	}
	total := 0
	for _, k := range counts {
		total += k
	}
	if total != len(src) || counts[c.rank] != len(dest) {
		return a, c.badLength(call.ReduceScatter,
			"src has %d elements, counts sum to %d; dest has %d, counts[%d] says %d",
			len(src), total, len(dest), c.rank, counts[c.rank])
	}
	if sameMemory(bytesOf(dest), bytesOf(src)) {
		a.InPlace, a.Recv = true, bytesOf(src)
		return a, nil
	}
	return a, c.place(&a, bytesOf(dest), bytesOf(src), nil)
}

// ReduceScatter combines the src of all ranks and gives rank i its counts[i] elements in dest. counts are the same
// everywhere. In place: dest is the beginning of src, whose rest is undefined afterwards. Collective over c.
func ReduceScatter[T Scalar](c *Comm, dest, src []T, counts []int, op Op) error {
	return c.runChecked(reduceParts(c, dest, src, counts, op))
}

// IreduceScatter starts a ReduceScatter. Collective over c.
func IreduceScatter[T Scalar](c *Comm, dest, src []T, counts []int, op Op) (*Request, error) {
	return c.launchChecked(reduceParts(c, dest, src, counts, op))
}

// blockOf returns the i-th of n equal parts of s.
func blockOf[T any](s []T, i, n int) []T {
	b := len(s) / n
	return s[i*b : (i+1)*b]
}

func gathering[T Scalar](c *Comm, k driver.Kind, dest, src []T, root int) (driver.Coll, error) {
	a := driver.Coll{Kind: k, Type: typeOf[T](), Count: len(src), Root: root}
	if k == driver.Gather {
		if err := c.checkRoot(call.Gather, root); err != nil {
			return a, err
		}
		if c.rank != root {
			a.Send = bytesOf(src)
			return a, nil
		}
	}
	if err := c.channel().Usable(collOps[k].String()); err != nil {
		return a, err
	}
	if len(dest) != len(src)*c.size {
		return a, c.badLength(collOps[k], "dest has %d elements, want %d from each of %d ranks", len(dest), len(src),
			c.size)
	}
	return a, c.place(&a, bytesOf(dest), bytesOf(src), bytesOf(blockOf(dest, c.rank, c.size)))
}

// Gather collects every rank's src, all of one length, in rank order in root's dest. Other ranks' dest is ignored. In
// place: root's src is its own part of dest. Collective over c.
func Gather[T Scalar](c *Comm, dest, src []T, root int) error {
	return c.runChecked(gathering(c, driver.Gather, dest, src, root))
}

// Igather starts a Gather. Collective over c.
func Igather[T Scalar](c *Comm, dest, src []T, root int) (*Request, error) {
	return c.launchChecked(gathering(c, driver.Gather, dest, src, root))
}

// Allgather collects every rank's src, all of one length, in rank order in every rank's dest. In place: src is the
// caller's own part of dest. Collective over c.
func Allgather[T Scalar](c *Comm, dest, src []T) error {
	return c.runChecked(gathering(c, driver.Allgather, dest, src, 0))
}

// Iallgather starts an Allgather. Collective over c.
func Iallgather[T Scalar](c *Comm, dest, src []T) (*Request, error) {
	return c.launchChecked(gathering(c, driver.Allgather, dest, src, 0))
}

func scattering[T Scalar](c *Comm, dest, src []T, root int) (driver.Coll, error) {
	a := driver.Coll{Kind: driver.Scatter, Type: typeOf[T](), Count: len(dest), Root: root, Recv: bytesOf(dest)}
	if err := c.checkRoot(call.Scatter, root); err != nil {
		return a, err
	}
	if c.rank != root {
		return a, nil
	}
	if len(src) != len(dest)*c.size {
		return a, c.badLength(call.Scatter, "src has %d elements, want %d for each of %d ranks", len(src), len(dest),
			c.size)
	}
	return a, c.placeAtRoot(&a, bytesOf(src), bytesOf(blockOf(src, c.rank, c.size)))
}

// Scatter deals root's src in equal parts to every rank's dest. Other ranks' src is ignored. In place: root's dest is
// its own part of src. Collective over c.
func Scatter[T Scalar](c *Comm, dest, src []T, root int) error {
	return c.runChecked(scattering(c, dest, src, root))
}

// Iscatter starts a Scatter. Collective over c.
func Iscatter[T Scalar](c *Comm, dest, src []T, root int) (*Request, error) {
	return c.launchChecked(scattering(c, dest, src, root))
}

func exchanging[T Scalar](c *Comm, dest, src []T) (driver.Coll, error) {
	a := driver.Coll{Kind: driver.Alltoall, Type: typeOf[T]()}
	if err := c.channel().Usable(call.Alltoall.String()); err != nil {
		return a, err
	}
	a.Count = len(src) / c.size
	if len(dest) != len(src) || len(src)%c.size != 0 {
		return a, c.badLength(call.Alltoall, "dest has %d and src %d elements, want equal multiples of %d",
			len(dest), len(src), c.size)
	}
	d, s := bytesOf(dest), bytesOf(src)
	if sameMemory(d, s) {
		s = bytes.Clone(s)
	}
	return a, c.place(&a, d, s, nil)
}

// Alltoall sends the i-th of Size equal parts of src to rank i and stores the part from rank j as the j-th part of
// dest. dest may be src; that costs a copy. Collective over c.
func Alltoall[T Scalar](c *Comm, dest, src []T) error {
	return c.runChecked(exchanging(c, dest, src))
}

// Ialltoall starts an Alltoall. Collective over c.
func Ialltoall[T Scalar](c *Comm, dest, src []T) (*Request, error) {
	return c.launchChecked(exchanging(c, dest, src))
}

func reduceBlock[T Scalar](c *Comm, dest, src []T, op Op) (driver.Coll, error) {
	a := driver.Coll{Kind: driver.ReduceScatterBlock, Type: typeOf[T](), Op: driver.Op(op), Count: len(dest)}
	if err := c.checkOp(call.ReduceScatterBlock, a.Type, op); err != nil {
		return a, err
	}
	if err := c.channel().Usable(call.ReduceScatterBlock.String()); err != nil {
		return a, err
	}
	if len(src) != len(dest)*c.size {
		return a, c.badLength(call.ReduceScatterBlock, "src has %d elements, want %d for each of %d ranks",
			len(src), len(dest), c.size)
	}
	if a.Count > mostElements {
		return a, c.ch.Fail("ReduceScatterBlock", NoPeer, NoTag, ErrTooLarge, fmt.Sprintf("%d elements", a.Count))
	}
	if sameMemory(bytesOf(dest), bytesOf(src)) {
		a.InPlace, a.Recv = true, bytesOf(src)
		return a, nil
	}
	return a, c.place(&a, bytesOf(dest), bytesOf(src), nil)
}

// ReduceScatterBlock combines the src of all ranks and gives rank i the i-th of Size equal parts in dest. In place:
// dest is the beginning of src, whose rest is undefined afterwards. Collective over c.
func ReduceScatterBlock[T Scalar](c *Comm, dest, src []T, op Op) error {
	return c.runChecked(reduceBlock(c, dest, src, op))
}

// IreduceScatterBlock starts a ReduceScatterBlock. Collective over c.
func IreduceScatterBlock[T Scalar](c *Comm, dest, src []T, op Op) (*Request, error) {
	return c.launchChecked(reduceBlock(c, dest, src, op))
}

package mpiwrap

import (
	"bytes"

	"github.com/holdfast-hpc/holdfast/mpiwrap/internal/call"
	"github.com/holdfast-hpc/holdfast/mpiwrap/internal/driver"
)

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

// Gather collects every rank's src, all of one length, in rank order in root's
// dest. Other ranks' dest is ignored. In place: root's src is its own part of dest.
func Gather[T Scalar](c *Comm, dest, src []T, root int) error {
	return c.runChecked(gathering(c, driver.Gather, dest, src, root))
}

// Igather starts a Gather.
func Igather[T Scalar](c *Comm, dest, src []T, root int) (*Request, error) {
	return c.launchChecked(gathering(c, driver.Gather, dest, src, root))
}

// Allgather collects every rank's src, all of one length, in rank order in every
// rank's dest. In place: src is the caller's own part of dest.
func Allgather[T Scalar](c *Comm, dest, src []T) error {
	return c.runChecked(gathering(c, driver.Allgather, dest, src, 0))
}

// Iallgather starts an Allgather.
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
	a.Send = bytesOf(src)
	if sameMemory(a.Recv, bytesOf(blockOf(src, c.rank, c.size))) {
		a.InPlace = true
	} else if driver.Overlap(a.Send, a.Recv) {
		return a, c.ch.Fail("Scatter", NoPeer, NoTag, ErrOverlap, "")
	}
	return a, nil
}

// Scatter deals root's src in equal parts to every rank's dest. Other ranks' src is
// ignored. In place: root's dest is its own part of src.
func Scatter[T Scalar](c *Comm, dest, src []T, root int) error {
	return c.runChecked(scattering(c, dest, src, root))
}

// Iscatter starts a Scatter.
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

// Alltoall sends the i-th of Size equal parts of src to rank i and stores what
// came from rank j as the j-th part of dest. dest may be src; that
// costs a copy.
func Alltoall[T Scalar](c *Comm, dest, src []T) error {
	return c.runChecked(exchanging(c, dest, src))
}

// Ialltoall starts an Alltoall.
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
	if sameMemory(bytesOf(dest), bytesOf(src)) {
		a.InPlace, a.Recv = true, bytesOf(src)
		return a, nil
	}
	return a, c.place(&a, bytesOf(dest), bytesOf(src), nil)
}

// ReduceScatterBlock combines the src of all ranks and gives rank i the i-th of
// Size equal parts in dest. In place: dest is the beginning of src, whose rest is
// undefined afterwards.
func ReduceScatterBlock[T Scalar](c *Comm, dest, src []T, op Op) error {
	return c.runChecked(reduceBlock(c, dest, src, op))
}

// IreduceScatterBlock starts a ReduceScatterBlock.
func IreduceScatterBlock[T Scalar](c *Comm, dest, src []T, op Op) (*Request, error) {
	return c.launchChecked(reduceBlock(c, dest, src, op))
}

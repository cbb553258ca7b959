package mpiwrap

import (
	"errors"
	"fmt"
	"unsafe"

	"github.com/holdfast-hpc/holdfast/mpiwrap/internal/call"
	"github.com/holdfast-hpc/holdfast/mpiwrap/internal/devmsg"
	"github.com/holdfast-hpc/holdfast/mpiwrap/internal/driver"
)

// BcastDevice copies root's range to every rank's. All have the same length. Collective over c.
func BcastDevice(c *Comm, r DeviceRange, root int) error {
	if err := c.checkRoot(call.Bcast, root); err != nil {
		return err
	}
	in, out := r, r
	if c.rank == root {
		out = nil
	} else {
		in = nil
	}
	bcast := func(b []byte) error {
		return c.run(&driver.Coll{Kind: driver.Bcast, Type: driver.Uint8, Count: len(b), Root: root, Recv: b})
	}
	done, err := c.lent(call.Bcast, out, in, func(d, s []byte) error {
		all := d
		if c.rank == root {
			all = s
		}
		for len(all) > 0 { // as often as ranks do that have it in pieces
			n := min(len(all), devmsg.VectorBytes)
			if err := bcast(all[:n]); err != nil {
				return err
			}
			all = all[n:]
		}
		return nil
	})
	if done {
		return err
	}
	return errors.Join(err, c.inPieces(call.Bcast, out, in, r.Bytes(), bcast))
}

// usableWith returns an error if a collective cannot be called with ranges, of which either may be nil.
func (c *Comm) usableWith(op call.Op, dest, src DeviceRange) error {
	if err := c.channel().Usable(op.String()); err != nil {
		return err
	}
	for _, r := range []DeviceRange{dest, src} {
		if r != nil && r.Bytes() < 0 {
			return c.badLength(op, "a range has %d bytes", r.Bytes())
		}
	}
	return nil
}

// lent is Rank.Lent. An error with false does not keep the rank from the collective.
func (c *Comm) lent(op call.Op, dest, src DeviceRange, do func(dest, src []byte) error) (lent bool, err error) {
	if err := c.usableWith(op, dest, src); err != nil {
		return true, err
	}
	lent, err = c.st.Device.Lent(dest, src, do)
	if !lent {
		err = c.deviceFailed(op, err)
	}
	return lent, err
}

// AllreduceDevice combines the src of all ranks, vectors of T, element by element into every rank's dest, which may be
// src. Long vectors are combined in parts of 4 MiB. Results of floating point may differ in the last bits from results
// of Allreduce, but not from run to run. Collective over c.
func AllreduceDevice[T Scalar](c *Comm, dest, src DeviceRange, op Op) error {
	if err := c.usableWith(call.Allreduce, dest, src); err != nil {
		return err
	}
	if size := sizeOf[T](); dest.Bytes() != src.Bytes() || src.Bytes()%size != 0 {
		return c.badLength(call.Allreduce, "dest has %d bytes, src %d, an element %d", dest.Bytes(), src.Bytes(), size)
	}
	if n := dest.Common(src); n > 0 && n < src.Bytes() {
		return c.overlapping(call.Allreduce)
	}
	return c.inPieces(call.Allreduce, dest, src, src.Bytes(), func(b []byte) error {
		v := elements[T](b)
		return Allreduce(c, v, v, op)
	})
}

// inPieces brings n bytes piece by piece from src, if there is one, through do to dest, if there
// is one: the next piece is read and the last one written meanwhile. do is called on all ranks
// as often, whatever fails.
func (c *Comm) inPieces(op call.Op, dest, src DeviceRange, n int, do func(b []byte) error) error {
	var failed error
	fail := func(err error) {
		if failed == nil && err != nil {
			failed = c.ch.Wrap(op.String(), NoPeer, NoTag, err)
		}
	}
	some := dest
	if some == nil {
		some = src
	}
	var room [3]*devmsg.Block
	for i := range min(len(room), (n+devmsg.VectorBytes-1)/devmsg.VectorBytes) {
		b, err := c.st.Device.Take(some, min(n, devmsg.VectorBytes))
		if err != nil {
			return c.ch.Wrap(op.String(), NoPeer, NoTag, err)
		}
		defer b.Free()
		room[i] = b
	}
	move := func() error {
		p := pieces{dest: dest, src: src, n: n, room: room[:], fail: fail}
		return p.run(do)
	}
	if dest == nil || n == 0 {
		return errors.Join(move(), failed)
	}
	begun := false
	err := dest.Whole(func() error { begun = true; return move() })
	if !begun { // the others wait for this rank
		fail(err)
		dest, err = nil, nil
		err = move()
	}
	return errors.Join(err, failed)
}

// pieces is one inPieces at work.
type pieces struct {
	dest, src DeviceRange
	n         int
	room      []*devmsg.Block
	fail      func(error)

	mark   any
	writes [3]func() error // from the block of that number
	reads  [3]func() error
}

func (p *pieces) at(i int) []byte {
	return p.room[i%len(p.room)].Bytes[:min(devmsg.VectorBytes, p.n-i*devmsg.VectorBytes)]
}

func end(wait *func() error) (err error) {
	if *wait != nil {
		err = (*wait)()
	}
	*wait = nil
	return err
}

// read begins to read piece i, when its block is free.
func (p *pieces) read(i int) {
	k := i % len(p.room)
	p.fail(end(&p.writes[k]))
	if p.src == nil || i*devmsg.VectorBytes >= p.n {
		return
	}
	waits, err := p.src.ReadPieces(i*devmsg.VectorBytes, [][]byte{p.at(i)})
	if err != nil {
		p.fail(err)
		return
	}
	p.reads[k] = waits[0]
}

func (p *pieces) run(do func(b []byte) error) error {
	if p.dest != nil {
		var err error
		p.mark, err = p.dest.Mark()
		p.fail(err)
	}
	p.read(0)
	for i := 0; i*devmsg.VectorBytes < p.n; i++ {
		k := i % len(p.room)
		p.fail(end(&p.reads[k]))
		p.read(i + 1)
		b := p.at(i)
		if err := do(b); err != nil {
			p.endAll()
			return err
		}
		if p.dest == nil {
			continue
		}
		wait, err := p.dest.WritePiece(p.mark, i*devmsg.VectorBytes, b)
		p.fail(err)
		p.writes[k] = wait
	}
	p.endAll()
	return nil
}

func (p *pieces) endAll() {
	for k := range p.room {
		p.fail(end(&p.reads[k]))
		p.fail(end(&p.writes[k]))
	}
}

// AlltoallDevice sends the i-th of equal parts of src to rank i and stores the part from rank j in the j-th of equal
// parts of dest. Collective over c.
func AlltoallDevice(c *Comm, dest, src DeviceRange) error {
	if err := c.usableWith(call.Alltoall, dest, src); err != nil {
		return err
	}
	if dest.Bytes() != src.Bytes() || src.Bytes()%c.size != 0 {
		return c.badLength(call.Alltoall, "dest has %d bytes, src %d: not the equal parts of %d ranks", dest.Bytes(),
			src.Bytes(), c.size)
	}
	return c.moved(call.Alltoall, dest, src, false, func(d, s []byte) error { return Alltoall(c, d, s) })
}

// AlltoallvDevice is AlltoallDevice with counts and displacements in elements; see Alltoallv. Gaps between the parts of
// dest are not written. Collective over c.
func AlltoallvDevice[T Scalar](c *Comm, dest DeviceRange, rcounts, rdispls []int, src DeviceRange, scounts,
	sdispls []int) error {
	return c.moved(call.Alltoallv, dest, src, true, func(d, s []byte) error {
		return Alltoallv(c, elements[T](d), rcounts, rdispls, elements[T](s), scounts, sdispls)
	})
}

// elements returns those that lie whole in b, which begins at a boundary of any.
func elements[T Scalar](b []byte) []T {
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/sizeOf[T]())
}

// AllgatherDevice collects the src of all ranks in rank order in every rank's dest. Collective over c.
func AllgatherDevice(c *Comm, dest, src DeviceRange) error {
	return c.moved(call.Allgather, dest, src, false, func(d, s []byte) error { return Allgather(c, d, s) })
}

// moved calls do with the device memory itself where that is possible, or has it go through host memory.
func (c *Comm) moved(op call.Op, dest, src DeviceRange, keep bool, do func(d, s []byte) error) error {
	done, err := c.lent(op, dest, src, do)
	if done {
		return err
	}
	return errors.Join(err, c.throughHost(op, dest, src, keep, do))
}

// throughHost reads all of src, calls do, and writes all of dest. With keep do leaves parts of dest as they
// are.
func (c *Comm) throughHost(op call.Op, dest, src DeviceRange, keep bool, do func(d, s []byte) error) error {
	if err := c.usableWith(op, dest, src); err != nil {
		return err
	}
	in, err := c.st.Device.Take(src, src.Bytes())
	if err != nil {
		return c.ch.Wrap(op.String(), NoPeer, NoTag, err)
	}
	defer in.Free()
	out, err := c.st.Device.Take(dest, dest.Bytes())
	if err != nil {
		return c.ch.Wrap(op.String(), NoPeer, NoTag, err)
	}
	defer out.Free()
	failed := errors.Join(dest.Check(), src.Read(in.Bytes))
	if keep {
		failed = errors.Join(failed, dest.Read(out.Bytes))
	}
	if err := do(out.Bytes, in.Bytes); err != nil { // also after a failure: the others wait
		return err
	}
	if failed == nil && len(out.Bytes) > 0 {
		failed = dest.Whole(func() error { return dest.Write(out.Bytes) })
	}
	return c.deviceFailed(op, failed)
}

// deviceFailed returns the error of a collective on the rank whose device failed, or nil.
func (c *Comm) deviceFailed(op call.Op, failed error) error {
	if failed == nil {
		return nil
	}
	return c.ch.Wrap(op.String(), NoPeer, NoTag, fmt.Errorf("device memory: %w", failed))
}

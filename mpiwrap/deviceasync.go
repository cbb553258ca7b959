package mpiwrap

import (
	"errors"

	"github.com/holdfast-hpc/holdfast/mpiwrap/internal/call"
	"github.com/holdfast-hpc/holdfast/mpiwrap/internal/driver"
)

// SendInitDevice prepares a send of the range that Start may start repeatedly; see SendInit. What
// each Start sends is what the queue was given before it, as with IsendDevice.
func SendInitDevice(c *Comm, src DeviceRange, dest, tag int) (*Request, error) {
	r, err := c.channel().SendInitDevice(call.Isend, driver.Standard, src, dest, tag)
	return (*Request)(r), err
}

// SsendInitDevice prepares a synchronous send of the range; see SendInitDevice.
func SsendInitDevice(c *Comm, src DeviceRange, dest, tag int) (*Request, error) {
	r, err := c.channel().SendInitDevice(call.Issend, driver.Synchronous, src, dest, tag)
	return (*Request)(r), err
}

// RecvInitDevice prepares a receive into the range that Start may start repeatedly; see RecvInit.
// Protected, with its buffer part of a protected device, it is pending again after a restart.
func RecvInitDevice(c *Comm, dest DeviceRange, source, tag int) (*Request, error) {
	r, err := c.channel().RecvInitDevice(dest, source, tag)
	return (*Request)(r), err
}

// Non-blocking collectives of device memory. A call reads its input after what the queue was
// given, and waits for the device to have done that; afterwards the input may be overwritten. The
// Wait, Test or drain that finds the collective complete writes to the device. Until then the
// memory that is received into belongs to the library. Both pass through host memory of the same
// length. An error of one rank's device is returned by its Wait.

// IbcastDevice starts a BcastDevice.
func IbcastDevice(c *Comm, r DeviceRange, root int) (*Request, error) {
	if err := c.checkRoot(call.Bcast, root); err != nil {
		return nil, err
	}
	if c.rank == root {
		return c.launchStaged(call.Bcast, nil, r, false, func(_, b []byte) (*Request, error) {
			return Ibcast(c, b, root)
		})
	}
	return c.launchStaged(call.Bcast, r, nil, false, func(b, _ []byte) (*Request, error) { return Ibcast(c, b, root) })
}

// IallreduceDevice starts an AllreduceDevice. Vectors are combined whole: results of floating
// point may differ in the last bits from those of AllreduceDevice.
func IallreduceDevice[T Scalar](c *Comm, dest, src DeviceRange, op Op) (*Request, error) {
	if err := checkAllreduce[T](c, dest, src); err != nil {
		return nil, err
	}
	return c.launchStaged(call.Allreduce, dest, src, false, func(d, s []byte) (*Request, error) {
		return Iallreduce(c, elements[T](d), elements[T](s), op)
	})
}

// IallgatherDevice starts an AllgatherDevice.
func IallgatherDevice(c *Comm, dest, src DeviceRange) (*Request, error) {
	return c.launchStaged(call.Allgather, dest, src, false, func(d, s []byte) (*Request, error) {
		return Iallgather(c, d, s)
	})
}

// IalltoallDevice starts an AlltoallDevice.
func IalltoallDevice(c *Comm, dest, src DeviceRange) (*Request, error) {
	if err := checkAlltoall(c, dest, src); err != nil {
		return nil, err
	}
	return c.launchStaged(call.Alltoall, dest, src, false, func(d, s []byte) (*Request, error) {
		return Ialltoall(c, d, s)
	})
}

// IalltoallvDevice starts an AlltoallvDevice.
func IalltoallvDevice[T Scalar](c *Comm, dest DeviceRange, rcounts, rdispls []int, src DeviceRange, scounts,
	sdispls []int) (*Request, error) {
	return c.launchStaged(call.Alltoallv, dest, src, true, func(d, s []byte) (*Request, error) {
		return Ialltoallv(c, elements[T](d), rcounts, rdispls, elements[T](s), scounts, sdispls)
	})
}

// IneighborAllgatherDevice starts a NeighborAllgatherDevice.
func IneighborAllgatherDevice(n *Neighborhood, dest, src DeviceRange) (*Request, error) {
	return n.c.launchStaged(call.Neighbor, dest, src, true, func(d, s []byte) (*Request, error) {
		return IneighborAllgather(n, d, s)
	})
}

// IneighborAlltoallDevice starts a NeighborAlltoallDevice.
func IneighborAlltoallDevice(n *Neighborhood, dest, src DeviceRange) (*Request, error) {
	return n.c.launchStaged(call.Neighbor, dest, src, true, func(d, s []byte) (*Request, error) {
		return IneighborAlltoall(n, d, s)
	})
}

// IneighborAlltoallvDevice starts a NeighborAlltoallvDevice.
func IneighborAlltoallvDevice(n *Neighborhood, dest DeviceRange, rcounts, rdispls []int, src DeviceRange, scounts,
	sdispls []int) (*Request, error) {
	return n.c.launchStaged(call.Neighbor, dest, src, true, func(d, s []byte) (*Request, error) {
		return IneighborAlltoallv(n, d, rcounts, rdispls, s, scounts, sdispls)
	})
}

// launchStaged reads all of src, if there is one, and has start begin a collective; when that is
// complete it writes all of dest, if there is one. With keep the collective leaves parts of dest
// as they are.
func (c *Comm) launchStaged(op call.Op, dest, src DeviceRange, keep bool,
	start func(d, s []byte) (*Request, error)) (*Request, error) {
	if err := c.usableWith(op, "I"+op.String(), dest, src); err != nil {
		return nil, err
	}
	in, err1 := c.takeFor(src)
	out, err2 := c.takeFor(dest)
	free := func() { in.Free(); out.Free() }
	if err := errors.Join(err1, err2); err != nil {
		free()
		return nil, c.ch.Wrap(op.String(), NoPeer, NoTag, err)
	}
	var failed error
	if src != nil {
		failed = src.Read(in.Bytes)
	}
	if dest != nil {
		failed = errors.Join(failed, dest.Check())
	}
	if dest != nil && keep {
		failed = errors.Join(failed, dest.Read(out.Bytes))
	}
	r, err := start(out.Bytes, in.Bytes) // also after a failure: the others wait
	if err != nil {
		free()
		return nil, err
	}
	r.in().Then(func(err error) error {
		defer free()
		if err == nil && failed == nil && dest != nil && len(out.Bytes) > 0 {
			failed = dest.Whole(func() error { return dest.Write(out.Bytes) })
		}
		return errors.Join(err, c.deviceFailed(op, failed))
	})
	return r, nil
}

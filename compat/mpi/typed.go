package mpi

import "github.com/holdfast-hpc/holdfast/mpiwrap"

// on makes a call on the communicator below, if there is one.
func (cm *Comm) on(call func(c *mpiwrap.Comm) error) error {
	if cm.c == nil {
		return logged(cm.none())
	}
	return logged(call(cm.c))
}

// The methods of numeric.go are instances of these.

func send[T mpiwrap.Scalar](cm *Comm, to, tag int, vals []T) error {
	return cm.on(func(c *mpiwrap.Comm) error { return mpiwrap.Send(c, vals, to, tag) })
}

func recv[T mpiwrap.Scalar](cm *Comm, from, tag int, vals []T) error {
	return cm.on(func(c *mpiwrap.Comm) error {
		_, err := mpiwrap.Recv(c, vals, from, tag)
		return err
	})
}

func bcast[T mpiwrap.Scalar](cm *Comm, from int, vals []T) error {
	return cm.on(func(c *mpiwrap.Comm) error { return mpiwrap.Bcast(c, vals, from) })
}

func reduce[T mpiwrap.Scalar](cm *Comm, to int, op Op, dest, orig []T) error {
	return cm.on(func(c *mpiwrap.Comm) error { return mpiwrap.Reduce(c, dest, orig, op.wrapped(), to) })
}

func allReduce[T mpiwrap.Scalar](cm *Comm, op Op, dest, orig []T) error {
	return cm.on(func(c *mpiwrap.Comm) error { return mpiwrap.Allreduce(c, dest, orig, op.wrapped()) })
}

func gather[T mpiwrap.Scalar](cm *Comm, to int, dest, orig []T) error {
	return cm.on(func(c *mpiwrap.Comm) error { return mpiwrap.Gather(c, dest, orig, to) })
}

func allGather[T mpiwrap.Scalar](cm *Comm, dest, orig []T) error {
	return cm.on(func(c *mpiwrap.Comm) error { return mpiwrap.Allgather(c, dest, orig) })
}

func scatter[T mpiwrap.Scalar](cm *Comm, from int, dest, orig []T) error {
	return cm.on(func(c *mpiwrap.Comm) error { return mpiwrap.Scatter(c, dest, orig, from) })
}

package mpi

import "github.com/holdfast-hpc/holdfast/mpiwrap"

// The methods of numeric.go are instances of these.

func send[T mpiwrap.Scalar](cm *Comm, to, tag int, vals []T) error {
	if cm.c == nil {
		return logged(cm.none())
	}
	return logged(mpiwrap.Send(cm.c, vals, to, tag))
}

func recv[T mpiwrap.Scalar](cm *Comm, from, tag int, vals []T) error {
	if cm.c == nil {
		return logged(cm.none())
	}
	_, err := mpiwrap.Recv(cm.c, vals, from, tag)
	return logged(err)
}

func bcast[T mpiwrap.Scalar](cm *Comm, from int, vals []T) error {
	if cm.c == nil {
		return logged(cm.none())
	}
	return logged(mpiwrap.Bcast(cm.c, vals, from))
}

func reduce[T mpiwrap.Scalar](cm *Comm, to int, op Op, dest, orig []T) error {
	if cm.c == nil {
		return logged(cm.none())
	}
	return logged(mpiwrap.Reduce(cm.c, dest, orig, op.wrapped(), to))
}

func allReduce[T mpiwrap.Scalar](cm *Comm, op Op, dest, orig []T) error {
	if cm.c == nil {
		return logged(cm.none())
	}
	return logged(mpiwrap.Allreduce(cm.c, dest, orig, op.wrapped()))
}

func gather[T mpiwrap.Scalar](cm *Comm, to int, dest, orig []T) error {
	if cm.c == nil {
		return logged(cm.none())
	}
	return logged(mpiwrap.Gather(cm.c, dest, orig, to))
}

func allGather[T mpiwrap.Scalar](cm *Comm, dest, orig []T) error {
	if cm.c == nil {
		return logged(cm.none())
	}
	return logged(mpiwrap.Allgather(cm.c, dest, orig))
}

func scatter[T mpiwrap.Scalar](cm *Comm, from int, dest, orig []T) error {
	if cm.c == nil {
		return logged(cm.none())
	}
	return logged(mpiwrap.Scatter(cm.c, dest, orig, from))
}

package mpi

// SendF64 sends vals to rank to with a tag. It blocks as long as MPI needs vals. Local to the two ranks.
func (cm *Comm) SendF64(to int, tag int, vals []float64) error { return send(cm, to, tag, vals) }

// RecvF64 receives from rank from with a tag into the beginning of vals. Local to the two ranks.
func (cm *Comm) RecvF64(from int, tag int, vals []float64) error { return recv(cm, from, tag, vals) }

// BcastF64 copies vals of rank from to every rank. Collective.
func (cm *Comm) BcastF64(from int, vals []float64) error { return bcast(cm, from, vals) }

// ReduceF64 combines orig of all ranks into dest of rank to; others need no dest. Collective.
func (cm *Comm) ReduceF64(to int, op Op, dest, orig []float64) error {
	return reduce(cm, to, op, dest, orig)
}

// AllReduceF64 combines orig of all ranks into dest of every rank. Collective.
func (cm *Comm) AllReduceF64(op Op, dest, orig []float64) error { return allReduce(cm, op, dest, orig) }

// GatherF64 collects orig of all ranks in dest of rank to, Size times as long as orig. Collective.
func (cm *Comm) GatherF64(to int, dest, orig []float64) error { return gather(cm, to, dest, orig) }

// AllGatherF64 collects orig of all ranks in dest of every rank, Size times as long as orig. Collective.
func (cm *Comm) AllGatherF64(dest, orig []float64) error { return allGather(cm, dest, orig) }

// ScatterF64 deals orig of rank from, Size times as long as dest, to dest of every rank. Collective.
func (cm *Comm) ScatterF64(from int, dest, orig []float64) error {
	return scatter(cm, from, dest, orig)
}

// SendF32 sends vals to rank to with a tag. It blocks as long as MPI needs vals. Local to the two ranks.
func (cm *Comm) SendF32(to int, tag int, vals []float32) error { return send(cm, to, tag, vals) }

// RecvF32 receives from rank from with a tag into the beginning of vals. Local to the two ranks.
func (cm *Comm) RecvF32(from int, tag int, vals []float32) error { return recv(cm, from, tag, vals) }

// BcastF32 copies vals of rank from to every rank. Collective.
func (cm *Comm) BcastF32(from int, vals []float32) error { return bcast(cm, from, vals) }

// ReduceF32 combines orig of all ranks into dest of rank to; others need no dest. Collective.
func (cm *Comm) ReduceF32(to int, op Op, dest, orig []float32) error {
	return reduce(cm, to, op, dest, orig)
}

// AllReduceF32 combines orig of all ranks into dest of every rank. Collective.
func (cm *Comm) AllReduceF32(op Op, dest, orig []float32) error { return allReduce(cm, op, dest, orig) }

// GatherF32 collects orig of all ranks in dest of rank to, Size times as long as orig. Collective.
func (cm *Comm) GatherF32(to int, dest, orig []float32) error { return gather(cm, to, dest, orig) }

// AllGatherF32 collects orig of all ranks in dest of every rank, Size times as long as orig. Collective.
func (cm *Comm) AllGatherF32(dest, orig []float32) error { return allGather(cm, dest, orig) }

// ScatterF32 deals orig of rank from, Size times as long as dest, to dest of every rank. Collective.
func (cm *Comm) ScatterF32(from int, dest, orig []float32) error {
	return scatter(cm, from, dest, orig)
}

// SendInt sends vals to rank to with a tag. It blocks as long as MPI needs vals. Local to the two ranks.
func (cm *Comm) SendInt(to int, tag int, vals []int) error { return send(cm, to, tag, vals) }

// RecvInt receives from rank from with a tag into the beginning of vals. Local to the two ranks.
func (cm *Comm) RecvInt(from int, tag int, vals []int) error { return recv(cm, from, tag, vals) }

// BcastInt copies vals of rank from to every rank. Collective.
func (cm *Comm) BcastInt(from int, vals []int) error { return bcast(cm, from, vals) }

// ReduceInt combines orig of all ranks into dest of rank to; others need no dest. Collective.
func (cm *Comm) ReduceInt(to int, op Op, dest, orig []int) error {
	return reduce(cm, to, op, dest, orig)
}

// AllReduceInt combines orig of all ranks into dest of every rank. Collective.
func (cm *Comm) AllReduceInt(op Op, dest, orig []int) error { return allReduce(cm, op, dest, orig) }

// GatherInt collects orig of all ranks in dest of rank to, Size times as long as orig. Collective.
func (cm *Comm) GatherInt(to int, dest, orig []int) error { return gather(cm, to, dest, orig) }

// AllGatherInt collects orig of all ranks in dest of every rank, Size times as long as orig. Collective.
func (cm *Comm) AllGatherInt(dest, orig []int) error { return allGather(cm, dest, orig) }

// ScatterInt deals orig of rank from, Size times as long as dest, to dest of every rank. Collective.
func (cm *Comm) ScatterInt(from int, dest, orig []int) error { return scatter(cm, from, dest, orig) }

// SendI64 sends vals to rank to with a tag. It blocks as long as MPI needs vals. Local to the two ranks.
func (cm *Comm) SendI64(to int, tag int, vals []int64) error { return send(cm, to, tag, vals) }

// RecvI64 receives from rank from with a tag into the beginning of vals. Local to the two ranks.
func (cm *Comm) RecvI64(from int, tag int, vals []int64) error { return recv(cm, from, tag, vals) }

// BcastI64 copies vals of rank from to every rank. Collective.
func (cm *Comm) BcastI64(from int, vals []int64) error { return bcast(cm, from, vals) }

// ReduceI64 combines orig of all ranks into dest of rank to; others need no dest. Collective.
func (cm *Comm) ReduceI64(to int, op Op, dest, orig []int64) error {
	return reduce(cm, to, op, dest, orig)
}

// AllReduceI64 combines orig of all ranks into dest of every rank. Collective.
func (cm *Comm) AllReduceI64(op Op, dest, orig []int64) error { return allReduce(cm, op, dest, orig) }

// GatherI64 collects orig of all ranks in dest of rank to, Size times as long as orig. Collective.
func (cm *Comm) GatherI64(to int, dest, orig []int64) error { return gather(cm, to, dest, orig) }

// AllGatherI64 collects orig of all ranks in dest of every rank, Size times as long as orig. Collective.
func (cm *Comm) AllGatherI64(dest, orig []int64) error { return allGather(cm, dest, orig) }

// ScatterI64 deals orig of rank from, Size times as long as dest, to dest of every rank. Collective.
func (cm *Comm) ScatterI64(from int, dest, orig []int64) error { return scatter(cm, from, dest, orig) }

// SendU64 sends vals to rank to with a tag. It blocks as long as MPI needs vals. Local to the two ranks.
func (cm *Comm) SendU64(to int, tag int, vals []uint64) error { return send(cm, to, tag, vals) }

// RecvU64 receives from rank from with a tag into the beginning of vals. Local to the two ranks.
func (cm *Comm) RecvU64(from int, tag int, vals []uint64) error { return recv(cm, from, tag, vals) }

// BcastU64 copies vals of rank from to every rank. Collective.
func (cm *Comm) BcastU64(from int, vals []uint64) error { return bcast(cm, from, vals) }

// ReduceU64 combines orig of all ranks into dest of rank to; others need no dest. Collective.
func (cm *Comm) ReduceU64(to int, op Op, dest, orig []uint64) error {
	return reduce(cm, to, op, dest, orig)
}

// AllReduceU64 combines orig of all ranks into dest of every rank. Collective.
func (cm *Comm) AllReduceU64(op Op, dest, orig []uint64) error { return allReduce(cm, op, dest, orig) }

// GatherU64 collects orig of all ranks in dest of rank to, Size times as long as orig. Collective.
func (cm *Comm) GatherU64(to int, dest, orig []uint64) error { return gather(cm, to, dest, orig) }

// AllGatherU64 collects orig of all ranks in dest of every rank, Size times as long as orig. Collective.
func (cm *Comm) AllGatherU64(dest, orig []uint64) error { return allGather(cm, dest, orig) }

// ScatterU64 deals orig of rank from, Size times as long as dest, to dest of every rank. Collective.
func (cm *Comm) ScatterU64(from int, dest, orig []uint64) error { return scatter(cm, from, dest, orig) }

// SendI32 sends vals to rank to with a tag. It blocks as long as MPI needs vals. Local to the two ranks.
func (cm *Comm) SendI32(to int, tag int, vals []int32) error { return send(cm, to, tag, vals) }

// RecvI32 receives from rank from with a tag into the beginning of vals. Local to the two ranks.
func (cm *Comm) RecvI32(from int, tag int, vals []int32) error { return recv(cm, from, tag, vals) }

// BcastI32 copies vals of rank from to every rank. Collective.
func (cm *Comm) BcastI32(from int, vals []int32) error { return bcast(cm, from, vals) }

// ReduceI32 combines orig of all ranks into dest of rank to; others need no dest. Collective.
func (cm *Comm) ReduceI32(to int, op Op, dest, orig []int32) error {
	return reduce(cm, to, op, dest, orig)
}

// AllReduceI32 combines orig of all ranks into dest of every rank. Collective.
func (cm *Comm) AllReduceI32(op Op, dest, orig []int32) error { return allReduce(cm, op, dest, orig) }

// GatherI32 collects orig of all ranks in dest of rank to, Size times as long as orig. Collective.
func (cm *Comm) GatherI32(to int, dest, orig []int32) error { return gather(cm, to, dest, orig) }

// AllGatherI32 collects orig of all ranks in dest of every rank, Size times as long as orig. Collective.
func (cm *Comm) AllGatherI32(dest, orig []int32) error { return allGather(cm, dest, orig) }

// ScatterI32 deals orig of rank from, Size times as long as dest, to dest of every rank. Collective.
func (cm *Comm) ScatterI32(from int, dest, orig []int32) error { return scatter(cm, from, dest, orig) }

// SendU32 sends vals to rank to with a tag. It blocks as long as MPI needs vals. Local to the two ranks.
func (cm *Comm) SendU32(to int, tag int, vals []uint32) error { return send(cm, to, tag, vals) }

// RecvU32 receives from rank from with a tag into the beginning of vals. Local to the two ranks.
func (cm *Comm) RecvU32(from int, tag int, vals []uint32) error { return recv(cm, from, tag, vals) }

// BcastU32 copies vals of rank from to every rank. Collective.
func (cm *Comm) BcastU32(from int, vals []uint32) error { return bcast(cm, from, vals) }

// ReduceU32 combines orig of all ranks into dest of rank to; others need no dest. Collective.
func (cm *Comm) ReduceU32(to int, op Op, dest, orig []uint32) error {
	return reduce(cm, to, op, dest, orig)
}

// AllReduceU32 combines orig of all ranks into dest of every rank. Collective.
func (cm *Comm) AllReduceU32(op Op, dest, orig []uint32) error { return allReduce(cm, op, dest, orig) }

// GatherU32 collects orig of all ranks in dest of rank to, Size times as long as orig. Collective.
func (cm *Comm) GatherU32(to int, dest, orig []uint32) error { return gather(cm, to, dest, orig) }

// AllGatherU32 collects orig of all ranks in dest of every rank, Size times as long as orig. Collective.
func (cm *Comm) AllGatherU32(dest, orig []uint32) error { return allGather(cm, dest, orig) }

// ScatterU32 deals orig of rank from, Size times as long as dest, to dest of every rank. Collective.
func (cm *Comm) ScatterU32(from int, dest, orig []uint32) error { return scatter(cm, from, dest, orig) }

// SendI16 sends vals to rank to with a tag. It blocks as long as MPI needs vals. Local to the two ranks.
func (cm *Comm) SendI16(to int, tag int, vals []int16) error { return send(cm, to, tag, vals) }

// RecvI16 receives from rank from with a tag into the beginning of vals. Local to the two ranks.
func (cm *Comm) RecvI16(from int, tag int, vals []int16) error { return recv(cm, from, tag, vals) }

// BcastI16 copies vals of rank from to every rank. Collective.
func (cm *Comm) BcastI16(from int, vals []int16) error { return bcast(cm, from, vals) }

// ReduceI16 combines orig of all ranks into dest of rank to; others need no dest. Collective.
func (cm *Comm) ReduceI16(to int, op Op, dest, orig []int16) error {
	return reduce(cm, to, op, dest, orig)
}

// AllReduceI16 combines orig of all ranks into dest of every rank. Collective.
func (cm *Comm) AllReduceI16(op Op, dest, orig []int16) error { return allReduce(cm, op, dest, orig) }

// GatherI16 collects orig of all ranks in dest of rank to, Size times as long as orig. Collective.
func (cm *Comm) GatherI16(to int, dest, orig []int16) error { return gather(cm, to, dest, orig) }

// AllGatherI16 collects orig of all ranks in dest of every rank, Size times as long as orig. Collective.
func (cm *Comm) AllGatherI16(dest, orig []int16) error { return allGather(cm, dest, orig) }

// ScatterI16 deals orig of rank from, Size times as long as dest, to dest of every rank. Collective.
func (cm *Comm) ScatterI16(from int, dest, orig []int16) error { return scatter(cm, from, dest, orig) }

// SendU16 sends vals to rank to with a tag. It blocks as long as MPI needs vals. Local to the two ranks.
func (cm *Comm) SendU16(to int, tag int, vals []uint16) error { return send(cm, to, tag, vals) }

// RecvU16 receives from rank from with a tag into the beginning of vals. Local to the two ranks.
func (cm *Comm) RecvU16(from int, tag int, vals []uint16) error { return recv(cm, from, tag, vals) }

// BcastU16 copies vals of rank from to every rank. Collective.
func (cm *Comm) BcastU16(from int, vals []uint16) error { return bcast(cm, from, vals) }

// ReduceU16 combines orig of all ranks into dest of rank to; others need no dest. Collective.
func (cm *Comm) ReduceU16(to int, op Op, dest, orig []uint16) error {
	return reduce(cm, to, op, dest, orig)
}

// AllReduceU16 combines orig of all ranks into dest of every rank. Collective.
func (cm *Comm) AllReduceU16(op Op, dest, orig []uint16) error { return allReduce(cm, op, dest, orig) }

// GatherU16 collects orig of all ranks in dest of rank to, Size times as long as orig. Collective.
func (cm *Comm) GatherU16(to int, dest, orig []uint16) error { return gather(cm, to, dest, orig) }

// AllGatherU16 collects orig of all ranks in dest of every rank, Size times as long as orig. Collective.
func (cm *Comm) AllGatherU16(dest, orig []uint16) error { return allGather(cm, dest, orig) }

// ScatterU16 deals orig of rank from, Size times as long as dest, to dest of every rank. Collective.
func (cm *Comm) ScatterU16(from int, dest, orig []uint16) error { return scatter(cm, from, dest, orig) }

// SendI8 sends vals to rank to with a tag. It blocks as long as MPI needs vals. Local to the two ranks.
func (cm *Comm) SendI8(to int, tag int, vals []int8) error { return send(cm, to, tag, vals) }

// RecvI8 receives from rank from with a tag into the beginning of vals. Local to the two ranks.
func (cm *Comm) RecvI8(from int, tag int, vals []int8) error { return recv(cm, from, tag, vals) }

// BcastI8 copies vals of rank from to every rank. Collective.
func (cm *Comm) BcastI8(from int, vals []int8) error { return bcast(cm, from, vals) }

// ReduceI8 combines orig of all ranks into dest of rank to; others need no dest. Collective.
func (cm *Comm) ReduceI8(to int, op Op, dest, orig []int8) error {
	return reduce(cm, to, op, dest, orig)
}

// AllReduceI8 combines orig of all ranks into dest of every rank. Collective.
func (cm *Comm) AllReduceI8(op Op, dest, orig []int8) error { return allReduce(cm, op, dest, orig) }

// GatherI8 collects orig of all ranks in dest of rank to, Size times as long as orig. Collective.
func (cm *Comm) GatherI8(to int, dest, orig []int8) error { return gather(cm, to, dest, orig) }

// AllGatherI8 collects orig of all ranks in dest of every rank, Size times as long as orig. Collective.
func (cm *Comm) AllGatherI8(dest, orig []int8) error { return allGather(cm, dest, orig) }

// ScatterI8 deals orig of rank from, Size times as long as dest, to dest of every rank. Collective.
func (cm *Comm) ScatterI8(from int, dest, orig []int8) error { return scatter(cm, from, dest, orig) }

// SendU8 sends vals to rank to with a tag. It blocks as long as MPI needs vals. Local to the two ranks.
func (cm *Comm) SendU8(to int, tag int, vals []uint8) error { return send(cm, to, tag, vals) }

// RecvU8 receives from rank from with a tag into the beginning of vals. Local to the two ranks.
func (cm *Comm) RecvU8(from int, tag int, vals []uint8) error { return recv(cm, from, tag, vals) }

// BcastU8 copies vals of rank from to every rank. Collective.
func (cm *Comm) BcastU8(from int, vals []uint8) error { return bcast(cm, from, vals) }

// ReduceU8 combines orig of all ranks into dest of rank to; others need no dest. Collective.
func (cm *Comm) ReduceU8(to int, op Op, dest, orig []uint8) error {
	return reduce(cm, to, op, dest, orig)
}

// AllReduceU8 combines orig of all ranks into dest of every rank. Collective.
func (cm *Comm) AllReduceU8(op Op, dest, orig []uint8) error { return allReduce(cm, op, dest, orig) }

// GatherU8 collects orig of all ranks in dest of rank to, Size times as long as orig. Collective.
func (cm *Comm) GatherU8(to int, dest, orig []uint8) error { return gather(cm, to, dest, orig) }

// AllGatherU8 collects orig of all ranks in dest of every rank, Size times as long as orig. Collective.
func (cm *Comm) AllGatherU8(dest, orig []uint8) error { return allGather(cm, dest, orig) }

// ScatterU8 deals orig of rank from, Size times as long as dest, to dest of every rank. Collective.
func (cm *Comm) ScatterU8(from int, dest, orig []uint8) error { return scatter(cm, from, dest, orig) }

// SendC128 sends vals to rank to with a tag. It blocks as long as MPI needs vals. Local to the two ranks.
func (cm *Comm) SendC128(to int, tag int, vals []complex128) error { return send(cm, to, tag, vals) }

// RecvC128 receives from rank from with a tag into the beginning of vals. Local to the two ranks.
func (cm *Comm) RecvC128(from int, tag int, vals []complex128) error {
	return recv(cm, from, tag, vals)
}

// BcastC128 copies vals of rank from to every rank. Collective.
func (cm *Comm) BcastC128(from int, vals []complex128) error { return bcast(cm, from, vals) }

// ReduceC128 combines orig of all ranks into dest of rank to; others need no dest. Collective.
func (cm *Comm) ReduceC128(to int, op Op, dest, orig []complex128) error {
	return reduce(cm, to, op, dest, orig)
}

// AllReduceC128 combines orig of all ranks into dest of every rank. Collective.
func (cm *Comm) AllReduceC128(op Op, dest, orig []complex128) error {
	return allReduce(cm, op, dest, orig)
}

// GatherC128 collects orig of all ranks in dest of rank to, Size times as long as orig. Collective.
func (cm *Comm) GatherC128(to int, dest, orig []complex128) error { return gather(cm, to, dest, orig) }

// AllGatherC128 collects orig of all ranks in dest of every rank, Size times as long as orig. Collective.
func (cm *Comm) AllGatherC128(dest, orig []complex128) error { return allGather(cm, dest, orig) }

// ScatterC128 deals orig of rank from, Size times as long as dest, to dest of every rank. Collective.
func (cm *Comm) ScatterC128(from int, dest, orig []complex128) error {
	return scatter(cm, from, dest, orig)
}

// SendC64 sends vals to rank to with a tag. It blocks as long as MPI needs vals. Local to the two ranks.
func (cm *Comm) SendC64(to int, tag int, vals []complex64) error { return send(cm, to, tag, vals) }

// RecvC64 receives from rank from with a tag into the beginning of vals. Local to the two ranks.
func (cm *Comm) RecvC64(from int, tag int, vals []complex64) error { return recv(cm, from, tag, vals) }

// BcastC64 copies vals of rank from to every rank. Collective.
func (cm *Comm) BcastC64(from int, vals []complex64) error { return bcast(cm, from, vals) }

// ReduceC64 combines orig of all ranks into dest of rank to; others need no dest. Collective.
func (cm *Comm) ReduceC64(to int, op Op, dest, orig []complex64) error {
	return reduce(cm, to, op, dest, orig)
}

// AllReduceC64 combines orig of all ranks into dest of every rank. Collective.
func (cm *Comm) AllReduceC64(op Op, dest, orig []complex64) error {
	return allReduce(cm, op, dest, orig)
}

// GatherC64 collects orig of all ranks in dest of rank to, Size times as long as orig. Collective.
func (cm *Comm) GatherC64(to int, dest, orig []complex64) error { return gather(cm, to, dest, orig) }

// AllGatherC64 collects orig of all ranks in dest of every rank, Size times as long as orig. Collective.
func (cm *Comm) AllGatherC64(dest, orig []complex64) error { return allGather(cm, dest, orig) }

// ScatterC64 deals orig of rank from, Size times as long as dest, to dest of every rank. Collective.
func (cm *Comm) ScatterC64(from int, dest, orig []complex64) error {
	return scatter(cm, from, dest, orig)
}

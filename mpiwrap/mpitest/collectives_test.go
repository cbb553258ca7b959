package mpitest

import (
	"fmt"

	"github.com/holdfast-hpc/holdfast/mpiwrap"
)

var collectiveCases = []Case{
	{"broadcast", broadcast},
	{"buffers inside structs with pointers", inStruct},
	{"gather and scatter", gatherScatter},
	{"gather and scatter with counts", gatherScatterV},
	{"all-to-all", alltoall},
	{"reductions", reductions},
	{"reductions of every type and operator", reduceTypes},
	{"scans", scans},
	{"reduce-scatter", reduceScatter},
	{"reductions in Go", goReductions},
	{"several non-blocking collectives at once", manyCollectives},
	{"bad arguments of collectives", badCollectives},
}

// lengths are empty, one, short and long messages.
var lengths = []int{0, 1, 3, 5000}

// both runs the blocking form and the non-blocking one of a call.
func both(what string, blocking func() error, starting func() (*mpiwrap.Request, error), check func() error) error {
	if err := all(blocking(), check()); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	r, err := starting()
	if err != nil {
		return fmt.Errorf("non-blocking %s: %w", what, err)
	}
	if _, err := r.Wait(); err != nil {
		return fmt.Errorf("non-blocking %s: %w", what, err)
	}
	if err := check(); err != nil {
		return fmt.Errorf("non-blocking %s: %w", what, err)
	}
	return nil
}

// inStruct: buffers may be parts of a struct that also holds Go pointers.
func inStruct(w *mpiwrap.Comm) error {
	type table struct {
		values [4]int32
		next   *table
	}
	t := &table{next: &table{}}
	if w.Rank() == 0 {
		t.values = [4]int32{1, 2, 3, 4}
	}
	next, prev := neighbours(w)
	r, err := mpiwrap.Irecv(w, t.next.values[:], prev, 0)
	if err := all(err, mpiwrap.Bcast(w, t.values[:], 0), mpiwrap.Send(w, t.values[:], next, 0)); err != nil {
		return err
	}
	_, err = r.Wait()
	return all(err, equal("received", t.next.values, [4]int32{1, 2, 3, 4}))
}

// roots returns the ranks that are roots in turn: all of few, some of many, since
// many ranks on few cores take their time.
func roots(w *mpiwrap.Comm) []int {
	if w.Size() < 3 {
		return []int{0, w.Size() - 1}[:w.Size()]
	}
	return []int{0, w.Size() / 2, w.Size() - 1}
}

func broadcast(w *mpiwrap.Comm) error {
	for _, root := range roots(w) {
		for _, n := range lengths {
			buf := make([]float64, n)
			fill := func() {
				clear(buf)
				if w.Rank() == root {
					copy(buf, pattern(n, root, n))
				}
			}
			fill()
			err := both(fmt.Sprintf("Bcast of %d from %d", n, root),
				func() error { return mpiwrap.Bcast(w, buf, root) },
				func() (*mpiwrap.Request, error) { fill(); return mpiwrap.Ibcast(w, buf, root) },
				func() error { return equalSlices("data", buf, pattern(n, root, n)) })
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// everyone returns what gathering pattern(n) of all ranks gives.
func everyone(size, n, tag int) []float64 {
	var out []float64
	for r := range size {
		out = append(out, pattern(n, r, tag)...)
	}
	return out
}

func gatherScatter(w *mpiwrap.Comm) error {
	size, me := w.Size(), w.Rank()
	for _, n := range lengths {
		want := everyone(size, n, 1)
		src, dest := pattern(n, me, 1), make([]float64, n*size)
		check := func() error {
			defer clear(dest)
			return equalSlices("all", dest, want)
		}
		err := all(
			both("Allgather", func() error { return mpiwrap.Allgather(w, dest, src) },
				func() (*mpiwrap.Request, error) { return mpiwrap.Iallgather(w, dest, src) }, check),
			both("Allgather in place", func() error {
				copy(dest[me*n:], src)
				return mpiwrap.Allgather(w, dest, dest[me*n:(me+1)*n])
			},
				func() (*mpiwrap.Request, error) {
					copy(dest[me*n:], src)
					return mpiwrap.Iallgather(w, dest, dest[me*n:(me+1)*n])
				}, check))
		for _, root := range roots(w) {
			err = all(err, gatherAt(w, n, root), scatterAt(w, n, root))
		}
		if err != nil {
			return fmt.Errorf("%d elements: %w", n, err)
		}
	}
	return nil
}

func gatherAt(w *mpiwrap.Comm, n, root int) error {
	size, me := w.Size(), w.Rank()
	src := pattern(n, me, 2)
	var dest []float64
	own := src
	if me == root {
		dest = make([]float64, n*size)
		own = dest[me*n : (me+1)*n]
	}
	check := func() error {
		if me != root {
			return nil
		}
		defer clear(dest)
		return equalSlices("root", dest, everyone(size, n, 2))
	}
	return all(
		both("Gather", func() error { return mpiwrap.Gather(w, dest, src, root) },
			func() (*mpiwrap.Request, error) { return mpiwrap.Igather(w, dest, src, root) }, check),
		both("Gather in place", func() error { copy(own, src); return mpiwrap.Gather(w, dest, own, root) },
			func() (*mpiwrap.Request, error) { copy(own, src); return mpiwrap.Igather(w, dest, own, root) }, check))
}

func scatterAt(w *mpiwrap.Comm, n, root int) error {
	size, me := w.Size(), w.Rank()
	dest := make([]float64, n)
	var src []float64
	own := dest
	if me == root {
		src = everyone(size, n, 3)
		own = src[me*n : (me+1)*n]
	}
	return all(
		both("Scatter", func() error { return mpiwrap.Scatter(w, dest, src, root) },
			func() (*mpiwrap.Request, error) { clear(dest); return mpiwrap.Iscatter(w, dest, src, root) },
			func() error { return equalSlices("part", dest, pattern(n, me, 3)) }),
		both("Scatter in place", func() error { return mpiwrap.Scatter(w, own, src, root) },
			func() (*mpiwrap.Request, error) { return mpiwrap.Iscatter(w, own, src, root) },
			func() error { return equalSlices("part", own, pattern(n, me, 3)) }))
}

// gatherScatterV: rank i gives i elements, in places with a gap of one.
func gatherScatterV(w *mpiwrap.Comm) error {
	size, me := w.Size(), w.Rank()
	counts, displs, want := make([]int, size), make([]int, size), []float64{}
	for r := range size {
		counts[r], displs[r] = r*300, len(want)
		want = append(append(want, pattern(r*300, r, 4)...), 0)
	}
	src, dest := pattern(me*300, me, 4), make([]float64, len(want))
	check := func() error { defer clear(dest); return equalSlices("all", dest, want) }
	own := dest[displs[me] : displs[me]+counts[me]]
	err := all(
		both("Allgatherv", func() error { return mpiwrap.Allgatherv(w, dest, counts, displs, src) },
			func() (*mpiwrap.Request, error) { return mpiwrap.Iallgatherv(w, dest, counts, displs, src) }, check),
		both("Allgatherv in place", func() error {
			copy(own, src)
			return mpiwrap.Allgatherv(w, dest, counts, displs, own)
		},
			func() (*mpiwrap.Request, error) {
				copy(own, src)
				return mpiwrap.Iallgatherv(w, dest, counts, displs, own)
			}, check))
	for _, root := range roots(w) {
		part := make([]float64, len(src))
		rootCheck := func() error {
			if me != root {
				return nil
			}
			return check()
		}
		err = all(err,
			both("Gatherv", func() error { return mpiwrap.Gatherv(w, dest, counts, displs, src, root) },
				func() (*mpiwrap.Request, error) { return mpiwrap.Igatherv(w, dest, counts, displs, src, root) },
				rootCheck),
			both("Scatterv", func() error { return mpiwrap.Scatterv(w, part, want, counts, displs, root) },
				func() (*mpiwrap.Request, error) {
					clear(part)
					return mpiwrap.Iscatterv(w, part, want, counts, displs, root)
				}, func() error { return equalSlices("part", part, src) }))
	}
	// Without displacements the parts follow each other.
	packed := make([]float64, 0)
	for r := range size {
		packed = append(packed, pattern(counts[r], r, 4)...)
	}
	tight := make([]float64, len(packed))
	return all(err, mpiwrap.Allgatherv(w, tight, counts, nil, src), equalSlices("packed", tight, packed))
}

func alltoall(w *mpiwrap.Comm) error {
	size, me := w.Size(), w.Rank()
	for _, n := range lengths {
		src, want := []float64{}, []float64{}
		for r := range size {
			src = append(src, pattern(n, me, r)...)
			want = append(want, pattern(n, r, me)...)
		}
		dest := make([]float64, n*size)
		check := func() error { defer clear(dest); return equalSlices("exchanged", dest, want) }
		err := all(
			both("Alltoall", func() error { return mpiwrap.Alltoall(w, dest, src) },
				func() (*mpiwrap.Request, error) { return mpiwrap.Ialltoall(w, dest, src) }, check),
			both("Alltoall in place", func() error { copy(dest, src); return mpiwrap.Alltoall(w, dest, dest) },
				func() (*mpiwrap.Request, error) { copy(dest, src); return mpiwrap.Ialltoall(w, dest, dest) }, check))
		if err != nil {
			return fmt.Errorf("%d elements: %w", n, err)
		}
	}
	return alltoallv(w)
}

// alltoallv: rank i sends i+j elements to rank j.
func alltoallv(w *mpiwrap.Comm) error {
	size, me := w.Size(), w.Rank()
	counts, src, want := make([]int, size), []float64{}, []float64{}
	for r := range size {
		counts[r] = me + r
		src = append(src, pattern(me+r, me, r)...)
		want = append(want, pattern(me+r, r, me)...)
	}
	dest := make([]float64, len(want))
	check := func() error { defer clear(dest); return equalSlices("exchanged", dest, want) }
	return all(
		both("Alltoallv", func() error { return mpiwrap.Alltoallv(w, dest, counts, nil, src, counts, nil) },
			func() (*mpiwrap.Request, error) {
				return mpiwrap.Ialltoallv(w, dest, counts, nil, src, counts, nil)
			}, check),
		both("Alltoallv in place", func() error {
			copy(dest, src)
			return mpiwrap.Alltoallv(w, dest, counts, nil, dest, nil, nil)
		},
			func() (*mpiwrap.Request, error) {
				copy(dest, src)
				return mpiwrap.Ialltoallv(w, dest, counts, nil, dest, nil, nil)
			}, check))
}

// manyCollectives are waited for in another order than they were started in.
func manyCollectives(w *mpiwrap.Comm) error {
	a, b, c := []int{0}, []int{0}, []int{w.Rank()}
	ra, err := mpiwrap.Iallreduce(w, a, []int{1}, mpiwrap.Sum)
	if err != nil {
		return err
	}
	rb, err := w.Ibarrier()
	if err != nil {
		return err
	}
	rc, err := mpiwrap.Ibcast(w, c, w.Size()-1)
	if err != nil {
		return err
	}
	if err := mpiwrap.Allreduce(w, b, []int{2}, mpiwrap.Sum); err != nil {
		return err
	}
	return all(mpiwrap.WaitAll(rc, rb, ra), equal("Iallreduce", a[0], w.Size()), equal("Allreduce", b[0], 2*w.Size()),
		equal("Ibcast", c[0], w.Size()-1))
}

func badCollectives(w *mpiwrap.Comm) error {
	n := w.Size()
	x, y, z := make([]float64, n), make([]float64, n+1), make([]float64, 3)
	_, err := mpiwrap.Iallreduce(w, x, y, mpiwrap.Sum)
	return all(
		wantErr("root", mpiwrap.Bcast(w, x, n), mpiwrap.ErrRank),
		wantErr("negative root", mpiwrap.Reduce(w, x, x, mpiwrap.Sum, -1), mpiwrap.ErrRank),
		wantErr("Allreduce lengths", mpiwrap.Allreduce(w, x, y, mpiwrap.Sum), mpiwrap.ErrLength),
		wantErr("Iallreduce lengths", err, mpiwrap.ErrLength),
		wantErr("Allgather length", mpiwrap.Allgather(w, y, x), mpiwrap.ErrLength),
		wantErr("Gather length", gatherShort(w), mpiwrap.ErrLength),
		wantErr("Alltoall length", mpiwrap.Alltoall(w, y, x), mpiwrap.ErrLength),
		wantErr("counts", mpiwrap.Allgatherv(w, x, make([]int, n+1), nil, x[:0]), mpiwrap.ErrLength),
		wantErr("overlap", mpiwrap.Allreduce(w, z[:2], z[1:], mpiwrap.Sum), mpiwrap.ErrOverlap),
		wantErr("operator", mpiwrap.Allreduce(w, x, x, mpiwrap.Op(99)), mpiwrap.ErrOp),
		wantErr("ReduceScatter counts", mpiwrap.ReduceScatter(w, x, y, make([]int, n), mpiwrap.Sum), mpiwrap.ErrLength),
	)
}

// gatherShort gives every rank its own root, so that no rank enters.
func gatherShort(w *mpiwrap.Comm) error {
	return mpiwrap.Gather(w, []int{}, []int{1}, w.Rank())
}

package mpitest

import (
	"fmt"

	"github.com/holdfast-hpc/holdfast/mpiwrap"
)

// sums returns n elements of i*(1 + 2 + ... + k).
func sums(n, k int) []int {
	s := make([]int, n)
	for i := range s {
		s[i] = i * k * (k + 1) / 2
	}
	return s
}

func ramp(n, rank int) []int {
	s := make([]int, n)
	for i := range s {
		s[i] = i * (rank + 1)
	}
	return s
}

func reductions(w *mpiwrap.Comm) error {
	for _, n := range lengths {
		src, dest, want := ramp(n, w.Rank()), make([]int, n), sums(n, w.Size())
		check := func() error { defer clear(dest); return equalSlices("sum", dest, want) }
		err := all(
			both("Allreduce", func() error { return mpiwrap.Allreduce(w, dest, src, mpiwrap.Sum) },
				func() (*mpiwrap.Request, error) { return mpiwrap.Iallreduce(w, dest, src, mpiwrap.Sum) }, check),
			both("Allreduce in place", func() error {
				copy(dest, src)
				return mpiwrap.Allreduce(w, dest, dest, mpiwrap.Sum)
			},
				func() (*mpiwrap.Request, error) {
					copy(dest, src)
					return mpiwrap.Iallreduce(w, dest, dest, mpiwrap.Sum)
				}, check))
		for _, root := range roots(w) {
			at := func() error {
				if w.Rank() != root {
					return nil
				}
				return check()
			}
			err = all(err,
				both("Reduce", func() error { return mpiwrap.Reduce(w, dest, src, mpiwrap.Sum, root) },
					func() (*mpiwrap.Request, error) { return mpiwrap.Ireduce(w, dest, src, mpiwrap.Sum, root) }, at),
				both("Reduce in place", func() error {
					copy(dest, src)
					return mpiwrap.Reduce(w, dest, dest, mpiwrap.Sum, root)
				},
					func() (*mpiwrap.Request, error) {
						copy(dest, src)
						return mpiwrap.Ireduce(w, dest, dest, mpiwrap.Sum, root)
					}, at))
		}
		if err != nil {
			return fmt.Errorf("%d elements: %w", n, err)
		}
	}
	return nil
}

func reduceTypes(w *mpiwrap.Comm) error {
	return all(integerOps[int8](w), integerOps[int16](w), integerOps[int32](w), integerOps[int64](w),
		integerOps[int](w),
		integerOps[uint8](w), integerOps[uint16](w), integerOps[uint32](w), integerOps[uint64](w), integerOps[uint](w),
		floatOps[float32](w), floatOps[float64](w), complexOps[complex64](w), complexOps[complex128](w))
}

type named int16 // a type of the program's own

func reduceOne[T mpiwrap.Scalar](w *mpiwrap.Comm, mine T, op mpiwrap.Op) (T, error) {
	out := []T{0}
	err := mpiwrap.Allreduce(w, out, []T{mine}, op)
	return out[0], err
}

// check1 compares a reduction over the world with its fold in Go.
func check1[T mpiwrap.Scalar](w *mpiwrap.Comm, name string, op mpiwrap.Op, value func(rank int) T,
	fold func(a, b T) T) error {
	want := value(0)
	for r := 1; r < w.Size(); r++ {
		want = fold(want, value(r))
	}
	got, err := reduceOne(w, value(w.Rank()), op)
	return all(err, equal(fmt.Sprintf("%s of %T", name, got), got, want))
}

type integers interface {
	~int8 | ~int16 | ~int32 | ~int64 | ~int | ~uint8 | ~uint16 | ~uint32 | ~uint64 | ~uint
}

func integerOps[T integers](w *mpiwrap.Comm) error {
	value := func(r int) T { return T(r%3 + 1) }
	bit := func(r int) T { return T(r % 2) }
	truth := func(b bool) T {
		if b {
			return 1
		}
		return 0
	}
	return all(
		check1(w, "Sum", mpiwrap.Sum, value, func(a, b T) T { return a + b }),
		check1(w, "Prod", mpiwrap.Prod, value, func(a, b T) T { return a * b }),
		check1(w, "Max", mpiwrap.Max, value, func(a, b T) T { return max(a, b) }),
		check1(w, "Min", mpiwrap.Min, value, func(a, b T) T { return min(a, b) }),
		check1(w, "Band", mpiwrap.Band, value, func(a, b T) T { return a & b }),
		check1(w, "Bor", mpiwrap.Bor, value, func(a, b T) T { return a | b }),
		check1(w, "Bxor", mpiwrap.Bxor, value, func(a, b T) T { return a ^ b }),
		check1(w, "Land", mpiwrap.Land, bit, func(a, b T) T { return truth(a != 0 && b != 0) }),
		check1(w, "Lor", mpiwrap.Lor, bit, func(a, b T) T { return truth(a != 0 || b != 0) }),
		check1(w, "Lxor", mpiwrap.Lxor, bit, func(a, b T) T { return truth((a != 0) != (b != 0)) }))
}

func floatOps[T float32 | float64](w *mpiwrap.Comm) error {
	value := func(r int) T { return T(r) - 1.5 }
	_, err := reduceOne(w, value(w.Rank()), mpiwrap.Bxor)
	if err == nil {
		err = fmt.Errorf("bitwise operator on floats was accepted")
	} else {
		err = wantErr("Bxor of floats", err, mpiwrap.ErrOp)
	}
	return all(err,
		check1(w, "Sum", mpiwrap.Sum, value, func(a, b T) T { return a + b }),
		check1(w, "Max", mpiwrap.Max, value, func(a, b T) T { return max(a, b) }),
		check1(w, "Min", mpiwrap.Min, value, func(a, b T) T { return min(a, b) }))
}

func complexOps[T complex64 | complex128](w *mpiwrap.Comm) error {
	value := func(r int) T { return T(complex(float64(r), 1)) }
	return all(check1(w, "Sum", mpiwrap.Sum, value, func(a, b T) T { return a + b }),
		check1(w, "Prod", mpiwrap.Prod, value, func(a, b T) T { return a * b }))
}

func scans(w *mpiwrap.Comm) error {
	me := w.Rank()
	for _, n := range lengths {
		src, dest := ramp(n, me), make([]int, n)
		err := all(
			both("Scan", func() error { return mpiwrap.Scan(w, dest, src, mpiwrap.Sum) },
				func() (*mpiwrap.Request, error) { return mpiwrap.Iscan(w, dest, src, mpiwrap.Sum) },
				func() error { return equalSlices("sum", dest, sums(n, me+1)) }),
			both("Scan in place", func() error { copy(dest, src); return mpiwrap.Scan(w, dest, dest, mpiwrap.Sum) },
				func() (*mpiwrap.Request, error) { copy(dest, src); return mpiwrap.Iscan(w, dest, dest, mpiwrap.Sum) },
				func() error { return equalSlices("sum", dest, sums(n, me+1)) }),
			both("Exscan", func() error { return mpiwrap.Exscan(w, dest, src, mpiwrap.Sum) },
				func() (*mpiwrap.Request, error) { return mpiwrap.Iexscan(w, dest, src, mpiwrap.Sum) },
				func() error {
					if me == 0 {
						return nil
					}
					return equalSlices("sum", dest, sums(n, me))
				}))
		if err != nil {
			return fmt.Errorf("%d elements: %w", n, err)
		}
	}
	return nil
}

func reduceScatter(w *mpiwrap.Comm) error {
	size, me := w.Size(), w.Rank()
	for _, n := range lengths {
		src, dest := ramp(n*size, me), make([]int, n)
		want := sums(n*size, size)[me*n : (me+1)*n]
		check := func() error { defer clear(dest); return equalSlices("part", dest, want) }
		work := make([]int, n*size)
		err := all(
			both("ReduceScatterBlock", func() error { return mpiwrap.ReduceScatterBlock(w, dest, src, mpiwrap.Sum) },
				func() (*mpiwrap.Request, error) { return mpiwrap.IreduceScatterBlock(w, dest, src, mpiwrap.Sum) },
				check),
			both("ReduceScatterBlock in place",
				func() error { copy(work, src); return mpiwrap.ReduceScatterBlock(w, work[:n], work, mpiwrap.Sum) },
				func() (*mpiwrap.Request, error) {
					copy(work, src)
					return mpiwrap.IreduceScatterBlock(w, work[:n], work, mpiwrap.Sum)
				}, func() error { return equalSlices("part", work[:n], want) }))
		if err != nil {
			return fmt.Errorf("%d elements: %w", n, err)
		}
	}
	counts, before := make([]int, size), 0
	for r := range size {
		counts[r] = r * 10
		if r < me {
			before += counts[r]
		}
	}
	total := 5 * size * (size - 1)
	src, dest := ramp(total, me), make([]int, counts[me])
	want := sums(total, size)[before : before+counts[me]]
	return both("ReduceScatter", func() error { return mpiwrap.ReduceScatter(w, dest, src, counts, mpiwrap.Sum) },
		func() (*mpiwrap.Request, error) { return mpiwrap.IreduceScatter(w, dest, src, counts, mpiwrap.Sum) },
		func() error { defer clear(dest); return equalSlices("part", dest, want) })
}

// affine composes x -> a*x + b, which does not commute: the order shows.
func affine(acc, in []named) {
	for i := 0; i+1 < len(acc); i += 2 {
		acc[i], acc[i+1] = acc[i]*in[i], acc[i+1]*in[i]+in[i+1]
	}
}

func goReductions(w *mpiwrap.Comm) error {
	me := w.Rank()
	mine := func(r int) []named { return []named{2, named(r)} }
	fold := func(from, to int) []named {
		acc := mine(from)
		for r := from + 1; r < to; r++ {
			affine(acc, mine(r))
		}
		return acc
	}
	dest := make([]named, 2)
	err := all(
		both("AllreduceFunc", func() error { return mpiwrap.AllreduceFunc(w, dest, mine(me), affine) },
			func() (*mpiwrap.Request, error) { return mpiwrap.IallreduceFunc(w, dest, mine(me), affine) },
			func() error { defer clear(dest); return equalSlices("all", dest, fold(0, w.Size())) }),
		both("ScanFunc", func() error { return mpiwrap.ScanFunc(w, dest, mine(me), affine) },
			func() (*mpiwrap.Request, error) { return mpiwrap.IscanFunc(w, dest, mine(me), affine) },
			func() error { defer clear(dest); return equalSlices("up to this rank", dest, fold(0, me+1)) }))
	want := []named{0, 0}
	if me > 0 {
		want = fold(0, me)
	}
	err = all(err, both("ExscanFunc", func() error { return mpiwrap.ExscanFunc(w, dest, mine(me), affine) },
		func() (*mpiwrap.Request, error) { return mpiwrap.IexscanFunc(w, dest, mine(me), affine) },
		func() error { defer clear(dest); return equalSlices("below this rank", dest, want) }))
	for _, root := range roots(w) {
		clear(dest)
		err = all(err, both("ReduceFunc", func() error { return mpiwrap.ReduceFunc(w, dest, mine(me), affine, root) },
			func() (*mpiwrap.Request, error) { return mpiwrap.IreduceFunc(w, dest, mine(me), affine, root) },
			func() error {
				if me != root {
					return nil
				}
				return equalSlices("root", dest, fold(0, w.Size()))
			}))
	}
	return err
}

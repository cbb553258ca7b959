package mpitest

import (
	"errors"
	"fmt"

	"github.com/holdfast-hpc/holdfast/mpiwrap"
)

var requestCases = []Case{
	{"wait and test for some", waitSome},
	{"many requests at once", manyRequests},
	{"persistent requests", persistent},
	{"cancel", cancels},
	{"synchronous sends", synchronous},
	{"views", views},
	{"wait for a truncated one of several", waitTruncated},
}

func waitSome(w *mpiwrap.Comm) error {
	next, prev := neighbours(w)
	const n = 5
	in := make([][]float64, n)
	var rs []*mpiwrap.Request
	for i := range n {
		in[i] = make([]float64, 100*i)
		r, err := mpiwrap.Irecv(w, in[i], prev, i)
		if err != nil {
			return err
		}
		rs = append(rs, r)
	}
	for i := n - 1; i >= 0; i-- {
		if err := mpiwrap.Send(w, pattern(100*i, w.Rank(), i), next, i); err != nil {
			return err
		}
	}
	seen := map[int]int{}
	note := func(index []int, sts []mpiwrap.Status) error {
		for k, i := range index {
			seen[i]++
			if err := status("some", sts[k], prev, i, 800*i); err != nil {
				return err
			}
		}
		return nil
	}
	index, sts, err := mpiwrap.WaitSome(rs...)
	if err := all(err, equal("at least one", len(index) > 0, true), note(index, sts)); err != nil {
		return err
	}
	for len(seen) < n {
		index, sts, err := mpiwrap.TestSome(rs...)
		if err := all(err, note(index, sts)); err != nil {
			return err
		}
		i, st, ok, err := mpiwrap.TestAny(rs...)
		if err != nil {
			return err
		}
		if ok && i != mpiwrap.Undefined {
			if err := note([]int{i}, []mpiwrap.Status{st}); err != nil {
				return err
			}
		}
	}
	for i, k := range seen {
		if k != 1 {
			return fmt.Errorf("request %d was reported %d times", i, k)
		}
	}
	i, _, ok, err := mpiwrap.TestAny(rs...)
	index, _, serr := mpiwrap.WaitSome(rs...)
	return all(err, serr, equal("TestAny of none", ok && i == mpiwrap.Undefined, true),
		equal("WaitSome of none", len(index), 0))
}

func persistent(w *mpiwrap.Comm) error {
	next, prev := neighbours(w)
	in, out := make([]float64, 3), make([]float64, 3)
	r, err := mpiwrap.RecvInit(w, in, prev, 8)
	if err != nil {
		return err
	}
	s, err := mpiwrap.SendInit(w, out, next, 8)
	if err != nil {
		return err
	}
	if _, err := r.Wait(); !errors.Is(err, mpiwrap.ErrRequest) {
		return fmt.Errorf("wait for an inactive request: %w, want ErrRequest", err)
	}
	for round := range 4 {
		copy(out, pattern(3, w.Rank(), round))
		if err := mpiwrap.Start(r, s); err != nil {
			return err
		}
		if round == 1 {
			if err := wantErr("start twice", mpiwrap.Start(r), mpiwrap.ErrRequest); err != nil {
				return err
			}
		}
		if round%2 == 0 {
			if err := Drain(w); err != nil {
				return err
			}
		}
		st, err := r.Wait()
		if err := all(err, status("persistent", st, prev, 8, 24),
			equalSlices("data", in, pattern(3, prev, round))); err != nil {
			return err
		}
		if _, err := s.Wait(); err != nil {
			return err
		}
	}
	if err := persistentFromMailbox(w, r, in); err != nil {
		return err
	}
	return all(r.Free(), s.Free(), wantErr("start after free", mpiwrap.Start(s), mpiwrap.ErrRequest))
}

// persistentFromMailbox: the message is drained before the receive is started.
func persistentFromMailbox(w *mpiwrap.Comm, r *mpiwrap.Request, in []float64) error {
	next, prev := neighbours(w)
	s, err := mpiwrap.SsendInit(w, pattern(3, w.Rank(), 9), next, 8)
	if err := all(err, mpiwrap.Start(s), Drain(w), mpiwrap.Start(r)); err != nil {
		return err
	}
	st, ok, err := r.Test()
	if err := all(err, equal("from the mailbox", ok, true), status("mailbox", st, prev, 8, 24),
		equalSlices("data", in, pattern(3, prev, 9))); err != nil {
		return err
	}
	_, err = s.Wait()
	return all(err, s.Free())
}

func cancels(w *mpiwrap.Comm) error {
	_, prev := neighbours(w)
	r, err := mpiwrap.Irecv(w, make([]int, 1), prev, 11)
	if err := all(err, r.Cancel()); err != nil {
		return err
	}
	st, err := r.Wait()
	if err := all(err, equal("cancelled", st.Cancelled, true)); err != nil {
		return err
	}
	if err := wantErr("cancel twice", r.Cancel(), mpiwrap.ErrRequest); err != nil {
		return err
	}
	if err := w.Barrier(); err != nil {
		return err
	}
	// A message sent afterwards goes to the next receive.
	next, _ := neighbours(w)
	in := make([]int, 1)
	if err := mpiwrap.Send(w, []int{w.Rank()}, next, 11); err != nil {
		return err
	}
	_, err = mpiwrap.Recv(w, in, prev, 11)
	return all(err, equal("data", in[0], prev))
}

func synchronous(w *mpiwrap.Comm) error {
	next, prev := neighbours(w)
	s, err := mpiwrap.Issend(w, []int{w.Rank()}, next, 1)
	if err != nil {
		return err
	}
	in := make([]int, 1)
	if _, err := mpiwrap.Recv(w, in, prev, 1); err != nil {
		return err
	}
	if _, err := s.Wait(); err != nil {
		return err
	}
	r, err := mpiwrap.Irecv(w, in, prev, 2)
	if err := all(err, mpiwrap.Ssend(w, []int{-w.Rank()}, next, 2)); err != nil {
		return err
	}
	_, err = r.Wait()
	return all(err, equal("data", in[0], -prev))
}

// views sends a column and receives it into a box.
func views(w *mpiwrap.Comm) error {
	next, prev := neighbours(w)
	a := pattern(12, w.Rank(), 0) // 3 x 4
	column, err := mpiwrap.Strided(a, 1, 3, 1, 4)
	if err := all(err, mpiwrap.SendView(w, column, next, 1)); err != nil {
		return err
	}
	b := make([]float64, 20) // 4 x 5
	box, err := mpiwrap.Subarray(b, []int{4, 5}, []int{3, 1}, []int{1, 2})
	if err != nil {
		return err
	}
	st, err := mpiwrap.RecvView(w, box, prev, 1)
	p := pattern(12, prev, 0)
	if err := all(err, status("view", st, prev, 1, 24), equalSlices("box", []float64{b[7], b[12], b[17]},
		[]float64{p[1], p[5], p[9]})); err != nil {
		return err
	}
	_, bad := mpiwrap.Strided(a, 10, 3, 1, 4)
	_, worse := mpiwrap.Subarray(a, []int{3, 4}, []int{3, 2}, []int{0, 3})
	return all(wantErr("Strided", bad, mpiwrap.ErrLength), wantErr("Subarray", worse, mpiwrap.ErrLength))
}

// waitTruncated: the failure of one of several requests is reported and does
// not keep the others from completing.
func waitTruncated(w *mpiwrap.Comm) error {
	next, prev := neighbours(w)
	for round := range 3 {
		short, err := mpiwrap.Irecv(w, make([]int, 1), prev, 1)
		if err != nil {
			return err
		}
		good := make([]int, 2)
		r, err := mpiwrap.Irecv(w, good, prev, 2)
		if err := all(err, mpiwrap.Send(w, []int{1, 2}, next, 1), mpiwrap.Send(w, []int{3, 4}, next, 2),
			w.Barrier()); err != nil {
			return err
		}
		var failed error
		switch round {
		case 0:
			failed = mpiwrap.WaitAll(short, r)
		case 1:
			for range 2 {
				i, _, err := mpiwrap.WaitAny(short, r)
				if err != nil {
					failed = err
				} else if i != 1 {
					return fmt.Errorf("request %d completed without an error", i)
				}
			}
		case 2:
			for n := 0; n < 2; {
				index, _, err := mpiwrap.WaitSome(short, r)
				if n += len(index); err != nil {
					failed = err
				}
			}
		}
		if err := all(wantErr("truncated", failed, mpiwrap.ErrTruncate), equal("the other", good[1], 4)); err != nil {
			return err
		}
	}
	return nil
}

// manyRequests are more than one call into MPI takes, and than there are slots
// for small receives.
func manyRequests(w *mpiwrap.Comm) error {
	next, prev := neighbours(w)
	for _, n := range []int{150, 4500} {
		in := make([]int32, n)
		var rs []*mpiwrap.Request
		for i := range n {
			r, err := mpiwrap.Irecv(w, in[i:i+1], prev, i%7)
			if err != nil {
				return err
			}
			rs = append(rs, r)
		}
		for i := range n {
			s, err := mpiwrap.Isend(w, []int32{int32(i)}, next, i%7)
			if err != nil {
				return err
			}
			rs = append(rs, s)
		}
		if err := mpiwrap.WaitAll(rs...); err != nil {
			return err
		}
		for i, v := range in {
			if v != int32(i) {
				return fmt.Errorf("receive %d of %d got %d", i, n, v)
			}
		}
	}
	return nil
}

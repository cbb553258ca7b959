package mpitest

import (
	"errors"
	"fmt"

	"github.com/holdfast-hpc/holdfast/mpiwrap"
)

var misuseCases = []Case{
	{"every call on no communicator", onNothing},
	{"every call on a freed communicator", onFreed},
	{"requests and messages that are none", noRequests},
	{"a request named twice", namedTwice},
	{"polling for drained, posted and missing messages", pollMixture},
	{"truncation by every kind of receive", truncations},
	{"a message set aside across a drain", asideAcrossDrain},
	{"empty parts in v-variants", emptyParts},
}

// refused checks that a call fails with an error, without a panic; nil wants it
// to succeed.
func refused(name string, want error, call func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%s panics: %v", name, p)
		}
	}()
	if got := call(); !errors.Is(got, want) {
		return fmt.Errorf("%s: got %v, want %v", name, got, want)
	}
	return nil
}

// second and third return the error of a call.
func second[A any](_ A, err error) error { return err }

func third[A, B any](_ A, _ B, err error) error { return err }

// everyCall returns each call that takes a communicator, with arguments that fit two
// ranks.
func everyCall(c *mpiwrap.Comm) map[string]func() error {
	b, d := make([]int, 2), make([]int, 2)
	cnt := []int{1, 1}
	add := func(acc, in []int) { acc[0] += in[0] }
	return map[string]func() error{
		"Send":                func() error { return mpiwrap.Send(c, b, 0, 1) },
		"Ssend":               func() error { return mpiwrap.Ssend(c, b, 0, 1) },
		"Recv":                func() error { return second(mpiwrap.Recv(c, b, 0, 1)) },
		"Sendrecv":            func() error { return second(mpiwrap.Sendrecv(c, b, 0, 1, d, 0, 1)) },
		"Isend":               func() error { return second(mpiwrap.Isend(c, b, 0, 1)) },
		"Issend":              func() error { return second(mpiwrap.Issend(c, b, 0, 1)) },
		"Irecv":               func() error { return second(mpiwrap.Irecv(c, b, 0, 1)) },
		"SendInit":            func() error { return second(mpiwrap.SendInit(c, b, 0, 1)) },
		"SsendInit":           func() error { return second(mpiwrap.SsendInit(c, b, 0, 1)) },
		"RecvInit":            func() error { return second(mpiwrap.RecvInit(c, b, 0, 1)) },
		"Probe":               func() error { return second(c.Probe(0, 1)) },
		"Iprobe":              func() error { return third(c.Iprobe(0, 1)) },
		"Mprobe":              func() error { return second(c.Mprobe(0, 1)) },
		"Improbe":             func() error { return second(c.Improbe(0, 1)) },
		"Barrier":             func() error { return c.Barrier() },
		"Ibarrier":            func() error { return second(c.Ibarrier()) },
		"Bcast":               func() error { return mpiwrap.Bcast(c, b, 0) },
		"Ibcast":              func() error { return second(mpiwrap.Ibcast(c, b, 0)) },
		"Gather":              func() error { return mpiwrap.Gather(c, d, b[:1], 0) },
		"Igather":             func() error { return second(mpiwrap.Igather(c, d, b[:1], 0)) },
		"Gatherv":             func() error { return mpiwrap.Gatherv(c, d, cnt, nil, b[:1], 0) },
		"Igatherv":            func() error { return second(mpiwrap.Igatherv(c, d, cnt, nil, b[:1], 0)) },
		"Scatter":             func() error { return mpiwrap.Scatter(c, d[:1], b, 0) },
		"Iscatter":            func() error { return second(mpiwrap.Iscatter(c, d[:1], b, 0)) },
		"Scatterv":            func() error { return mpiwrap.Scatterv(c, d[:1], b, cnt, nil, 0) },
		"Iscatterv":           func() error { return second(mpiwrap.Iscatterv(c, d[:1], b, cnt, nil, 0)) },
		"Allgather":           func() error { return mpiwrap.Allgather(c, d, b[:1]) },
		"Iallgather":          func() error { return second(mpiwrap.Iallgather(c, d, b[:1])) },
		"Allgatherv":          func() error { return mpiwrap.Allgatherv(c, d, cnt, nil, b[:1]) },
		"Iallgatherv":         func() error { return second(mpiwrap.Iallgatherv(c, d, cnt, nil, b[:1])) },
		"Alltoall":            func() error { return mpiwrap.Alltoall(c, d, b) },
		"Ialltoall":           func() error { return second(mpiwrap.Ialltoall(c, d, b)) },
		"Alltoallv":           func() error { return mpiwrap.Alltoallv(c, d, cnt, nil, b, cnt, nil) },
		"Ialltoallv":          func() error { return second(mpiwrap.Ialltoallv(c, d, cnt, nil, b, cnt, nil)) },
		"Reduce":              func() error { return mpiwrap.Reduce(c, d, b, mpiwrap.Sum, 0) },
		"Ireduce":             func() error { return second(mpiwrap.Ireduce(c, d, b, mpiwrap.Sum, 0)) },
		"Allreduce":           func() error { return mpiwrap.Allreduce(c, d, b, mpiwrap.Sum) },
		"Iallreduce":          func() error { return second(mpiwrap.Iallreduce(c, d, b, mpiwrap.Sum)) },
		"Scan":                func() error { return mpiwrap.Scan(c, d, b, mpiwrap.Sum) },
		"Iscan":               func() error { return second(mpiwrap.Iscan(c, d, b, mpiwrap.Sum)) },
		"Exscan":              func() error { return mpiwrap.Exscan(c, d, b, mpiwrap.Sum) },
		"Iexscan":             func() error { return second(mpiwrap.Iexscan(c, d, b, mpiwrap.Sum)) },
		"ReduceScatterBlock":  func() error { return mpiwrap.ReduceScatterBlock(c, d[:1], b, mpiwrap.Sum) },
		"IreduceScatterBlock": func() error { return second(mpiwrap.IreduceScatterBlock(c, d[:1], b, mpiwrap.Sum)) },
		"ReduceScatter":       func() error { return mpiwrap.ReduceScatter(c, d[:1], b, cnt, mpiwrap.Sum) },
		"IreduceScatter":      func() error { return second(mpiwrap.IreduceScatter(c, d[:1], b, cnt, mpiwrap.Sum)) },
		"ReduceFunc":          func() error { return mpiwrap.ReduceFunc(c, d, b, add, 0) },
		"AllreduceFunc":       func() error { return mpiwrap.AllreduceFunc(c, d, b, add) },
		"ScanFunc":            func() error { return mpiwrap.ScanFunc(c, d, b, add) },
		"ExscanFunc":          func() error { return mpiwrap.ExscanFunc(c, d, b, add) },
		"IallreduceFunc":      func() error { return second(mpiwrap.IallreduceFunc(c, d, b, add)) },
		"IreduceFunc":         func() error { return second(mpiwrap.IreduceFunc(c, d, b, add, 0)) },
		"Dup":                 func() error { return second(c.Dup()) },
		"Split":               func() error { return second(c.Split(0, 0)) },
		"SplitNode":           func() error { return second(c.SplitNode(0)) },
		"Create":              func() error { return second(c.Create([]int{0})) },
		"CreateGroup":         func() error { return second(c.CreateGroup([]int{0}, 3)) },
		"Free":                func() error { return c.Free() },
		"NewNeighborhood": func() error {
			n, err := c.NewNeighborhood([]int{0}, []int{0})
			if err != nil {
				return err
			}
			return mpiwrap.NeighborAllgather(n, d[:1], b[:1])
		},
		"NewCart":     func() error { return second(c.Cart([]int{2}, []bool{true})) },
		"WinAllocate": func() error { return second(mpiwrap.WinAllocate[int](c, 3)) },
		"SendView": func() error {
			v, _ := mpiwrap.Strided(b, 0, 2, 1, 1)
			return mpiwrap.SendView(c, v, 0, 1)
		},
		"RecvView": func() error {
			v, _ := mpiwrap.Strided(b, 0, 2, 1, 1)
			return second(mpiwrap.RecvView(c, v, 0, 1))
		},
	}
}

func onNothing(*mpiwrap.Comm) error {
	var errs []error
	for name, call := range everyCall(nil) {
		errs = append(errs, refused(name, mpiwrap.ErrFreed, call))
	}
	return errors.Join(errs...)
}

func onFreed(w *mpiwrap.Comm) error {
	c, err := w.Dup()
	if err != nil {
		return err
	}
	calls, reusable := everyCall(c), mpiwrap.NewRequest(c, make([]int, 1))
	prepared, err := mpiwrap.RecvInit(c, make([]int, 1), 0, 1)
	if err := all(err, c.Free()); err != nil {
		return err
	}
	calls["Request.Irecv"] = func() error { return reusable.Irecv(0, 1) }
	calls["Request.Isend"] = func() error { return reusable.Isend(0, 1) }
	calls["Start"] = func() error { return mpiwrap.Start(prepared) }
	var errs []error
	for name, call := range calls {
		errs = append(errs, refused(name, mpiwrap.ErrFreed, call))
	}
	return errors.Join(append(errs, prepared.Free())...)
}

// noRequests: nil is complete, as MPI_REQUEST_NULL is; what no call has made is
// refused.
func noRequests(*mpiwrap.Comm) error {
	var null *mpiwrap.Request
	zero := &mpiwrap.Request{}
	x := make([]int, 1)
	return errors.Join(
		refused("Wait", nil, func() error { return second(null.Wait()) }),
		refused("Test", nil, func() error { return third(null.Test()) }),
		refused("Cancel", nil, func() error { return null.Cancel() }),
		refused("Free", nil, func() error { return null.Free() }),
		refused("WaitAll", nil, func() error { return mpiwrap.WaitAll(null, nil) }),
		refused("WaitAny", nil, func() error { return third(mpiwrap.WaitAny(null, nil)) }),
		refused("WaitSome", nil, func() error { return third(mpiwrap.WaitSome(null, nil)) }),
		refused("TestSome", nil, func() error { return third(mpiwrap.TestSome(null, nil)) }),
		refused("WaitAll of none", nil, func() error { return mpiwrap.WaitAll() }),
		refused("Start of none", nil, func() error { return mpiwrap.Start() }),
		refused("Irecv", mpiwrap.ErrRequest, func() error { return null.Irecv(0, 1) }),
		refused("Isend", mpiwrap.ErrRequest, func() error { return null.Isend(0, 1) }),
		refused("Start", mpiwrap.ErrRequest, func() error { return mpiwrap.Start(null) }),
		refused("MarshalBinary", mpiwrap.ErrRequest, func() error { return second(null.MarshalBinary()) }),
		refused("UnmarshalBinary", mpiwrap.ErrRequest, func() error { return null.UnmarshalBinary(nil) }),
		refused("Wait of a zero Request", mpiwrap.ErrRequest, func() error { return second(zero.Wait()) }),
		refused("WaitAll of a zero Request", mpiwrap.ErrRequest, func() error { return mpiwrap.WaitAll(zero) }),
		refused("Mrecv of nil", mpiwrap.ErrRequest, func() error { return second(mpiwrap.Mrecv(nil, x)) }),
		refused("Mrecv of a zero Message", mpiwrap.ErrRequest, func() error {
			return second(mpiwrap.Mrecv(&mpiwrap.Message{}, x))
		}))
}

// namedTwice: in one list, a request counts once.
func namedTwice(w *mpiwrap.Comm) error {
	next, prev := neighbours(w)
	ways := map[string]func(r *mpiwrap.Request) error{
		"WaitAll": func(r *mpiwrap.Request) error { return mpiwrap.WaitAll(r, r, r) },
		"WaitAny": func(r *mpiwrap.Request) error { return third(mpiwrap.WaitAny(r, r)) },
		"WaitSome": func(r *mpiwrap.Request) error {
			index, _, err := mpiwrap.WaitSome(r, r)
			return all(err, equalSlices("index", index, []int{0}))
		},
		"TestAll": func(r *mpiwrap.Request) error {
			for {
				if ok, err := mpiwrap.TestAll(r, r); ok || err != nil {
					return err
				}
			}
		},
		"Wait after WaitAll": func(r *mpiwrap.Request) error {
			err := mpiwrap.WaitAll(r)
			return all(err, refused("Wait", mpiwrap.ErrRequest, func() error { return second(r.Wait()) }))
		},
	}
	for _, way := range []string{"WaitAll", "WaitAny", "WaitSome", "TestAll", "Wait after WaitAll"} {
		for _, n := range []int{1, 500} {
			in := make([]int, n)
			r, err := mpiwrap.Irecv(w, in, prev, 4)
			if err := all(err, w.Barrier(), mpiwrap.Send(w, pad(n, 6), next, 4)); err != nil {
				return err
			}
			if err := all(ways[way](r), equal("received", in[n-1], 6)); err != nil {
				return fmt.Errorf("%s of %d: %w", way, n, err)
			}
		}
	}
	return nil
}

// pad returns n zeros, the last one v.
func pad(n, v int) []int {
	s := make([]int, n)
	s[n-1] = v
	return s
}

// pollMixture polls for a message that a drain has matched, for one it has put
// into the mailbox, and for one that has not been sent.
func pollMixture(w *mpiwrap.Comm) error {
	next, prev := neighbours(w)
	a, b, c := []int{0}, []int{0}, []int{0}
	matched, err := mpiwrap.Irecv(w, a, prev, 1)
	if err := all(err, mpiwrap.Send(w, []int{1}, next, 1), mpiwrap.Send(w, []int{2}, next, 2), Drain(w)); err != nil {
		return err
	}
	boxed, err1 := mpiwrap.Irecv(w, b, mpiwrap.AnySource, 2)
	missing, err2 := mpiwrap.Irecv(w, c, prev, 3)
	index, sts, err := mpiwrap.TestSome(matched, boxed, missing)
	if err := all(err1, err2, err); err != nil {
		return err
	}
	if fmt.Sprint(index) != "[0 1]" || sts[1].Source != prev || a[0] != 1 || b[0] != 2 {
		return fmt.Errorf("TestSome: %v %+v, received %v and %v", index, sts, a, b)
	}
	if i, _, ok, err := mpiwrap.TestAny(matched, boxed, missing); ok || err != nil {
		return fmt.Errorf("TestAny found %d among requests that are over or have no message: %v", i, err)
	}
	err = errors.Join(
		refused("Cancel after completion", mpiwrap.ErrRequest, matched.Cancel),
		refused("Wait twice", mpiwrap.ErrRequest, func() error { return second(matched.Wait()) }),
		refused("Test after completion", mpiwrap.ErrRequest, func() error { return third(boxed.Test()) }))
	// What a drain has matched cannot be cancelled.
	if err := all(err, w.Barrier(), mpiwrap.Send(w, []int{3}, next, 3), Drain(w), missing.Cancel()); err != nil {
		return err
	}
	st, err := missing.Wait()
	if st.Cancelled || c[0] != 3 {
		err = errors.Join(err, fmt.Errorf("cancelled after its match: %+v, received %v", st, c))
	}
	return err
}

// truncations: a message that is too long fails the receive that gets it, whether
// it is in MPI or in the mailbox, and nothing else.
func truncations(w *mpiwrap.Comm) error {
	next, prev := neighbours(w)
	small := make([]byte, 3)
	ways := map[string]func() error{
		"Recv": func() error { return second(mpiwrap.Recv(w, small, prev, 7)) },
		"Irecv": func() error {
			r, err := mpiwrap.Irecv(w, small, prev, 7)
			return all(err, mpiwrap.WaitAll(r))
		},
		"Irecv, long": func() error {
			r, err := mpiwrap.Irecv(w, make([]byte, 100), prev, 7)
			if err == nil {
				_, err = r.Wait()
			}
			return err
		},
		"Sendrecv": func() error {
			err := second(mpiwrap.Sendrecv(w, []byte{1}, next, 8, small, prev, 7))
			_, other := mpiwrap.Recv(w, make([]byte, 1), prev, 8)
			return all(other, err)
		},
		"Mrecv": func() error {
			m, err := w.Mprobe(prev, 7)
			if err == nil {
				_, err = mpiwrap.Mrecv(m, small)
			}
			return err
		},
	}
	for _, way := range []string{"Recv", "Irecv", "Irecv, long", "Sendrecv", "Mrecv"} {
		for _, drained := range []bool{false, true} {
			if err := truncates(w, drained, ways[way]); err != nil {
				return fmt.Errorf("%s, drained %v: %w", way, drained, err)
			}
		}
	}
	return nil
}

func truncates(w *mpiwrap.Comm, drained bool, receive func() error) error {
	next, prev := neighbours(w)
	bystander, err := mpiwrap.Irecv(w, make([]byte, 1), prev, 99)
	if err != nil {
		return err
	}
	s, err := mpiwrap.Isend(w, make([]byte, 200), next, 7)
	if drained {
		err = all(err, Drain(w))
	}
	if err != nil {
		return err
	}
	var e *mpiwrap.Error
	if err := receive(); !errors.Is(err, mpiwrap.ErrTruncate) || !errors.As(err, &e) || e.Peer != prev || e.Tag != 7 {
		return fmt.Errorf("got %w, want ErrTruncate with peer %d and tag 7", err, prev)
	}
	_, err = s.Wait()
	if err := all(err, bystander.Cancel()); err != nil {
		return err
	}
	st, err := bystander.Wait()
	return all(err, equal("cancelled", st.Cancelled, true))
}

// asideAcrossDrain: a later receive gets the later message.
func asideAcrossDrain(w *mpiwrap.Comm) error {
	next, prev := neighbours(w)
	for v := range 2 {
		if err := mpiwrap.Send(w, []int{41 + v}, next, 11); err != nil {
			return err
		}
	}
	m, err := w.Mprobe(prev, 11)
	if err := all(err, Drain(w)); err != nil {
		return err
	}
	x, y := []int{0}, []int{0}
	_, err1 := mpiwrap.Recv(w, x, prev, 11)
	_, err2 := mpiwrap.Mrecv(m, y)
	return all(err1, err2, equal("received", x[0], 42), equal("set aside", y[0], 41),
		refused("Mrecv twice", mpiwrap.ErrRequest, func() error { return second(mpiwrap.Mrecv(m, y)) }))
}

// emptyParts: no rank, or only the last, has anything.
func emptyParts(w *mpiwrap.Comm) error {
	n := w.Size()
	zero := make([]int, n)
	var none []int
	err := all(
		mpiwrap.Gatherv(w, none, zero, nil, none, 0), mpiwrap.Scatterv(w, none, none, zero, zero, 0),
		mpiwrap.Allgatherv(w, none, zero, nil, none), mpiwrap.Alltoallv(w, none, zero, nil, none, zero, zero),
		mpiwrap.ReduceScatter(w, none, none, zero, mpiwrap.Sum))
	counts, displs := make([]int, n), make([]int, n)
	counts[n-1], displs[n-1] = 3, 2
	mine := none
	if w.Rank() == n-1 {
		mine = []int{7, 8, 9}
	}
	dest := make([]int, 5)
	return all(err, mpiwrap.Allgatherv(w, dest, counts, displs, mine), equalSlices("dest", dest, []int{0, 0, 7, 8, 9}))
}

package mpitest

import (
	"github.com/holdfast-hpc/holdfast/mpiwrap"
)

var p2pCases = []Case{
	{"ring of all sizes", ring},
	{"messages to self", selfMessages},
	{"ProcNull", procNull},
	{"probe, then receive", probes},
	{"truncation", truncation},
	{"bad arguments", badP2P},
	{"requests", requests},
}

func neighbours(w *mpiwrap.Comm) (next, prev int) {
	return (w.Rank() + 1) % w.Size(), (w.Rank() + w.Size() - 1) % w.Size()
}

// ring passes messages of sizes around every protocol limit.
func ring(w *mpiwrap.Comm) error {
	next, prev := neighbours(w)
	for tag, n := range []int{0, 1, 7, 512, 513, 1 << 13, 1 << 17} {
		in := make([]float64, n)
		r, err := mpiwrap.Irecv(w, in, prev, tag)
		if err != nil {
			return err
		}
		if err := mpiwrap.Send(w, pattern(n, w.Rank(), tag), next, tag); err != nil {
			return err
		}
		st, err := r.Wait()
		if err := all(err, status("Irecv", st, prev, tag, 8*n), equalSlices("data", in, pattern(n, prev, tag)),
			equal("count", mpiwrap.StatusCount[float64](st), n)); err != nil {
			return err
		}
		clear(in)
		st, err = mpiwrap.Sendrecv(w, pattern(n, w.Rank(), tag), next, tag, in, prev, tag)
		if err := all(err, status("Sendrecv", st, prev, tag, 8*n),
			equalSlices("data", in, pattern(n, prev, tag))); err != nil {
			return err
		}
	}
	return nil
}

func selfMessages(w *mpiwrap.Comm) error {
	me := w.Rank()
	s, err := mpiwrap.Isend(w, pattern(20_000, me, 1), me, 1)
	if err != nil {
		return err
	}
	in := make([]float64, 20_000)
	st, err := mpiwrap.Recv(w, in, mpiwrap.AnySource, mpiwrap.AnyTag)
	if err := all(err, status("self", st, me, 1, 160_000),
		equalSlices("data", in, pattern(20_000, me, 1))); err != nil {
		return err
	}
	_, err = s.Wait()
	return err
}

func procNull(w *mpiwrap.Comm) error {
	buf := []int{1}
	st, err := mpiwrap.Recv(w, buf, mpiwrap.ProcNull, 5)
	if err := all(err, status("Recv", st, mpiwrap.ProcNull, mpiwrap.AnyTag, 0), equal("buf", buf[0], 1),
		mpiwrap.Send(w, buf, mpiwrap.ProcNull, 5)); err != nil {
		return err
	}
	r, err := mpiwrap.Irecv(w, buf, mpiwrap.ProcNull, 5)
	if err != nil {
		return err
	}
	s, err := mpiwrap.Isend(w, buf, mpiwrap.ProcNull, 5)
	if err := all(err, mpiwrap.WaitAll(r, s)); err != nil {
		return err
	}
	_, err = mpiwrap.Sendrecv(w, buf, mpiwrap.ProcNull, 1, buf, mpiwrap.ProcNull, 1)
	if err == nil {
		return equal("overlapping Sendrecv", true, false)
	}
	st, err = mpiwrap.Sendrecv(w, buf, mpiwrap.ProcNull, 1, []int{0}, mpiwrap.ProcNull, 1)
	if err := all(err, equal("source", st.Source, mpiwrap.ProcNull)); err != nil {
		return err
	}
	st, err = w.Probe(mpiwrap.ProcNull, 3)
	if err := all(err, equal("Probe", st.Source, mpiwrap.ProcNull)); err != nil {
		return err
	}
	m, err := w.Mprobe(mpiwrap.ProcNull, 3)
	if err != nil {
		return err
	}
	st, err = mpiwrap.Mrecv(m, buf)
	return all(err, equal("Mrecv", st.Source, mpiwrap.ProcNull))
}

func probes(w *mpiwrap.Comm) error {
	next, prev := neighbours(w)
	s, err := mpiwrap.Isend(w, pattern(40, w.Rank(), 3), next, 3)
	if err != nil {
		return err
	}
	st, err := w.Probe(mpiwrap.AnySource, mpiwrap.AnyTag)
	if err := all(err, status("Probe", st, prev, 3, 320)); err != nil {
		return err
	}
	st, ok, err := w.Iprobe(prev, 3)
	if err := all(err, equal("Iprobe", ok, true), status("Iprobe", st, prev, 3, 320)); err != nil {
		return err
	}
	if _, ok, err = w.Iprobe(prev, 4); err != nil || ok {
		return all(err, equal("Iprobe of another tag", ok, false))
	}
	m, err := w.Mprobe(prev, mpiwrap.AnyTag)
	if err := all(err, status("Mprobe", m.Status(), prev, 3, 320)); err != nil {
		return err
	}
	if _, ok, err = w.Iprobe(prev, 3); err != nil || ok {
		return all(err, equal("Iprobe after Mprobe", ok, false))
	}
	in := make([]float64, 40)
	st, err = mpiwrap.Mrecv(m, in)
	if err := all(err, status("Mrecv", st, prev, 3, 320), equalSlices("data", in, pattern(40, prev, 3))); err != nil {
		return err
	}
	if _, err = mpiwrap.Mrecv(m, in); err == nil {
		return wantErr("second Mrecv", err, mpiwrap.ErrRequest)
	}
	if _, err = s.Wait(); err != nil {
		return err
	}
	return improbe(w)
}

func improbe(w *mpiwrap.Comm) error {
	next, prev := neighbours(w)
	if err := mpiwrap.Send(w, []int32{int32(w.Rank())}, next, 9); err != nil {
		return err
	}
	for {
		m, err := w.Improbe(prev, 9)
		if err != nil {
			return err
		}
		if m == nil {
			continue
		}
		in := make([]int32, 1)
		_, err = mpiwrap.Mrecv(m, in)
		return all(err, equal("data", in[0], int32(prev)))
	}
}

// truncation: the message is consumed, the error names peer and tag, and the next
// message comes as if nothing had happened.
func truncation(w *mpiwrap.Comm) error {
	next, prev := neighbours(w)
	var sends []*mpiwrap.Request
	for _, n := range []int{100, 1} {
		s, err := mpiwrap.Isend(w, pattern(n, w.Rank(), 1), next, 1)
		if err != nil {
			return err
		}
		sends = append(sends, s)
	}
	in := make([]float64, 10)
	_, err := mpiwrap.Recv(w, in, mpiwrap.AnySource, 1)
	if err := wantErr("truncated Recv", err, mpiwrap.ErrTruncate); err != nil {
		return err
	}
	st, err := mpiwrap.Recv(w, in, prev, 1)
	if err := all(err, status("next", st, prev, 1, 8), mpiwrap.WaitAll(sends...)); err != nil {
		return err
	}
	r, err := mpiwrap.Irecv(w, in, prev, 2)
	if err != nil {
		return err
	}
	if err := mpiwrap.Send(w, pattern(11, w.Rank(), 2), next, 2); err != nil {
		return err
	}
	return wantErr("truncated Irecv", mpiwrap.WaitAll(r), mpiwrap.ErrTruncate)
}

func badP2P(w *mpiwrap.Comm) error {
	buf := make([]int, 1)
	n := w.Size()
	_, recvRank := mpiwrap.Recv(w, buf, n, 0)
	_, recvTag := mpiwrap.Recv(w, buf, 0, -5)
	_, irecvRank := mpiwrap.Irecv(w, buf, -7, 0)
	_, isendTag := mpiwrap.Isend(w, buf, 0, w.MaxTag()+1)
	_, probeRank := w.Probe(n+1, 0)
	_, _, iprobeTag := w.Iprobe(0, w.MaxTag()+1)
	return all(
		wantErr("Send to size", mpiwrap.Send(w, buf, n, 0), mpiwrap.ErrRank),
		wantErr("Send to any", mpiwrap.Send(w, buf, mpiwrap.AnySource, 0), mpiwrap.ErrRank),
		wantErr("Send tag", mpiwrap.Send(w, buf, 0, w.MaxTag()+1), mpiwrap.ErrTag),
		wantErr("Send any tag", mpiwrap.Send(w, buf, 0, mpiwrap.AnyTag), mpiwrap.ErrTag),
		wantErr("Recv rank", recvRank, mpiwrap.ErrRank),
		wantErr("Recv tag", recvTag, mpiwrap.ErrTag),
		wantErr("Irecv rank", irecvRank, mpiwrap.ErrRank),
		wantErr("Isend tag", isendTag, mpiwrap.ErrTag),
		wantErr("Probe rank", probeRank, mpiwrap.ErrRank),
		wantErr("Iprobe tag", iprobeTag, mpiwrap.ErrTag),
	)
}

// requests: waiting twice is an error, nil and inactive ones are skipped.
func requests(w *mpiwrap.Comm) error {
	next, prev := neighbours(w)
	in := make([]int, 1)
	r, err := mpiwrap.Irecv(w, in, prev, 6)
	if err != nil {
		return err
	}
	s, err := mpiwrap.Isend(w, []int{w.Rank()}, next, 6)
	if err != nil {
		return err
	}
	seen := 0
	for {
		i, _, err := mpiwrap.WaitAny(nil, s, r)
		if err != nil {
			return err
		}
		if i == mpiwrap.Undefined {
			break
		}
		seen |= 1 << i
	}
	_, again := r.Wait()
	_, _, test := s.Test()
	ok, err := mpiwrap.TestAll(r, nil, s)
	return all(err, equal("TestAll of inactive", ok, true), equal("seen", seen, 6), equal("data", in[0], prev),
		wantErr("Wait twice", again, mpiwrap.ErrRequest), wantErr("Test after Wait", test, mpiwrap.ErrRequest),
		mpiwrap.WaitAll(r, nil, s))
}

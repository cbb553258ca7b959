package mpitest

import (
	"fmt"
	"time"

	"github.com/holdfast-hpc/holdfast/mpiwrap"
)

var commCases = []Case{
	{"names, splits and frees", splits},
	{"creation by lists and groups", lists},
	{"groups are made unseen", groupUnseen},
	{"nodes", nodes},
	{"use after free", afterFree},
	{"free with messages in flight", freeInFlight},
	{"grids", grids},
	{"neighbourhood collectives", neighbourhoods},
	{"communicators do not mix", separate},
}

func splits(w *mpiwrap.Comm) error {
	d, err := w.Dup()
	if err != nil {
		return err
	}
	sub, err := d.Split(w.Rank()%2, -w.Rank())
	if err != nil {
		return err
	}
	// Descending keys reverse the order: the leader is the highest of its parity.
	leader := w.Size() - 1
	if leader%2 != w.Rank()%2 {
		leader--
	}
	if err := all(equal("name", sub.Name(), fmt.Sprintf("%s.1[%d]", d.Name(), leader)),
		equal("leader", sub.WorldRank(0), leader), equal("own", sub.WorldRank(sub.Rank()), w.Rank())); err != nil {
		return err
	}
	sum := []int{0}
	if err := all(mpiwrap.Allreduce(sub, sum, []int{1}, mpiwrap.Sum), equal("sum", sum[0], sub.Size())); err != nil {
		return err
	}
	color := mpiwrap.Undefined
	if w.Rank() == 0 {
		color = 7
	}
	one, err := w.Split(color, 0)
	if err := all(err, equal("nil outside", one == nil, w.Rank() != 0)); err != nil {
		return err
	}
	_, err = w.Split(-3, 0)
	if err := wantErr("negative color", err, mpiwrap.ErrUnsupported); err != nil {
		return err
	}
	if one != nil {
		if err := one.Free(); err != nil {
			return err
		}
	}
	return all(sub.Free(), d.Free(), wantErr("free the world", w.Free(), mpiwrap.ErrUnsupported))
}

func lists(w *mpiwrap.Comm) error {
	n := w.Size()
	reversed := make([]int, n)
	for i := range reversed {
		reversed[i] = n - 1 - i
	}
	r, err := w.Create(reversed)
	if err := all(err, equal("rank", r.Rank(), n-1-w.Rank()), r.Barrier()); err != nil {
		return err
	}
	half := reversed[:(n+1)/2]
	h, err := w.Create(half)
	inside := n-1-w.Rank() < len(half)
	if err := all(err, equal("inside", h != nil, inside)); err != nil {
		return err
	}
	if h != nil {
		g, err := w.CreateGroup(half, 3)
		if err := all(err, equal("size", g.Size(), len(half)), g.Barrier(), g.Free(), h.Free()); err != nil {
			return err
		}
	}
	_, twice := w.Create([]int{0, 0})
	_, outside := w.Create([]int{n})
	none, err := w.Create(nil)
	return all(err, equal("empty list", none == nil, true), r.Free(),
		wantErr("rank twice", twice, mpiwrap.ErrRank), wantErr("rank outside", outside, mpiwrap.ErrRank))
}

// groupUnseen: a rank that comes late to the making of a group sees nothing of what the
// others send for it, and its drain takes nothing of that.
func groupUnseen(w *mpiwrap.Comm) error {
	late := w.Size() - 1
	if w.Size() == 1 || w.Rank() != 0 && w.Rank() != late {
		return nil
	}
	if w.Rank() == late {
		for begun := time.Now(); time.Since(begun) < 50*time.Millisecond; {
			if st, there, err := w.Iprobe(mpiwrap.AnySource, mpiwrap.AnyTag); there || err != nil {
				return fmt.Errorf("a probe finds %d bytes from %d with tag %d: %v", st.Bytes, st.Source, st.Tag, err)
			}
			if n, err := w.Endpoint().DrainSome(); n > 0 || err != nil {
				return fmt.Errorf("%d messages were drained: %v", n, err)
			}
		}
	}
	g, err := w.CreateGroup([]int{late, 0}, 5)
	if err != nil {
		return err
	}
	return all(equal("rank", g.Rank(), map[int]int{late: 0, 0: 1}[w.Rank()]), g.Free())
}

func nodes(w *mpiwrap.Comm) error {
	intra, inter, err := w.Nodes()
	if err := all(err, equal("leader has inter", inter != nil, intra.Rank() == 0), intra.Barrier()); err != nil {
		return err
	}
	count := []int{0}
	if intra.Rank() == 0 {
		count[0] = inter.Size()
	}
	if err := all(mpiwrap.Bcast(intra, count, 0), equal("nodes of one machine", count[0], 1)); err != nil {
		return err
	}
	if inter != nil {
		if err := inter.Free(); err != nil {
			return err
		}
	}
	return intra.Free()
}

func afterFree(w *mpiwrap.Comm) error {
	d, err := w.Dup()
	if err := all(err, d.Free()); err != nil {
		return err
	}
	_, dup := d.Dup()
	_, irecv := mpiwrap.Irecv(d, []int{0}, 0, 0)
	return all(wantErr("Barrier", d.Barrier(), mpiwrap.ErrFreed), wantErr("Send", mpiwrap.Send(d, []int{1}, 0, 0),
		mpiwrap.ErrFreed),
		wantErr("Free", d.Free(), mpiwrap.ErrFreed), wantErr("Dup", dup, mpiwrap.ErrFreed),
		wantErr("Irecv", irecv, mpiwrap.ErrFreed))
}

// separate: the same rank and tag on two communicators are two messages.
func separate(w *mpiwrap.Comm) error {
	d, err := w.Dup()
	if err != nil {
		return err
	}
	next, prev := neighbours(w)
	in := make([]int, 1)
	if err := all(mpiwrap.Send(w, []int{1}, next, 0), mpiwrap.Send(d, []int{2}, next, 0)); err != nil {
		return err
	}
	if w.Rank()%2 == 0 {
		if err := drainAlone(w); err != nil {
			return err
		}
	}
	_, err = mpiwrap.Recv(d, in, mpiwrap.AnySource, mpiwrap.AnyTag)
	if err := all(err, equal("on the duplicate", in[0], 2)); err != nil {
		return err
	}
	_, err = mpiwrap.Recv(w, in, prev, 0)
	return all(err, equal("on the world", in[0], 1), d.Free())
}

// drainAlone drains without the others: what has arrived goes to the mailbox, at any
// moment.
func drainAlone(w *mpiwrap.Comm) error {
	for range 20 {
		if _, err := w.Endpoint().DrainSome(); err != nil {
			return err
		}
	}
	return nil
}

func grids(w *mpiwrap.Comm) error {
	dims, err := mpiwrap.Dims(w.Size(), nil, 2)
	if err != nil {
		return err
	}
	g, err := w.Cart(dims, []bool{true, false})
	if err != nil {
		return err
	}
	at := g.Coords(g.Rank())
	if err := equal("rank of own coordinates", g.RankAt(at), g.Rank()); err != nil {
		return err
	}
	from, to, err := g.Shift(0, 1)
	in := []int{-1}
	if err != nil {
		return err
	}
	if _, err := mpiwrap.Sendrecv(g.Comm, []int{g.Rank()}, to, 0, in, from, 0); err != nil {
		return err
	}
	if err := equal("ring along dimension 0", in[0], from); err != nil {
		return err
	}
	if from, _, err = g.Shift(1, 1); err != nil || (at[1] == 0) != (from == mpiwrap.ProcNull) {
		return fmt.Errorf("open dimension: below %v is %d (%v)", at, from, err)
	}
	row, err := g.Sub([]bool{false, true})
	if err != nil {
		return err
	}
	_, bad := w.Cart([]int{w.Size() + 1}, []bool{false})
	_, _, badShift := g.Shift(2, 1)
	return all(equal("row", row.Size(), dims[1]), equal("place in row", row.Rank(), at[1]), row.Free(), g.Free(),
		wantErr("grid too large", bad, mpiwrap.ErrLength), wantErr("dimension", badShift, mpiwrap.ErrLength))
}

func neighbourhoods(w *mpiwrap.Comm) error {
	g, err := w.Cart([]int{w.Size()}, []bool{true})
	if err != nil {
		return err
	}
	n := g.Neighbors()
	next, prev := neighbours(w)
	dest := make([]int, 4)
	err = both("NeighborAllgather", func() error {
		return mpiwrap.NeighborAllgather(n, dest, []int{w.Rank(), -w.Rank()})
	},
		func() (*mpiwrap.Request, error) {
			clear(dest)
			return mpiwrap.IneighborAllgather(n, dest, []int{w.Rank(), -w.Rank()})
		}, func() error { return equalSlices("below, above", dest, []int{prev, -prev, next, -next}) })
	if err != nil {
		return err
	}
	// What goes down arrives from above, even when both are the same rank.
	down, up := 100+w.Rank(), 200+w.Rank()
	two := make([]int, 2)
	err = both("NeighborAlltoall", func() error { return mpiwrap.NeighborAlltoall(n, two, []int{down, up}) },
		func() (*mpiwrap.Request, error) { return mpiwrap.IneighborAlltoall(n, two, []int{down, up}) },
		func() error { defer clear(two); return equalSlices("received", two, []int{200 + prev, 100 + next}) })
	if err != nil {
		return err
	}
	three := make([]int, 3)
	err = all(mpiwrap.NeighborAlltoallv(n, three, []int{1, 2}, nil, []int{7, 8, w.Rank()}, []int{2, 1}, nil),
		equalSlices("Alltoallv", three, []int{prev, 7, 8}),
		mpiwrap.NeighborAllgatherv(n, dest, []int{2, 2}, []int{2, 0}, []int{w.Rank(), -w.Rank()}),
		equalSlices("Allgatherv", dest, []int{next, -next, prev, -prev}))
	if err != nil {
		return err
	}
	return all(neighbourGraph(w), g.Free())
}

// neighbourGraph: everyone gives to rank 0, with a drain while it is under way.
func neighbourGraph(w *mpiwrap.Comm) error {
	var sources []int
	if w.Rank() == 0 {
		for r := range w.Size() {
			sources = append(sources, r)
		}
	}
	n, err := w.NewNeighborhood(sources, []int{0})
	if err != nil {
		return err
	}
	dest := make([]float64, 2000*len(sources))
	r, err := mpiwrap.IneighborAllgather(n, dest, pattern(2000, w.Rank(), 0))
	if err := all(err, Drain(w)); err != nil {
		return err
	}
	_, done, err := r.Test()
	if err := all(err, equal("complete at the cut", done, true)); err != nil {
		return err
	}
	if w.Rank() != 0 {
		return nil
	}
	return equalSlices("gathered", dest, everyone(w.Size(), 2000, 0))
}

// freeInFlight: the next drain does not miss messages of a freed communicator that were
// never received.
func freeInFlight(w *mpiwrap.Comm) error {
	for _, n := range []int{1, 30_000} {
		d, err := w.Dup()
		if err != nil {
			return err
		}
		next, prev := neighbours(w)
		s, err := mpiwrap.Isend(d, pattern(n, w.Rank(), 0), next, 0)
		if err != nil {
			return err
		}
		kept, err := mpiwrap.Irecv(d, make([]float64, 1), prev, 1)
		if err != nil {
			return err
		}
		if err := all(mpiwrap.Send(d, []float64{1}, next, 1), d.Free(), Drain(w)); err != nil {
			return err
		}
		if err := mpiwrap.WaitAll(s, kept); err != nil {
			return err
		}
	}
	return nil
}

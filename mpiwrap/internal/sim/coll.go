package sim

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/holdfast-hpc/holdfast/mpiwrap/internal/driver"
)

// slot is one collective of one communicator.
type slot struct {
	what    string
	arrived int
	in      []*input
	extra   [][]int
	handles []driver.Handle
	err     error
}

// input is one rank's input.
type input struct {
	a    driver.Coll
	data []byte
}

func newSlot(n int) *slot {
	return &slot{in: make([]*input, n), extra: make([][]int, n), handles: make([]driver.Handle, n)}
}

// enterSlot finds the slot of the rank's next collective on m. Ranks that disagree about the collective all fail.
func (r *rank) enterSlot(m *comm, what string) (*slot, int, error) {
	me, ok := r.rankIn(m)
	if !ok {
		return nil, -1, fail(driver.ClassComm, "rank %d is not in the communicator", r.id)
	}
	key := fmt.Sprint(r.seq[m.h])
	r.seq[m.h]++
	s := m.slots[key]
	if s == nil {
		s = newSlot(len(m.members))
		s.what = what
		m.slots[key] = s
	}
	s.arrived++
	if s.what != what && s.err == nil {
		s.err = fail(driver.ClassOther, "ranks disagree: one calls %s, rank %d calls %s", s.what, me, what)
	}
	if s.arrived == len(m.members) {
		delete(m.slots, key)
	}
	return s, me, nil
}

func name(a *driver.Coll) string {
	switch a.Kind {
	case driver.Barrier:
		return "Barrier"
	case driver.Bcast, driver.Gather, driver.Gatherv, driver.Scatter, driver.Scatterv, driver.Reduce:
		return fmt.Sprintf("collective %d with root %d", a.Kind, a.Root)
	}
	return fmt.Sprintf("collective %d", a.Kind)
}

// join enters a collective and returns a function that finishes it when it can.
func (r *rank) join(a driver.Coll) (func() (bool, error), error) {
	m := r.w.comms[a.Comm]
	if m == nil {
		return nil, fail(driver.ClassComm, "no such communicator")
	}
	s, me, err := r.enterSlot(m, name(&a))
	if err != nil {
		return nil, err
	}
	// The caller's slices are its own again when its part is done; others look
	// here later.
	for _, v := range []*[]int32{&a.SendCounts, &a.SendDispls, &a.RecvCounts, &a.RecvDispls} {
		*v = slices.Clone(*v)
	}
	s.in[me] = &input{a: a, data: append([]byte(nil), contribution(&a, me)...)}
	for _, w := range m.members {
		r.w.wake(r.w.ranks[w])
	}
	return func() (bool, error) {
		if s.err != nil {
			return true, s.err
		}
		if !s.complete(&a, me) {
			return false, nil
		}
		return true, s.output(&a, me)
	}, nil
}

// complete reports whether the data that rank me needs has arrived: a root that only gives and a leaf that only gives
// need no other rank.
func (s *slot) complete(a *driver.Coll, me int) bool {
	switch a.Kind {
	case driver.Bcast, driver.Scatter, driver.Scatterv:
		return s.in[a.Root] != nil
	case driver.Gather, driver.Gatherv, driver.Reduce:
		return me != a.Root || s.arrived == len(s.in)
	case driver.Scan, driver.Exscan:
		return !slices.Contains(s.in[:me], nil)
	}
	return s.arrived == len(s.in)
}

// Allreduce does the collective that has a call of its own.
func (r *rank) Allreduce(dest, src []byte, t driver.Type, op driver.Op, inPlace bool, c driver.Handle) error {
	a := driver.Coll{Kind: driver.Allreduce, Type: t, Op: op, Count: len(src) / t.Size(), InPlace: inPlace, Recv: dest,
		Comm: c}
	if !inPlace {
		a.Send = src
	}
	return r.Collective(a)
}

// Collective enters and finishes a collective.
func (r *rank) Collective(a driver.Coll) error {
	return r.call(func() error {
		try, err := r.join(a)
		if err != nil {
			return err
		}
		var result error
		err = r.await(func() (done bool) { done, result = try(); return done }, func() string { return name(&a) })
		return cmp.Or(err, result)
	})
}

// Icollective enters a collective.
func (r *rank) Icollective(a driver.Coll) (h driver.Handle, err error) {
	err = r.call(func() error {
		try, err := r.join(a)
		if err == nil {
			h = r.newRequest(request{active: true, coll: try, held: [][]byte{a.Send, a.Recv}}).h
		}
		return err
	})
	return h, err
}

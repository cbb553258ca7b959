package cut

import "fmt"

// still holds the part of the invariants that must be true on all ranks as soon
// as one of them has a Cut.
func (w *model) still() error {
	for _, r := range w.ranks {
		if !r.waiting {
			return fmt.Errorf("a rank cuts at %v and rank %d is not at a Point", w.now, r.id)
		}
	}
	for name, members := range w.comms {
		for _, id := range members {
			if got, want := w.ranks[id].entered[name], w.ranks[members[0]].entered[name]; got != want {
				return fmt.Errorf("communicator %s: rank %d entered %d, rank %d %d", name, id, got, members[0], want)
			}
		}
	}
	return nil
}

// check holds all of them against the frozen world.
func (w *model) check() error {
	if w.wrong != nil {
		return w.wrong
	}
	for _, r := range w.ranks {
		if r.cutAt != w.ranks[0].cutAt {
			return fmt.Errorf("rank %d cut epoch %d, rank 0 %d", r.id, r.cutAt, w.ranks[0].cutAt)
		}
		if err := w.accounted(r); err != nil {
			return err
		}
	}
	return w.still()
}

// accounted reports whether every message to r has been received or is in
// flight to it, where the drain finds it.
func (w *model) accounted(r *modelRank) error {
	for _, p := range w.ranks {
		flight := uint64(0)
		for _, g := range r.inbox {
			if g.from == p.id {
				flight++
			}
		}
		if p.sent[r.id] != r.recvd[p.id]+flight {
			return fmt.Errorf("%d->%d: sent %d, received %d, in flight %d", p.id, r.id, p.sent[r.id], r.recvd[p.id],
				flight)
		}
	}
	return nil
}

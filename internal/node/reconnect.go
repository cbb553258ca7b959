package node

import (
	"errors"
	"slices"

	"github.com/holdfast-hpc/holdfast/coordinated"
)

// errOrphaned is for a rank whose daemon has died, in a job that other daemons serve as well: those have lost this
// rank, and end theirs.
var errOrphaned = errors.New("the daemons of the other nodes have lost the ranks of this one, and end the job: " +
	"start it again, it continues from the newest committed epoch if there is one ('holdfast run' does so by itself)")

// localRanks returns the answer to a HELLO, once all ranks have connected: 1 for the first rank of this node, and the
// number of ranks here.
func (d *daemon) localRanks(rank int) (first int32, n uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	first = 1
	for s := range d.alive {
		s.mu.Lock()
		r := s.rank
		s.mu.Unlock()
		if r == nil || s.isDisconnected() {
			continue
		}
		n++
		if r.rank < rank {
			first = 0
		}
	}
	return first, n
}

// setOnAll sets a bit in the flags page of each rank, if this daemon serves all ranks of the job and all of them
// satisfy is. It runs before the first reply: if the daemon dies in between, the other ranks know nevertheless.
func (d *daemon) setOnAll(bit uint32, is func(*session) bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	var here []*rank
	for s := range d.alive {
		s.mu.Lock()
		r := s.rank
		s.mu.Unlock()
		if r == nil {
			continue
		}
		if !is(s) {
			return
		}
		here = append(here, r)
	}
	for _, r := range here {
		if len(here) == r.size {
			r.pages.set(bit, true)
		}
	}
}

// hasCut reports whether this daemon has stopped all ranks at one of their points.
func (s *session) hasCut() bool {
	return slices.ContainsFunc(s.ck.Stats().Epochs, func(e coordinated.EpochStats) bool { return e.Blocked > 0 })
}

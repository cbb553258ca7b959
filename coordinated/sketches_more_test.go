package coordinated

import (
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-hpc/holdfast/mpiwrap"
)

// slowCapture is a State that takes its time in a capture, on some ranks.
type slowCapture struct{ d time.Duration }

func (n *slowCapture) MarshalBinary() ([]byte, error) { time.Sleep(n.d); return []byte{1}, nil }
func (n *slowCapture) UnmarshalBinary([]byte) error   { return nil }

// counter makes a window with a counter at rank 0, which captures slowly.
func (p *process) counter() (err error) {
	if p.win, err = mpiwrap.WinAllocate[int64](p.world, 1); err != nil {
		return err
	}
	n := &slowCapture{300 * time.Microsecond}
	if p.world.Rank() > 0 {
		n.d = 0
	}
	return errors.Join(p.ck.Protect("slowCapture", n), p.ck.Protect("counter", p.win))
}

// draw draws numbers from a counter at rank 0 by one-sided accesses.
func (p *process) draw(steps int64) error {
	for ; p.Step < steps; p.Step++ {
		if err := p.point(); err != nil {
			return err
		}
		got := int64(-1)
		if err := errors.Join(p.win.Lock(0, false), p.win.FetchAndOp(0, 0, &got, 1, mpiwrap.Sum),
			p.win.Unlock(0)); err != nil {
			return err
		}
		p.Log = append(p.Log, got)
	}
	return nil
}

// sameTickets checks that every number was drawn once.
func sameTickets(steps int64) func(got, want []mem) error {
	return func(got, _ []mem) error {
		seen := map[int64]bool{}
		for _, m := range got {
			for _, x := range m.Log {
				if seen[x] || x < 0 || x >= steps*int64(len(got)) {
					return fmt.Errorf("ticket %d is wrong or was drawn twice: %v", x, got)
				}
				seen[x] = true
			}
		}
		if len(seen) != int(steps)*len(got) {
			return fmt.Errorf("%d of %d tickets were drawn: %v", len(seen), int(steps)*len(got), got)
		}
		return nil
	}
}

// pollCompute polls for a message of anybody, or of its left neighbour, and computes
// between the polls. Half of the ranks come to a Point in every third step only, so that
// they poll for what others send behind theirs.
func (p *process) pollCompute(steps int64) error {
	_, me, left, right := p.peers()
	for ; p.Step < steps; p.Step++ {
		if me%2 == 1 || p.Step%3 == 0 {
			if err := p.point(); err != nil {
				return err
			}
		}
		tag, source := int(p.Step%3), left
		if p.Step%2 == 0 {
			source = mpiwrap.AnySource
		}
		if err := mpiwrap.Send(p.world, p.Acc, right, tag); err != nil {
			return err
		}
		for there := false; !there; time.Sleep(2 * time.Millisecond) { // it computes
			var err error
			if _, there, err = p.world.Iprobe(source, tag); err != nil {
				return err
			}
		}
		in := []float64{0}
		if _, err := mpiwrap.Recv(p.world, in, left, tag); err != nil {
			return err
		}
		p.Acc[0] = 0.5*p.Acc[0] + in[0]
	}
	return nil
}

// pollComputeWaits bounds the needs of a rank of pollCompute: in each of two checkpoints
// a step has a send, a poll for at most all ranks, a receive and a Point, each of which
// ends once.
func pollComputeWaits(steps int64, ranks int) int64 { return 2 * (steps + 1) * int64(ranks+3) }

// freedEarly makes and frees communicators, and lets the last rank finish at once, so
// that it takes part in checkpoints with communicators that it has freed.
func (p *process) freedEarly(steps int64) error {
	n, me, _, _ := p.peers()
	if p.Phase == 0 {
		c, err := p.world.Dup()
		if err != nil {
			return err
		}
		if err := c.Free(); err != nil {
			return err
		}
		p.Phase = 1
	}
	if me == n-1 {
		steps = 1
	}
	for ; p.Step < steps; p.Step++ {
		if err := p.point(); err != nil {
			return err
		}
		p.Acc[0] *= 1.25
		if me < n-1 && n > 2 {
			in := []float64{0}
			if _, err := mpiwrap.Sendrecv(p.world, p.Acc, (me+1)%(n-1), 1, in, (me+n-2)%(n-1), 1); err != nil {
				return err
			}
			p.Acc[0] += in[0]
		}
	}
	return nil
}

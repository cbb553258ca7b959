package jobtest_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/holdfast-hpc/holdfast/mpiwrap"
)

// mpiSketches are programs that use what the message layer keeps in ways of its own.
func mpiSketches(rng *rand.Rand) []*sketch {
	steps := 2 + int64(rng.IntN(4))
	ranks := 2 + rng.IntN(3)
	return []*sketch{
		{name: "plain", ranks: ranks, body: func(p *process) error { return p.plain(steps) }},
		{name: "pairs", ranks: ranks + 1, body: func(p *process) error { return p.pairs(steps) }},
		{name: "window", ranks: ranks, setup: (*process).allocate, body: func(p *process) error {
			return p.tickets(steps)
		}},
	}
}

// plain passes a Point between posting a receive and waiting for it, when its message
// may have come or not, without protecting it: a restarted run posts it again. Every other
// step has two of them under way.
func (p *process) plain(steps int64) error {
	_, _, left, right := p.peers()
	for ; p.Step < steps; p.Step++ {
		n := 1 + int(p.Step%2)
		var in [2][1]float64
		reqs := make([]*mpiwrap.Request, n)
		for i := range n {
			source := left
			if p.Step%3 == 0 && p.world.Size() == 2 {
				source = mpiwrap.AnySource
			}
			var err error
			if reqs[i], err = mpiwrap.Irecv(p.world, in[i][:], source, 5); err != nil {
				return err
			}
		}
		if p.Phase == 0 { // not at the checkpoint: nothing is sent yet
			for i := range n {
				if err := mpiwrap.Send(p.world, []float64{p.Acc[0] + float64(i)}, right, 5); err != nil {
					return err
				}
			}
			p.Phase = 1
		}
		if err := p.point(); err != nil {
			return err
		}
		if err := mpiwrap.WaitAll(reqs...); err != nil {
			return err
		}
		p.Acc[0] = 0.5*p.Acc[0] + in[0][0] + 0.25*in[n-1][0]
		p.Phase = 0
	}
	return nil
}

// pairs makes a communicator of rank 0 and each other rank, all with one tag, and uses
// them unevenly: messages stay in them across Points, one has collectives.
func (p *process) pairs(steps int64) error {
	n, me, _, _ := p.peers()
	pair := make([]*mpiwrap.Comm, n)
	for peer := 1; peer < n; peer++ {
		if me == 0 || me == peer {
			var err error
			if pair[peer], err = p.world.CreateGroup([]int{0, peer}, 0); err != nil {
				return err
			}
		}
	}
	for ; p.Step < steps; p.Step++ {
		for ; p.Phase < 2; p.Phase++ {
			if err := p.point(); err != nil {
				return err
			}
			var err error
			switch {
			case me > 0 && p.Phase == 0:
				err = mpiwrap.Send(pair[me], p.Acc, 0, 1)
			case me == 0 && p.Phase == 1:
				for peer := n - 1; peer > 0 && err == nil; peer-- {
					in := []float64{0}
					_, err = mpiwrap.Recv(pair[peer], in, 1, 1)
					p.Acc[0] = 0.5*p.Acc[0] + float64(peer)*in[0]
				}
			case me == 1 && p.Phase == 1:
				p.Acc[0] *= 1.5
			}
			if err == nil && me < 2 && p.Phase == 1 {
				sum := []float64{0}
				err = mpiwrap.Allreduce(pair[1], sum, p.Acc, mpiwrap.Sum)
				p.Acc[0] += 0.01 * sum[0]
			}
			if err != nil {
				return err
			}
		}
		p.Phase = 0
	}
	return nil
}

// allocate makes a window that is protected.
func (p *process) allocate() (err error) {
	if p.win, err = mpiwrap.WinAllocate[int64](p.world, 2); err != nil {
		return err
	}
	return p.ck.Protect("window", p.win)
}

// tickets draws numbers from a counter at the right neighbour, right after a Point, and
// frees the window before Close: checkpoints are taken before and after that.
func (p *process) tickets(steps int64) error {
	_, me, _, right := p.peers()
	for ; p.Step < steps; p.Step++ {
		if err := p.point(); err != nil {
			return err
		}
		var got int64
		err := errors.Join(p.win.Lock(right, true), p.win.FetchAndOp(right, 0, &got, int64(me+1)+p.Step, mpiwrap.Sum),
			p.win.Flush(right),
			p.win.Put(right, 1, []int64{100*p.Step + int64(me)}), p.win.Unlock(right))
		if err != nil {
			return err
		}
		p.Acc[0] = 0.5*p.Acc[0] + float64(got)
	}
	if p.Phase == 0 {
		if err := errors.Join(p.world.Barrier(), p.win.Lock(me, true)); err != nil {
			return err
		}
		p.Log = append([]int64(nil), p.win.Memory()...)
		if err := p.win.Unlock(me); err != nil {
			return err
		}
		p.Phase = 1
	}
	return p.win.Free()
}

// slowCapture is a State that takes its time in a capture, on some ranks.
type slowCapture struct{ d time.Duration }

func (n *slowCapture) MarshalBinary() ([]byte, error) { time.Sleep(n.d); return []byte{1}, nil }

func (n *slowCapture) UnmarshalBinary([]byte) error { return nil }

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
// between the polls. Half of the ranks reach a Point in every third step only, so that
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

package coordinated

import (
	"errors"
	"math/rand/v2"

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

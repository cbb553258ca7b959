package jobtest_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/holdfast-hpc/holdfast/mpiwrap"
)

// sketches generates one program of each shape.
func sketches(rng *rand.Rand) []*sketch {
	steps := 2 + int64(rng.IntN(4))
	ranks := 2 + rng.IntN(3)
	extra := rng.IntN(3)
	return append(mpiSketches(rng), []*sketch{
		{name: "stencil", ranks: ranks, body: func(p *process) error { return p.stencil(steps, int64(1+extra)) }},
		{name: "pipeline", ranks: ranks, body: func(p *process) error { return p.pipeline(steps * 2) }},
		{name: "wavefront", ranks: ranks, body: func(p *process) error { return p.wavefront(steps) }},
		{name: "sparse", ranks: ranks + 1, body: func(p *process) error { return p.sparse(steps) }},
		{name: "grid", ranks: 4, body: func(p *process) error { return p.grid(steps) }},
		{name: "overlap", ranks: ranks, body: func(p *process) error { return p.overlap(steps) }},
		{name: "probe", ranks: ranks, body: func(p *process) error { return p.probe(steps) }},
		{name: "broadcast", ranks: ranks, body: func(p *process) error { return p.broadcast(steps * 2) }},
		{name: "crossed", ranks: 2, body: func(p *process) error { return p.crossed(steps) }},
		{name: "polling", ranks: ranks, body: func(p *process) error { return p.polling(steps) }},
		{name: "pending", ranks: ranks, setup: (*process).halos, body: func(p *process) error {
			return p.pending(steps * 2)
		}},
		{name: "groups", ranks: ranks + 1, body: func(p *process) error { return p.groups(steps) }},
		{name: "freed", ranks: ranks, body: func(p *process) error { return p.freed(steps) }},
		{name: "early", ranks: ranks, body: func(p *process) error { return p.early(steps) }},
		{name: "tickets", ranks: ranks, setup: (*process).counter, body: func(p *process) error {
			return p.draw(steps)
		}, same: sameTickets(steps)},
		{name: "pollcompute", ranks: ranks, body: func(p *process) error { return p.pollCompute(2 * steps) },
			mostRetracted: pollComputeWaits(2*steps, ranks)},
		{name: "freedearly", ranks: ranks + 1, body: func(p *process) error { return p.freedEarly(2 * steps) }},
		{name: "masterworker", ranks: ranks, body: func(p *process) error {
			return p.masterWorker(steps * 3)
		}, same: sameTasks(steps * 3)},
	}...)
}

func (p *process) peers() (n, me, left, right int) {
	n, me = p.world.Size(), p.world.Rank()
	return n, me, (me + n - 1) % n, (me + 1) % n
}

// stencil posts its receives early and computes before it waits; every few
// steps there is a reduction. It has two Points an iteration on some ranks.
func (p *process) stencil(steps, every int64) error {
	_, me, left, right := p.peers()
	for ; p.Step < steps; p.Step++ {
		if err := p.point(); err != nil {
			return err
		}
		var l, r [1]float64
		q1, err := mpiwrap.Irecv(p.world, l[:], left, 1)
		if err != nil {
			return err
		}
		q2, err := mpiwrap.Irecv(p.world, r[:], right, 2)
		if err != nil {
			return err
		}
		q3, err := mpiwrap.Isend(p.world, p.Acc, right, 1)
		if err != nil {
			return err
		}
		if err := mpiwrap.Send(p.world, p.Acc, left, 2); err != nil {
			return err
		}
		if err := mpiwrap.WaitAll(q1, q2, q3); err != nil {
			return err
		}
		p.Acc[0] = 0.5*p.Acc[0] + 0.25*l[0] + 0.125*r[0]
		if p.Step%every == 0 {
			sum := []float64{0}
			if err := mpiwrap.Allreduce(p.world, sum, p.Acc, mpiwrap.Sum); err != nil {
				return err
			}
			p.Acc[0] += sum[0] * float64(me+1) * 1e-3
		}
	}
	return nil
}

// pipeline feeds the right neighbour without waiting for it.
func (p *process) pipeline(steps int64) error {
	n, me, _, _ := p.peers()
	for ; p.Step < steps; p.Step++ {
		if me > 0 {
			in := []float64{0}
			if err := p.point(); err != nil {
				return err
			}
			if _, err := mpiwrap.Recv(p.world, in, me-1, 4); err != nil {
				return err
			}
			p.Acc[0] = p.Acc[0]*0.75 + in[0]
		} else if err := p.point(); err != nil {
			return err
		}
		if me < n-1 {
			if err := mpiwrap.Send(p.world, p.Acc, me+1, 4); err != nil {
				return err
			}
		}
	}
	return nil
}

// wavefront needs its left neighbour's value of the same step and its right
// neighbour's of the step before.
func (p *process) wavefront(steps int64) error {
	n, me, _, _ := p.peers()
	for ; p.Step < steps; p.Step++ {
		if err := p.point(); err != nil {
			return err
		}
		in := []float64{0}
		if me > 0 {
			if _, err := mpiwrap.Recv(p.world, in, me-1, 1); err != nil {
				return err
			}
			p.Acc[0] += in[0]
		}
		if me < n-1 && p.Step > 0 {
			if _, err := mpiwrap.Recv(p.world, in, me+1, 2); err != nil {
				return err
			}
			p.Acc[0] -= 0.5 * in[0]
		}
		if me < n-1 {
			if err := mpiwrap.Send(p.world, p.Acc, me+1, 1); err != nil {
				return err
			}
		}
		if me > 0 && p.Step+1 < steps {
			if err := mpiwrap.Send(p.world, p.Acc, me-1, 2); err != nil {
				return err
			}
		}
	}
	return nil
}

// sparse exchanges with a random set of peers each step, the same set known to
// sender and receiver, with wildcards for the tag.
func (p *process) sparse(steps int64) error {
	n, me, _, _ := p.peers()
	for ; p.Step < steps; p.Step++ {
		if err := p.point(); err != nil {
			return err
		}
		talks := func(a, b int) bool {
			r := rand.New(rand.NewPCG(p.rng+uint64(p.Step), uint64(a*n+b)))
			return a != b && r.IntN(2) == 0
		}
		for to := range n {
			if talks(me, to) {
				if err := mpiwrap.Send(p.world, p.Acc, to, int(p.Step%5)); err != nil {
					return err
				}
			}
		}
		for from := range n {
			if talks(from, me) {
				in := []float64{0}
				if _, err := mpiwrap.Recv(p.world, in, from, mpiwrap.AnyTag); err != nil {
					return err
				}
				p.Acc[0] = p.Acc[0]*0.9 + in[0]*0.1
			}
		}
	}
	return nil
}

// grid uses row and column communicators whose collectives do not line up.
func (p *process) grid(steps int64) error {
	me := p.world.Rank()
	row, err := p.world.Split(me/2, me)
	if err != nil {
		return err
	}
	col, err := p.world.Split(me%2, me)
	if err != nil {
		return err
	}
	for ; p.Step < steps; p.Step++ {
		if err := p.point(); err != nil {
			return err
		}
		x := []float64{p.Acc[0]}
		if err := mpiwrap.Bcast(row, x, int(p.Step%2)); err != nil {
			return err
		}
		sum := []float64{0}
		if err := mpiwrap.Allreduce(col, sum, x, mpiwrap.Sum); err != nil {
			return err
		}
		p.Acc[0] = 0.5*p.Acc[0] + 0.25*sum[0]
	}
	return nil
}

// overlap keeps a non-blocking reduction going while it exchanges messages. The
// reduction is complete before the next Point.
func (p *process) overlap(steps int64) error {
	_, _, left, right := p.peers()
	for ; p.Step < steps; p.Step++ {
		if err := p.point(); err != nil {
			return err
		}
		sum := []float64{0}
		red, err := mpiwrap.Iallreduce(p.world, sum, p.Acc, mpiwrap.Sum)
		if err != nil {
			return err
		}
		in := []float64{0}
		if _, err := mpiwrap.Sendrecv(p.world, []float64{float64(p.Step)}, right, 8, in, left, 8); err != nil {
			return err
		}
		if _, err := red.Wait(); err != nil {
			return err
		}
		p.Acc[0] = 0.25*p.Acc[0] + 0.5*sum[0] + in[0]
	}
	return nil
}

// probe learns the length of a message before it receives it. There is a Point
// between sending and probing: a message that was drained there must be seen.
func (p *process) probe(steps int64) error {
	_, me, left, right := p.peers()
	for p.Step < steps {
		if err := p.point(); err != nil {
			return err
		}
		if p.Phase == 0 {
			out := make([]float64, 1+int(p.Step+int64(me))%4)
			out[0] = p.Acc[0]
			if err := mpiwrap.Send(p.world, out, right, 6); err != nil {
				return err
			}
			p.Phase = 1
			continue
		}
		st, err := p.world.Probe(left, mpiwrap.AnyTag)
		if err != nil {
			return err
		}
		in := make([]float64, mpiwrap.StatusCount[float64](st))
		if _, err := mpiwrap.Recv(p.world, in, st.Source, st.Tag); err != nil {
			return err
		}
		p.Acc[0] = 0.5*p.Acc[0] + in[0] + float64(len(in))
		p.Step, p.Phase = p.Step+1, 0
	}
	return nil
}

// broadcast lets rank 0 run ahead of the others.
func (p *process) broadcast(steps int64) error {
	for ; p.Step < steps; p.Step++ {
		if err := p.point(); err != nil {
			return err
		}
		x := []float64{p.Acc[0]}
		if err := mpiwrap.Bcast(p.world, x, 0); err != nil {
			return err
		}
		p.Acc[0] = 0.5*p.Acc[0] + x[0] + 1
	}
	return nil
}

// crossed sends two messages and receives them in the other order of tags,
// with Points in between.
func (p *process) crossed(steps int64) error {
	me := p.world.Rank()
	for ; p.Step < steps; p.Step++ {
		if me == 0 {
			for ; p.Phase < 2; p.Phase++ {
				if err := p.point(); err != nil {
					return err
				}
				if err := mpiwrap.Send(p.world, []float64{p.Acc[0] + float64(p.Phase)}, 1, int(p.Phase)); err != nil {
					return err
				}
			}
		} else {
			for ; p.Phase < 2; p.Phase++ {
				if err := p.point(); err != nil {
					return err
				}
				in := []float64{0}
				if _, err := mpiwrap.Recv(p.world, in, 0, 1-int(p.Phase)); err != nil {
					return err
				}
				p.Acc[0] = p.Acc[0]*0.5 + in[0]
			}
		}
		p.Phase = 0
	}
	return nil
}

// polling receives by calling Test or Iprobe until there is something, without a
// Point in between, while the sender may stand at one.
func (p *process) polling(steps int64) error {
	_, _, left, right := p.peers()
	for ; p.Step < steps; p.Step++ {
		if err := p.point(); err != nil {
			return err
		}
		if err := mpiwrap.Send(p.world, p.Acc, right, 3); err != nil {
			return err
		}
		in := []float64{0}
		if p.Step%2 == 0 {
			q, err := mpiwrap.Irecv(p.world, in, left, 3)
			for done := false; !done && err == nil; {
				_, done, err = q.Test()
				time.Sleep(20 * time.Microsecond) // the program would do something else
			}
			if err != nil {
				return err
			}
		} else {
			for {
				_, there, err := p.world.Iprobe(left, 3)
				if err != nil {
					return err
				}
				if there {
					break
				}
				time.Sleep(20 * time.Microsecond) // the program would do something else
			}
			if _, err := mpiwrap.Recv(p.world, in, left, 3); err != nil {
				return err
			}
		}
		p.Acc[0] = 0.5*p.Acc[0] + in[0]
	}
	return nil
}

// halos makes two receives that may be pending at a checkpoint.
func (p *process) halos() error {
	for i := range p.reqs {
		p.halo[i] = make([]float64, 1)
		p.reqs[i] = mpiwrap.NewRequest(p.world, p.halo[i])
		err := errors.Join(p.ck.Protect(fmt.Sprint("halo ", i), &p.halo[i]),
			p.ck.Protect(fmt.Sprint("halo request ", i), p.reqs[i]))
		if err != nil {
			return err
		}
	}
	return nil
}

// pending posts its receives an iteration ahead and passes Points while they are
// pending.
func (p *process) pending(steps int64) error {
	_, _, left, right := p.peers()
	post := func(i int64) error { return p.reqs[i%2].Irecv(left, int(i%2)) }
	if p.Phase == 0 { // nothing posted yet
		if err := post(0); err != nil {
			return err
		}
		p.Phase = 1
	}
	for ; p.Step < steps; p.Step++ {
		if err := p.point(); err != nil {
			return err
		}
		if p.Step+1 < steps {
			if err := post(p.Step + 1); err != nil {
				return err
			}
		}
		if err := mpiwrap.Send(p.world, p.Acc, right, int(p.Step%2)); err != nil {
			return err
		}
		if _, err := p.reqs[p.Step%2].Wait(); err != nil {
			return err
		}
		p.Acc[0] = 0.5*p.Acc[0] + p.halo[p.Step%2][0] + float64(p.Step)
	}
	return nil
}

// groups makes communicators of some ranks without the others, which pass Points
// meanwhile.
func (p *process) groups(steps int64) error {
	n, me, _, _ := p.peers()
	for ; p.Step < steps; p.Step++ {
		if err := p.point(); err != nil {
			return err
		}
		out := int(p.Step) % n // this one stays away
		if me == out {
			p.Acc[0] *= 1.5
			continue
		}
		var list []int
		for r := range n {
			if r != out {
				list = append(list, r)
			}
		}
		g, err := p.world.CreateGroup(list, int(p.Step%3))
		if err != nil {
			return err
		}
		sum := []float64{0}
		if err := mpiwrap.Allreduce(g, sum, p.Acc, mpiwrap.Sum); err != nil {
			return err
		}
		p.Acc[0] = 0.5*p.Acc[0] + 0.1*sum[0]
		if err := g.Free(); err != nil {
			return err
		}
	}
	return nil
}

// freed makes a communicator each step and frees it after a Point, so that a
// checkpoint may find some ranks with it and some without.
func (p *process) freed(steps int64) error {
	for ; p.Step < steps; p.Step++ {
		c, err := p.world.Dup()
		if err != nil {
			return err
		}
		sum := []float64{0}
		if err := mpiwrap.Allreduce(c, sum, p.Acc, mpiwrap.Sum); err != nil {
			return err
		}
		p.Acc[0] = 0.5*p.Acc[0] + 0.1*sum[0]
		if err := c.Free(); err != nil {
			return err
		}
		p.Step++
		err = p.point()
		p.Step--
		if err != nil {
			return err
		}
	}
	return nil
}

// early lets the last rank finish at once.
func (p *process) early(steps int64) error {
	n, me, _, _ := p.peers()
	if me == n-1 {
		steps = 1
	}
	for ; p.Step < steps; p.Step++ {
		if err := p.point(); err != nil {
			return err
		}
		if p.Step == 0 {
			sum := []float64{0}
			if err := mpiwrap.Allreduce(p.world, sum, p.Acc, mpiwrap.Sum); err != nil {
				return err
			}
			p.Acc[0] += sum[0]
		}
		p.Acc[0] *= 1.25
	}
	return nil
}

// masterWorker hands out numbered tasks to whoever asks; every task's result
// is logged once at the master, in any order.
func (p *process) masterWorker(tasks int64) error {
	const askTag, taskTag, stopTag = 1, 2, 3
	n, me, _, _ := p.peers()
	if me == 0 {
		// Step counts tasks handed out, Phase workers told to stop.
		for p.Phase < int64(n-1) {
			if err := p.point(); err != nil {
				return err
			}
			in := []int64{0}
			st, err := mpiwrap.Recv(p.world, in, mpiwrap.AnySource, mpiwrap.AnyTag)
			if err != nil {
				return err
			}
			if st.Tag != askTag {
				return fmt.Errorf("tag %d from %d", st.Tag, st.Source)
			}
			if in[0] > 0 {
				p.Log = append(p.Log, in[0])
			}
			if p.Step < tasks {
				p.Step++
				err = mpiwrap.Send(p.world, []int64{p.Step}, st.Source, taskTag)
			} else {
				p.Phase++
				err = mpiwrap.Send(p.world, []int64{0}, st.Source, stopTag)
			}
			if err != nil {
				return err
			}
		}
		return nil
	}
	// Phase 0: about to report Step's result; 1: waiting for a task; 2: stopped.
	for p.Phase < 2 {
		if err := p.point(); err != nil {
			return err
		}
		if p.Phase == 0 {
			if err := mpiwrap.Send(p.world, []int64{p.Step * 10}, 0, askTag); err != nil {
				return err
			}
			p.Phase = 1
			continue
		}
		in := []int64{0}
		st, err := mpiwrap.Recv(p.world, in, 0, mpiwrap.AnyTag)
		if err != nil {
			return err
		}
		p.Step, p.Phase = in[0], 0
		if st.Tag == stopTag {
			p.Phase = 2
		}
	}
	return nil
}

// sameTasks checks that every task was done exactly once.
func sameTasks(tasks int64) func(got, want []mem) error {
	return func(got, _ []mem) error {
		seen := map[int64]bool{}
		for _, x := range got[0].Log {
			if seen[x] || x%10 != 0 || x < 10 || x > tasks*10 {
				return fmt.Errorf("result %d is wrong or came twice: %v", x, got[0].Log)
			}
			seen[x] = true
		}
		if int64(len(seen)) != tasks {
			return fmt.Errorf("%d of %d results: %v", len(seen), tasks, got[0].Log)
		}
		return nil
	}
}

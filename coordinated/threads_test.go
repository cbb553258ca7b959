package coordinated

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-hpc/holdfast/mpiwrap"
)

// TestThreadsAtPoints: with ThreadMultiple a second goroutine of each rank sends and receives
// on a communicator of its own while the first comes to Points. Checkpoints are asked for at
// moments all over the program, which stops or goes on, is restarted and must end as the uncut
// run did; no message of the second goroutine comes twice, or not at all.
func TestThreadsAtPoints(t *testing.T) {
	moments, cuts := 0, 0
	for seed := range uint64(6) {
		rng := rand.New(rand.NewPCG(seed, 9))
		steps := 3 + int64(rng.IntN(4))
		s := &sketch{name: "threads", ranks: 2 + rng.IntN(2), threads: true, body: func(p *process) error {
			return p.besides(steps)
		}}
		opt, err := memOptions()
		if err != nil {
			t.Fatal(err)
		}
		want, calls, _, err := s.start(jobRun{seed: seed, opt: opt})
		if err != nil {
			t.Fatalf("seed %d, uncut: %v", seed, err)
		}
		for at := 1 + rng.IntN(5); at <= calls; at += 5 + rng.IntN(10) {
			cut, err := s.momentCut(seed, at, want)
			if err != nil {
				t.Fatalf("seed %d, call %d of some %d: %v", seed, at, calls, err)
			}
			moments++
			if cut {
				cuts++
			}
		}
	}
	t.Logf("%d moments, %d checkpoints", moments, cuts)
	if cuts < moments/4 {
		t.Errorf("only %d of %d moments had a checkpoint that was committed", cuts, moments)
	}
}

// besides is a stencil with a second goroutine.
func (p *process) besides(steps int64) error {
	c, err := p.world.Dup()
	if err != nil {
		return err
	}
	var second sync.WaitGroup
	var chatErr error
	stop := make(chan struct{})
	second.Go(func() { chatErr = chatter(c, stop) })
	err = p.stencil(steps, 1)
	close(stop)
	second.Wait()
	return errors.Join(err, chatErr)
}

// chatter passes numbers to the right neighbour until it is stopped. Those of the left one come
// in order, without a gap; a restart begins again with 0, behind what was in flight.
func chatter(c *mpiwrap.Comm, stop chan struct{}) error {
	n, me := c.Size(), c.Rank()
	in, last, again := []int64{0}, int64(-1), false
	for out := int64(0); ; {
		select {
		case <-stop:
			return nil
		default:
		}
		if out < 40 {
			if err := mpiwrap.Send(c, []int64{out}, (me+1)%n, 1); err != nil {
				return err
			}
			out++
		}
		_, there, err := c.Iprobe((me+n-1)%n, 1)
		if err == nil && there {
			_, err = mpiwrap.Recv(c, in, (me+n-1)%n, 1)
		}
		switch {
		case err != nil:
			return err
		case !there:
			time.Sleep(50 * time.Microsecond) // it would do something else
			continue
		case in[0] == 0 && last >= 0 && !again:
			again = true
		case last >= 0 && in[0] != last+1:
			return fmt.Errorf("the second goroutine got %d after %d", in[0], last)
		}
		last = in[0]
	}
}

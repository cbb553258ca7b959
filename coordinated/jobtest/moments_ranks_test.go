package jobtest_test

import (
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-hpc/holdfast/coordinated"
	"github.com/holdfast-hpc/holdfast/mpiwrap"
	"github.com/holdfast-hpc/holdfast/mpiwrap/mpitest"
)

// steps are those of a checkpoint at which a rank can die.
var steps = []string{"armed", "arrived", "cut", "drained", "captured", "put", "voted", "committed", "part", "copied"}

// TestKillAtEveryStep kills each rank at each step of a checkpoint in turn. The
// survivors must learn who is lost, and a restart, from the epoch if it came to
// be and from the start if not, must end as the undisturbed run.
func TestKillAtEveryStep(t *testing.T) {
	for _, s := range sketches(rand.New(rand.NewPCG(3, 3))) {
		if s.name != "stencil" && s.name != "grid" && s.name != "pipeline" {
			continue
		}
		t.Run(s.name, func(t *testing.T) {
			opt, err := memOptions()
			if err != nil {
				t.Fatal(err)
			}
			want, calls, _, err := s.start(jobRun{seed: 3, opt: opt})
			if err != nil {
				t.Fatal(err)
			}
			for _, step := range steps {
				for rank := range s.ranks {
					if err := s.killOnce(step, rank, calls/3, want); err != nil {
						t.Errorf("rank %d killed at step %q: %v", rank, step, err)
					}
				}
			}
		})
	}
}

func (s *sketch) killOnce(step string, rank, at int, want []mem) error {
	_, err := s.killWith(func(*inMemory) {}, step, rank, at, want)
	return err
}

// killWith is killOnce with other options, and reports whether the rank was killed.
func (s *sketch) killWith(set func(*inMemory), step string, rank, at int, want []mem) (dead bool, err error) {
	opt, err := memOptions()
	if err != nil {
		return false, err
	}
	set(&opt)
	var killed atomic.Bool
	_, _, _, err = s.start(jobRun{seed: 3, opt: opt, at: at, goOn: true, killRank: rank, killAt: step, killed: &killed})
	var lost *coordinated.LostError
	switch {
	case err == nil && killed.Load():
		return true, errors.New("nobody noticed")
	case errors.Is(err, mpitest.ErrDeadlock): // the simulator noticed first that no rank can go on
	case err != nil && (!errors.As(err, &lost) || lost.Rank != rank):
		return killed.Load(), fmt.Errorf("the survivors do not name the rank: %w", err)
	}
	states, _, _, err := s.start(jobRun{seed: 3, opt: opt})
	if err != nil {
		return killed.Load(), fmt.Errorf("restart: %w", err)
	}
	return killed.Load(), sameStates(states, want)
}

var returns = flag.Int("returns", 40, "(program, call) pairs at which a rank returns by an error")

// TestEveryEarlyReturn lets one rank of a generated program return by an error at one of
// its calls, and close, as `defer ck.Close()` does. The others may wait for it: the job
// ends all the same, and errors name the rank that has closed.
func TestEveryEarlyReturn(t *testing.T) {
	rng := rand.New(rand.NewPCG(*pairsSeed, 7))
	if testing.Short() {
		*returns = min(*returns, 12)
	}
	told := 0
	for done, seed := 0, *pairsSeed; done < *returns; seed++ {
		list := sketches(rand.New(rand.NewPCG(seed, 5)))
		s := list[rng.IntN(len(list))]
		opt, err := memOptions()
		if err != nil {
			t.Fatal(err)
		}
		_, calls, _, err := s.start(jobRun{seed: seed, opt: opt})
		if err != nil {
			t.Fatalf("%s, seed %d, undisturbed: %v", s.name, seed, err)
		}
		for range 4 {
			at := 1 + rng.IntN(calls)
			if opt, err = memOptions(); err != nil {
				t.Fatal(err)
			}
			opt.WaitTimeout = 100 * time.Millisecond
			ended := make(chan error, 1)
			go func() { _, _, _, err := s.start(jobRun{seed: seed, opt: opt, returnAt: at}); ended <- err }()
			select {
			case err := <-ended:
				var lost *coordinated.LostError
				if errors.As(err, &lost) {
					told++
				} else if err != nil && !errors.Is(err, errReturns) && !errors.Is(err, mpitest.ErrDeadlock) {
					t.Errorf("%s, seed %d, return at call %d: %v", s.name, seed, at, err)
				}
			case <-time.After(2 * time.Minute):
				t.Fatalf("%s, seed %d: the job hangs after a return at call %d", s.name, seed, at)
			}
			done++
		}
	}
	if told == 0 {
		t.Error("nobody was ever told: the test shows nothing")
	}
	t.Logf("%d returns, %d of them left somebody waiting, seed %d", *returns, told, *pairsSeed)
}

// TestThreadsAtPoints: with ThreadMultiple a second goroutine of each rank sends and receives
// on a communicator of its own while the first comes to Points. Checkpoints are asked for at
// moments all over the program, which stops or goes on, is restarted and must end as the uncut
// run did; no message of the second goroutine comes twice, or not at all.
func TestThreadsAtPoints(t *testing.T) {
	moments, cuts := 0, 0
	for seed := range uint64(4) {
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

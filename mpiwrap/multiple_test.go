package mpiwrap

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"testing"

	"github.com/holdfast-hpc/holdfast/internal/endpoint"
	"github.com/holdfast-hpc/holdfast/mpiwrap/internal/driver"
	"github.com/holdfast-hpc/holdfast/mpiwrap/internal/sim"
)

// onThreads runs f on every rank of a world that grants ThreadMultiple.
func onThreads(t *testing.T, n int, seed uint64, f func(w *Comm) error) {
	t.Helper()
	world := sim.New(n, sim.Options{Seed: seed, Delay: 0.3, Concurrent: true})
	errs := make([]error, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			defer world.Finish(i)
			c, err := over(world.Rank(i), nil)
			if err == nil {
				err = f(c)
			}
			if err != nil {
				errs[i] = fmt.Errorf("rank %d: %w", i, err)
				world.Abort(errs[i])
			}
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

// TestThreadMultiple: goroutines of a rank call at once, each on a communicator
// of its own, while an agent reads what the rank publishes; then they stop and
// the network is drained.
func TestThreadMultiple(t *testing.T) {
	const goroutines, each = 6, 20
	for seed := range uint64(5) {
		onThreads(t, 3, seed, func(w *Comm) error {
			comms := make([]*Comm, goroutines)
			for g := range comms {
				var err error
				if comms[g], err = w.Dup(); err != nil {
					return err
				}
			}
			stop := make(chan struct{})
			var agent, wg sync.WaitGroup
			agent.Go(func() { watch(endpoint.Of(w), w.Size(), stop) })
			errs := make([]error, goroutines)
			for g, c := range comms {
				wg.Go(func() {
					for i := range each {
						if errs[g] == nil {
							errs[g] = threadRound(c, i)
						}
					}
				})
			}
			wg.Wait()
			close(stop)
			agent.Wait()
			if err := errors.Join(errs...); err != nil {
				return err
			}
			_, err := endpoint.Of(w).Drain(context.Background())
			next, prev := (w.Rank()+1)%3, (w.Rank()+2)%3
			sent, got := endpoint.Of(w).Sent(next), endpoint.Of(w).Received(prev)
			if want := uint64(3 * goroutines * each); sent != want || got != want {
				return fmt.Errorf("%d messages sent, %d received, want %d: %w", sent, got, want, err)
			}
			return err
		})
	}
}

// watch reads all that a checkpointer's agent reads.
func watch(e endpoint.Endpoint, n int, stop chan struct{}) {
	for {
		select {
		case <-stop:
			return
		default:
		}
		e.Activity()
		e.Collectives()
		e.Polling()
		for i := range n {
			e.Sent(i)
			e.Received(i)
		}
		runtime.Gosched()
	}
}

// threadRound is one round of all kinds of calls in a ring.
func threadRound(c *Comm, i int) error {
	next, prev := (c.Rank()+1)%c.Size(), (c.Rank()+c.Size()-1)%c.Size()
	small, large := make([]int, 2), make([]int, 2000)
	r1, err := Irecv(c, small, prev, 1)
	if err != nil {
		return err
	}
	r2, err := Irecv(c, large, prev, 2)
	if err != nil {
		return err
	}
	s1, err := Isend(c, []int{i, c.Rank()}, next, 1)
	if err != nil {
		return err
	}
	big := make([]int, 2000)
	big[1999] = i
	s2, err := Isend(c, big, next, 2)
	if err != nil {
		return err
	}
	if i%2 == 0 {
		err = WaitAll(r1, r2, s1, s2)
	} else {
		for n := 0; n < 4 && err == nil; n++ {
			_, _, err = WaitAny(r1, r2, s1, s2)
		}
	}
	if err != nil {
		return err
	}
	if small[0] != i || small[1] != prev || large[1999] != i {
		return fmt.Errorf("round %d: got %v and %d", i, small, large[1999])
	}
	if _, err := Sendrecv(c, []int{i}, next, 3, small[:1], prev, 3); err != nil {
		return err
	}
	sum := []int{0}
	if err := Allreduce(c, sum, []int{c.Rank()}, Sum); err != nil || sum[0] != c.Size()*(c.Size()-1)/2 {
		return fmt.Errorf("sum is %d: %w", sum[0], err)
	}
	counts := make([]int, c.Size())
	for k := range counts {
		counts[k] = k + 1
	}
	mine, all := make([]int, c.Rank()+1), make([]int, c.Size()*(c.Size()+1)/2)
	mine[0] = i
	if err := Allgatherv(c, all, counts, nil, mine); err != nil || all[0] != i || all[1] != i {
		return fmt.Errorf("allgatherv gave %v: %w", all, err)
	}
	return nil
}

// pinning is a driver whose buffers must not move, as a real library's.
type pinning struct{ driver.Driver }

func (p pinning) Info() driver.Info {
	i := p.Driver.Info()
	i.Pin = true
	return i
}

// TestGarbageAfterAFailedWait: a world that died with requests under way, whose
// buffers its library may still write to, is not collected. The runtime panics
// when it collects what is pinned.
func TestGarbageAfterAFailedWait(t *testing.T) {
	world := sim.New(2, sim.Options{EagerBytes: -1})
	func() {
		c := make([]*Comm, 2)
		var wg sync.WaitGroup
		for i := range c {
			wg.Go(func() { c[i], _ = over(pinning{world.Rank(i)}, nil) })
		}
		wg.Wait()
		var rs []*Request
		r, err := Irecv(c[0], make([]byte, 1000), 1, 1)
		if err != nil {
			t.Fatal(err)
		}
		s, err := Isend(c[0], make([]byte, 1000), 1, 1)
		if err != nil {
			t.Fatal(err)
		}
		b, err := Ibcast(c[0], make([]byte, 1000), 1)
		if err != nil {
			t.Fatal(err)
		}
		rs = append(rs, r, s, b)
		world.Abort(errors.New("the network is gone"))
		if err := WaitAll(rs...); err == nil {
			t.Error("waited for a dead world")
		}
	}()
	for range 3 { // what a collection finds is finalised after it
		done := make(chan struct{})
		runtime.SetFinalizer(&struct{ a [100]int }{}, func(any) { close(done) })
		runtime.GC()
		<-done
	}
}

// TestRefusedCallLeavesTheOtherAlone: a second call with counts, which is refused,
// must not change what the first one's library reads.
func TestRefusedCallLeavesTheOtherAlone(t *testing.T) {
	world := sim.New(2, sim.Options{})
	gate := &gated{entered: make(chan struct{}), leave: make(chan struct{})}
	var wg sync.WaitGroup
	var got []int
	for i := range 2 {
		wg.Go(func() {
			d := world.Rank(i)
			if i == 0 {
				gate.Driver = d
				d = gate
			}
			c, err := over(d, nil)
			if err != nil {
				t.Error(err)
				return
			}
			if i == 1 {
				if err := Allgatherv(c, make([]int, 3), []int{1, 2}, nil, []int{8, 9}); err != nil {
					t.Error(err)
				}
				return
			}
			dest := make([]int, 3)
			var first sync.WaitGroup
			first.Go(func() {
				if err := Allgatherv(c, dest, []int{1, 2}, nil, []int{7}); err != nil {
					t.Error(err)
				}
			})
			<-gate.entered
			if err := Allgatherv(c, make([]int, 3), []int{2, 1}, nil, []int{5, 6}); !errors.Is(err, ErrConcurrent) {
				t.Errorf("second call: got %v, want ErrConcurrent", err)
			}
			close(gate.leave)
			first.Wait()
			got = dest
		})
	}
	wg.Wait()
	if fmt.Sprint(got) != "[7 8 9]" {
		t.Errorf("got %v, want [7 8 9]", got)
	}
}

// gated is a driver that holds a collective back.
type gated struct {
	driver.Driver
	entered, leave chan struct{}
}

func (g *gated) Collective(a driver.Coll) error {
	close(g.entered)
	<-g.leave
	return g.Driver.Collective(a)
}

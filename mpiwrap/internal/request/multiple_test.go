package request_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-hpc/holdfast/internal/endpoint"
	"github.com/holdfast-hpc/holdfast/mpiwrap"
	"github.com/holdfast-hpc/holdfast/mpiwrap/internal/driver"
	"github.com/holdfast-hpc/holdfast/mpiwrap/internal/mailbox"
	"github.com/holdfast-hpc/holdfast/mpiwrap/internal/sim"
)

// onThreads runs f on every rank of a world that grants ThreadMultiple.
func onThreads(t *testing.T, n int, seed uint64, f func(w *mpiwrap.Comm) error) {
	t.Helper()
	world := sim.New(n, sim.Options{Seed: seed, Delay: 0.3, Concurrent: true})
	errs := make([]error, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			defer world.Finish(i)
			c, err := over(world.Rank(i))
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
		onThreads(t, 3, seed, func(w *mpiwrap.Comm) error {
			comms := make([]*mpiwrap.Comm, goroutines)
			for g := range comms {
				var err error
				if comms[g], err = w.Dup(); err != nil {
					return err
				}
			}
			stop := make(chan struct{})
			var agent, wg sync.WaitGroup
			agent.Go(func() { watch(w.Endpoint(), w.Size(), stop) })
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
			_, err := w.Endpoint().Drain(context.Background())
			next, prev := (w.Rank()+1)%3, (w.Rank()+2)%3
			sent, got := w.Endpoint().Sent(next), w.Endpoint().Received(prev)
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
func threadRound(c *mpiwrap.Comm, i int) error {
	next, prev := (c.Rank()+1)%c.Size(), (c.Rank()+c.Size()-1)%c.Size()
	small, large := make([]int, 2), make([]int, 2000)
	r1, err := mpiwrap.Irecv(c, small, prev, 1)
	if err != nil {
		return err
	}
	r2, err := mpiwrap.Irecv(c, large, prev, 2)
	if err != nil {
		return err
	}
	s1, err := mpiwrap.Isend(c, []int{i, c.Rank()}, next, 1)
	if err != nil {
		return err
	}
	big := make([]int, 2000)
	big[1999] = i
	s2, err := mpiwrap.Isend(c, big, next, 2)
	if err != nil {
		return err
	}
	if i%2 == 0 {
		err = mpiwrap.WaitAll(r1, r2, s1, s2)
	} else {
		for n := 0; n < 4 && err == nil; n++ {
			_, _, err = mpiwrap.WaitAny(r1, r2, s1, s2)
		}
	}
	if err != nil {
		return err
	}
	if small[0] != i || small[1] != prev || large[1999] != i {
		return fmt.Errorf("round %d: got %v and %d", i, small, large[1999])
	}
	if _, err := mpiwrap.Sendrecv(c, []int{i}, next, 3, small[:1], prev, 3); err != nil {
		return err
	}
	sum := []int{0}
	if err := mpiwrap.Allreduce(c, sum, []int{c.Rank()}, mpiwrap.Sum); err != nil || sum[0] != c.Size()*(c.Size()-1)/2 {
		return fmt.Errorf("sum is %d: %w", sum[0], err)
	}
	counts := make([]int, c.Size())
	for k := range counts {
		counts[k] = k + 1
	}
	mine, all := make([]int, c.Rank()+1), make([]int, c.Size()*(c.Size()+1)/2)
	mine[0] = i
	if err := mpiwrap.Allgatherv(c, all, counts, nil, mine); err != nil || all[0] != i || all[1] != i {
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
		c := make([]*mpiwrap.Comm, 2)
		var wg sync.WaitGroup
		for i := range c {
			wg.Go(func() { c[i], _ = over(pinning{world.Rank(i)}) })
		}
		wg.Wait()
		var rs []*mpiwrap.Request
		r, err := mpiwrap.Irecv(c[0], make([]byte, 1000), 1, 1)
		if err != nil {
			t.Fatal(err)
		}
		s, err := mpiwrap.Isend(c[0], make([]byte, 1000), 1, 1)
		if err != nil {
			t.Fatal(err)
		}
		b, err := mpiwrap.Ibcast(c[0], make([]byte, 1000), 1)
		if err != nil {
			t.Fatal(err)
		}
		rs = append(rs, r, s, b)
		world.Abort(errors.New("the network is gone"))
		if err := mpiwrap.WaitAll(rs...); err == nil {
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
			c, err := over(d)
			if err != nil {
				t.Error(err)
				return
			}
			if i == 1 {
				if err := mpiwrap.Allgatherv(c, make([]int, 3), []int{1, 2}, nil, []int{8, 9}); err != nil {
					t.Error(err)
				}
				return
			}
			dest := make([]int, 3)
			var first sync.WaitGroup
			first.Go(func() {
				if err := mpiwrap.Allgatherv(c, dest, []int{1, 2}, nil, []int{7}); err != nil {
					t.Error(err)
				}
			})
			<-gate.entered
			err = mpiwrap.Allgatherv(c, make([]int, 3), []int{2, 1}, nil, []int{5, 6})
			if !errors.Is(err, mpiwrap.ErrConcurrent) {
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

// TestPointWithThreads: with ThreadMultiple a goroutine sends and receives all the time
// while the main thread takes checkpoints: the records hold every message once.
func TestPointWithThreads(t *testing.T) {
	onThreads(t, 2, 1, func(w *mpiwrap.Comm) error {
		e, peer := w.Endpoint(), 1-w.Rank()
		stop := make(chan struct{})
		var worker sync.WaitGroup
		var workerErr error
		sent, got := 0, 0
		worker.Go(func() {
			buf := []int{0}
			for {
				select {
				case <-stop:
					return
				default:
				}
				workerErr = mpiwrap.Send(w, []int{sent}, peer, 1)
				sent++
				for workerErr == nil {
					_, ok, err := w.Iprobe(peer, 1)
					if workerErr = err; !ok || err != nil {
						break
					}
					if _, workerErr = mpiwrap.Recv(w, buf, peer, 1); workerErr == nil && buf[0] != got {
						workerErr = fmt.Errorf("message %d came as number %d", buf[0], got)
					}
					got++
				}
				if workerErr != nil {
					return
				}
			}
		})
		var err error
		for range 20 {
			for range 50 {
				if _, err2 := e.DrainSome(); err2 != nil {
					err = errors.Join(err, err2)
				}
			}
			resume := e.Hold()
			if _, err2 := e.Drain(context.Background()); err2 != nil {
				err = errors.Join(err, err2)
			}
			b, err2 := e.SaveMailbox()
			var r mailbox.Mail
			if err = errors.Join(err, err2); err == nil {
				rest, err1 := endpoint.TakeDescription(b, &r)
				err = errors.Join(err1, endpoint.TakeMessages(rest, r.Messages))
			}
			for i, m := range r.Boxes { // in order, without a gap
				if first := int(r.Boxes[0].Data[0]) | int(r.Boxes[0].Data[1])<<8; err == nil &&
					(int(m.Data[0])|int(m.Data[1])<<8) != first+i {
					err = fmt.Errorf("box %d of %d has message %v, the first %d", i, len(r.Boxes), m.Data, first)
				}
			}
			resume()
		}
		close(stop)
		worker.Wait()
		return errors.Join(err, workerErr)
	})
}

// TestPointWithAThreadInside: a goroutine waits in MPI for a message that comes after
// the checkpoint. All ranks refuse it, by name on the one, and go on.
func TestPointWithAThreadInside(t *testing.T) {
	onThreads(t, 2, 1, func(w *mpiwrap.Comm) error {
		e := w.Endpoint()
		var worker sync.WaitGroup
		buf := []int{0}
		var workerErr error
		if w.Rank() == 0 {
			worker.Go(func() { _, workerErr = mpiwrap.Recv(w, buf, 1, 1) })
			for !e.Activity().Blocked {
				time.Sleep(time.Millisecond)
			}
		}
		_, err := e.Drain(context.Background())
		if !errors.Is(err, mpiwrap.ErrDrainIncomplete) || w.Rank() == 0 && (!errors.Is(err, mpiwrap.ErrConcurrent) ||
			!strings.Contains(err.Error(), "Recv on world")) {
			return fmt.Errorf("got %v, want ErrDrainIncomplete, and on rank 0 the call", err)
		}
		if w.Rank() == 1 {
			if err := mpiwrap.Send(w, []int{5}, 0, 1); err != nil {
				return err
			}
		}
		worker.Wait()
		if workerErr != nil || w.Rank() == 0 && buf[0] != 5 {
			return fmt.Errorf("the goroutine got %v: %w", buf, workerErr)
		}
		_, err = e.Drain(context.Background())
		return err
	})
}

// over builds a world on a rank's driver.
func over(d driver.Driver) (*mpiwrap.Comm, error) {
	c, err := sim.Over(d, nil)
	if err != nil {
		return nil, err
	}
	return c.(*mpiwrap.Comm), nil
}

// TestCallsAtOnceAreRefusedOrWhole: goroutines start messages at the same time
// without ThreadMultiple. Each call fails with ErrConcurrent or has done all of
// its work, and nothing is lost.
func TestCallsAtOnceAreRefusedOrWhole(t *testing.T) {
	const goroutines, each = 8, 50
	onSim(t, 1, func(w *mpiwrap.Comm) error {
		var mu sync.Mutex
		var recvs, sends []*mpiwrap.Request
		var errs []error
		note := func(to *[]*mpiwrap.Request, r *mpiwrap.Request, err error) {
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				*to = append(*to, r)
			} else if !errors.Is(err, mpiwrap.ErrConcurrent) {
				errs = append(errs, err)
			}
		}
		var wg sync.WaitGroup
		for range goroutines {
			wg.Go(func() {
				for range each {
					r, err := mpiwrap.Irecv(w, make([]int, 1), 0, 1)
					note(&recvs, r, err)
					s, err := mpiwrap.Isend(w, []int{7}, 0, 1)
					note(&sends, s, err)
				}
			})
		}
		wg.Wait()
		for range len(recvs) - len(sends) {
			errs = append(errs, mpiwrap.Send(w, []int{7}, 0, 1))
		}
		for range len(sends) - len(recvs) {
			_, err := mpiwrap.Recv(w, make([]int, 1), 0, 1)
			errs = append(errs, err)
		}
		errs = append(errs, mpiwrap.WaitAll(append(recvs, sends...)...))
		if e := w.Endpoint(); e.Sent(0) != e.Received(0) {
			errs = append(errs, fmt.Errorf("%d messages sent, %d received", e.Sent(0), e.Received(0)))
		}
		return errors.Join(errs...)
	})
}

// TestWaitByTwoGoroutines: one of them gets the message, the other an error.
func TestWaitByTwoGoroutines(t *testing.T) {
	onSim(t, 1, func(w *mpiwrap.Comm) error {
		for range 200 {
			r, err := mpiwrap.Irecv(w, make([]int, 1), 0, 1)
			if err := errors.Join(err, mpiwrap.Send(w, []int{7}, 0, 1)); err != nil {
				return err
			}
			errs := make([]error, 2)
			var wg sync.WaitGroup
			for i := range errs {
				wg.Go(func() { _, errs[i] = r.Wait() })
			}
			wg.Wait()
			good := 0
			for _, err := range errs {
				switch {
				case err == nil:
					good++
				case !errors.Is(err, mpiwrap.ErrConcurrent) && !errors.Is(err, mpiwrap.ErrRequest):
					return err
				}
			}
			if good != 1 {
				return fmt.Errorf("%d waits succeeded: %w", good, errors.Join(errs...))
			}
		}
		return nil
	})
}

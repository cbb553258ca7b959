package mpiwrap

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-hpc/holdfast/internal/endpoint"
	"github.com/holdfast-hpc/holdfast/mpiwrap/internal/driver"
	"github.com/holdfast-hpc/holdfast/mpiwrap/internal/sim"
)

// failing is a driver whose probes fail for a while.
type failing struct {
	driver.Driver
	left int
}

func (f *failing) Improbe(source, tag int, c driver.Handle) (driver.Handle, driver.Status, bool, error) {
	if f.left > 0 {
		f.left--
		return 0, driver.Status{}, false, &driver.Error{Class: driver.ClassIntern, Text: "out of memory"}
	}
	return f.Driver.Improbe(source, tag, c)
}

// TestDrainsStayInStep: drains fail on one rank, by an error of MPI or because its time is
// up, several times in a row. All ranks fail alike, and the next drain is right.
func TestDrainsStayInStep(t *testing.T) {
	for _, dense := range []int{driver.DenseRanks, 0} {
		old := driver.DenseRanks
		driver.DenseRanks = dense
		for _, how := range []string{"MPI fails", "no time", "no time anywhere"} {
			t.Run(fmt.Sprintf("%s/dense up to %d", how, dense), func(t *testing.T) { inStep(t, how) })
		}
		driver.DenseRanks = old
	}
}

func inStep(t *testing.T, how string) {
	const n, rounds = 3, 6
	world := sim.New(n, sim.Options{Delay: 0.3})
	errs := make([]error, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			defer world.Finish(i)
			f := &failing{Driver: world.Rank(i)}
			errs[i] = func() error {
				w, err := over(f, nil)
				if err != nil {
					return err
				}
				for round := range rounds {
					if err := Send(w, []int{round}, (i+1)%n, round); err != nil {
						return err
					}
					ctx, cancel := context.WithCancel(context.Background())
					defer cancel()
					switch bad := round%3 < 2; {
					case bad && how == "no time anywhere", bad && how == "no time" && i == 1:
						cancel()
					case bad && how == "MPI fails" && i == 1:
						f.left = 1
					}
					_, err := endpoint.Of(w).Drain(ctx)
					if round%3 < 2 {
						if err == nil || how != "MPI fails" && !errors.Is(err, ErrDrainIncomplete) ||
							how == "MPI fails" && i == 1 && errors.Is(err, ErrDrainIncomplete) {
							return fmt.Errorf("round %d: got %v", round, err)
						}
						continue
					}
					if err != nil {
						return fmt.Errorf("round %d: %w", round, err)
					}
					e := endpoint.Of(w)
					if sent, got := e.Sent((i+1)%n), e.Received((i+n-1)%n); sent != uint64(round+1) || got != sent {
						return fmt.Errorf("round %d: sent %d, drained %d", round, sent, got)
					}
				}
				return nil
			}()
			if errs[i] != nil {
				world.Abort(errs[i])
			}
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Error(err)
	}
}

// refusing is a driver whose sends fail.
type refusing struct {
	driver.Driver
	refuse bool
}

func (r *refusing) Send(m driver.Mode, buf []byte, dest, tag int, c driver.Handle) error {
	if r.refuse {
		return &driver.Error{Class: driver.ClassIntern, Text: "out of memory"}
	}
	return r.Driver.Send(m, buf, dest, tag, c)
}

// TestSendrecvKeepsItsMessage: a drained message is still there after a Sendrecv that
// could not send, and what was not sent is not counted.
func TestSendrecvKeepsItsMessage(t *testing.T) {
	d := &refusing{Driver: sim.New(1, sim.Options{}).Rank(0)}
	w, err := over(d, nil)
	if err != nil {
		t.Fatal(err)
	}
	e := endpoint.Of(w)
	drained := func() {
		t.Helper()
		if _, err := e.Drain(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(Send(w, []int{8}, 0, 2), Send(w, []int{7}, 0, 1)); err != nil {
		t.Fatal(err)
	}
	drained()
	d.refuse = true
	got := []int{0}
	if _, err := Sendrecv(w, []int{9}, 0, 3, got, 0, 1); err == nil {
		t.Fatal("a send that fails has no error")
	}
	d.refuse = false
	drained()
	if st, err := Sendrecv(w, []int{9}, 0, 3, got, AnySource, 1); err != nil || got[0] != 7 || st.Source != 0 {
		t.Errorf("tried again: got %v of %+v, %v; want 7", got, st, err)
	}
	for _, want := range []int{8, 9} {
		if _, err := Recv(w, got, 0, AnyTag); err != nil || got[0] != want {
			t.Errorf("got %v, %v; want %d", got, err, want)
		}
	}
}

// TestPointWithThreads: with ThreadMultiple a goroutine sends and receives all the time
// while the main thread takes checkpoints: the records hold every message once.
func TestPointWithThreads(t *testing.T) {
	onThreads(t, 2, 1, func(w *Comm) error {
		e, peer := endpoint.Of(w), 1-w.Rank()
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
				workerErr = Send(w, []int{sent}, peer, 1)
				sent++
				for workerErr == nil {
					_, ok, err := w.Iprobe(peer, 1)
					if workerErr = err; !ok || err != nil {
						break
					}
					if _, workerErr = Recv(w, buf, peer, 1); workerErr == nil && buf[0] != got {
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
			var r record
			if err = errors.Join(err, err2); err == nil {
				err = r.decode(b)
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
	onThreads(t, 2, 1, func(w *Comm) error {
		e := endpoint.Of(w)
		var worker sync.WaitGroup
		buf := []int{0}
		var workerErr error
		if w.Rank() == 0 {
			worker.Go(func() { _, workerErr = Recv(w, buf, 1, 1) })
			for !e.Activity().Blocked {
				time.Sleep(time.Millisecond)
			}
		}
		_, err := e.Drain(context.Background())
		if !errors.Is(err, ErrDrainIncomplete) || w.Rank() == 0 && (!errors.Is(err, ErrConcurrent) ||
			!strings.Contains(err.Error(), "Recv on world")) {
			return fmt.Errorf("got %v, want ErrDrainIncomplete, and on rank 0 the call", err)
		}
		if w.Rank() == 1 {
			if err := Send(w, []int{5}, 0, 1); err != nil {
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

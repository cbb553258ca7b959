package request_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/holdfast-hpc/holdfast/mpiwrap"
	"github.com/holdfast-hpc/holdfast/mpiwrap/mpitest"
)

// onSim runs f on n simulated ranks under several seeds.
func onSim(t *testing.T, n int, f func(w *mpiwrap.Comm) error) {
	t.Helper()
	for seed := range uint64(10) {
		if err := mpitest.Run(n, seed, f); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
	}
}

// TestQueuedReceivesKeepTheirOrder mixes receives that are posted at once, that
// are queued, and that find no slot: they match in the order of the program.
func TestQueuedReceivesKeepTheirOrder(t *testing.T) {
	const n = 200 // more than the queue and the slots of a simulated rank hold
	lengths := func(i int) int { return []int{1, 8, 0, 64, 65, 3, 500}[i%7] }
	onSim(t, 2, func(w *mpiwrap.Comm) error {
		peer := 1 - w.Rank()
		bufs, reqs := make([][]byte, n), make([]*mpiwrap.Request, n)
		for i := range n {
			source := []int{peer, mpiwrap.AnySource}[i%2]
			var err error
			bufs[i] = make([]byte, lengths(i))
			if reqs[i], err = mpiwrap.Irecv(w, bufs[i], source, 5); err != nil {
				return err
			}
		}
		for i := range n {
			out := make([]byte, lengths(i))
			for k := range out {
				out[k] = byte(i)
			}
			if err := mpiwrap.Send(w, out, peer, 5); err != nil {
				return err
			}
		}
		st, err := mpiwrap.WaitAllStatus(nil, reqs...)
		if err != nil {
			return err
		}
		for i, s := range st {
			if s.Bytes != lengths(i) || s.Bytes > 0 && (bufs[i][0] != byte(i) || bufs[i][s.Bytes-1] != byte(i)) {
				return fmt.Errorf("receive %d: %+v, %v", i, s, bufs[i])
			}
		}
		return nil
	})
}

// TestQueuedReceiveIsPostedByEveryCall: whatever the program calls next, the
// receive is in MPI before it.
func TestQueuedReceiveIsPostedByEveryCall(t *testing.T) {
	calls := map[string]func(w *mpiwrap.Comm, r *mpiwrap.Request) error{
		"Recv": func(w *mpiwrap.Comm, r *mpiwrap.Request) error {
			_, err := mpiwrap.Recv(w, make([]int, 1), mpiwrap.AnySource, mpiwrap.AnyTag)
			return err
		},
		"Probe": func(w *mpiwrap.Comm, r *mpiwrap.Request) error {
			if _, err := w.Probe(0, 1); err != nil {
				return err
			}
			_, err := mpiwrap.Recv(w, make([]int, 1), 0, 1)
			return err
		},
		"RecvInit": func(w *mpiwrap.Comm, r *mpiwrap.Request) error {
			p, err := mpiwrap.RecvInit(w, make([]int, 1), 0, 1)
			if err == nil {
				err = mpiwrap.Start(p)
			}
			if err == nil {
				_, err = p.Wait()
			}
			return err
		},
		"large Irecv": func(w *mpiwrap.Comm, r *mpiwrap.Request) error {
			l, err := mpiwrap.Irecv(w, make([]int, 100), 0, 1)
			if err == nil {
				_, err = l.Wait()
			}
			return err
		},
		"Drain": func(w *mpiwrap.Comm, r *mpiwrap.Request) error {
			if err := drain(w); err != nil {
				return err
			}
			_, err := mpiwrap.Recv(w, make([]int, 1), 0, 1)
			return err
		},
		"Test": func(w *mpiwrap.Comm, r *mpiwrap.Request) error {
			for {
				if _, done, err := r.Test(); done || err != nil {
					return err
				}
			}
		},
	}
	for name, call := range calls {
		t.Run(name, func(t *testing.T) {
			onSim(t, 1, func(w *mpiwrap.Comm) error {
				for v := range 2 {
					if err := mpiwrap.Send(w, []int{v + 1}, 0, 1); err != nil {
						return err
					}
				}
				first := []int{0}
				r, err := mpiwrap.Irecv(w, first, 0, 1)
				if err != nil {
					return err
				}
				if err := call(w, r); err != nil {
					return err
				}
				if _, err := r.Wait(); err != nil && name != "Test" {
					return err
				}
				if first[0] != 1 {
					return fmt.Errorf("the first receive got message %d", first[0])
				}
				return nil
			})
		})
	}
}

// TestCancelOfAQueuedReceive cancels before anything has been posted.
func TestCancelOfAQueuedReceive(t *testing.T) {
	onSim(t, 1, func(w *mpiwrap.Comm) error {
		r, err := mpiwrap.Irecv(w, make([]int, 1), 0, 1)
		if err != nil {
			return err
		}
		if err := r.Cancel(); err != nil {
			return err
		}
		if st, err := r.Wait(); err != nil || !st.Cancelled || st.Bytes != 0 {
			return fmt.Errorf("%+v %v", st, err)
		}
		if _, err := r.Wait(); !errors.Is(err, mpiwrap.ErrRequest) {
			return fmt.Errorf("second wait: %v", err)
		}
		return nil
	})
}

// TestReceiveThatCannotBePosted: the error comes out of the wait.
func TestReceiveThatCannotBePosted(t *testing.T) {
	for _, how := range []string{"Wait", "Test", "WaitAll", "WaitAny", "TestAll", "Cancel"} {
		w := mpitest.NewWorld(1, mpitest.Options{})
		err := w.Run(func(c *mpiwrap.Comm) error {
			r, err := mpiwrap.Irecv(c, make([]int, 1), 0, 1)
			if err != nil {
				return err
			}
			w.Kill(0)
			switch how {
			case "Wait":
				_, err = r.Wait()
			case "Test":
				_, _, err = r.Test()
			case "WaitAll":
				err = mpiwrap.WaitAll(r)
			case "WaitAny":
				_, _, err = mpiwrap.WaitAny(r)
			case "TestAll":
				_, err = mpiwrap.TestAll(r)
			case "Cancel":
				if err = r.Cancel(); err == nil {
					_, err = r.Wait()
				}
			}
			if !errors.Is(err, mpitest.ErrKilled) {
				return fmt.Errorf("%s: got %v, want ErrKilled", how, err)
			}
			if _, err := r.Wait(); !errors.Is(err, mpiwrap.ErrRequest) {
				return fmt.Errorf("%s: second wait: %v", how, err)
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	}
}

// TestStartMany starts prepared requests of all kinds at once.
func TestStartMany(t *testing.T) {
	const n = 150 // more than one call of the driver takes
	onSim(t, 2, func(w *mpiwrap.Comm) error {
		peer := 1 - w.Rank()
		in, out := make([][1]int, n), make([][1]int, n)
		var reqs []*mpiwrap.Request
		for i := range n {
			to := peer
			if i%10 == 9 {
				to = mpiwrap.ProcNull
			}
			r, err := mpiwrap.RecvInit(w, in[i][:], to, i%3)
			if err != nil {
				return err
			}
			s, err := mpiwrap.SendInit(w, out[i][:], to, i%3)
			if err != nil {
				return err
			}
			reqs = append(reqs, r, s)
		}
		for round := range 3 {
			for i := range n {
				out[i][0] = 1000*round + i
			}
			if round == 1 { // half of the messages come out of the mailbox
				if err := mpiwrap.Start(reqs[n:]...); err != nil {
					return err
				}
				if err := drain(w); err != nil {
					return err
				}
				if err := mpiwrap.Start(reqs[:n]...); err != nil {
					return err
				}
			} else if err := mpiwrap.Start(reqs...); err != nil {
				return err
			}
			if err := mpiwrap.Start(reqs[0]); !errors.Is(err, mpiwrap.ErrRequest) {
				return fmt.Errorf("starting twice: %v", err)
			}
			if err := mpiwrap.WaitAll(reqs...); err != nil {
				return err
			}
			if round == 1 {
				continue // which message went where depends on the order of Start
			}
			for i := range n {
				if i%10 != 9 && in[i][0] != 1000*round+i {
					return fmt.Errorf("round %d: receive %d got %d", round, i, in[i][0])
				}
			}
		}
		for _, r := range reqs {
			if err := r.Free(); err != nil {
				return err
			}
		}
		return drain(w)
	})
}

// TestStartStopsAtTheFirstThatCannotBeStarted: those before it are under way.
func TestStartStopsAtTheFirstThatCannotBeStarted(t *testing.T) {
	onSim(t, 1, func(w *mpiwrap.Comm) error {
		in := []int{0}
		r, err := mpiwrap.RecvInit(w, in, 0, 1)
		if err != nil {
			return err
		}
		s, err := mpiwrap.SendInit(w, []int{4}, 0, 1)
		if err != nil {
			return err
		}
		plain := mpiwrap.NewRequest(w, make([]int, 1))
		for _, bad := range []*mpiwrap.Request{nil, plain, r} {
			if err := mpiwrap.Start(r, s, bad, s); !errors.Is(err, mpiwrap.ErrRequest) {
				return fmt.Errorf("got %v, want ErrRequest", err)
			}
			if err := mpiwrap.WaitAll(r, s); err != nil || in[0] != 4 {
				return fmt.Errorf("got %v: %v", in, err)
			}
			in[0] = 0
		}
		return nil
	})
}

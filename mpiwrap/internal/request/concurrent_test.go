package request_test

import (
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/holdfast-hpc/holdfast/internal/endpoint"
	"github.com/holdfast-hpc/holdfast/mpiwrap"
)

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
		if e := endpoint.Of(w); e.Sent(0) != e.Received(0) {
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

package mpitest_test

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync"
	"testing"

	"github.com/holdfast-hpc/holdfast/internal/mpirun"
	"github.com/holdfast-hpc/holdfast/mpiwrap"
	"github.com/holdfast-hpc/holdfast/mpiwrap/internal/abi"
	"github.com/holdfast-hpc/holdfast/mpiwrap/mpitest"
)

// splitLimit makes every message over 1000 elements travel as those over 2^31 do:
// the whole suite must hold.
func splitLimit(w *mpiwrap.Comm) error {
	defer abi.SetLimit(abi.SetLimit(1000))
	return mpitest.Check(w, mpitest.Suite())
}

// huge sends more than 2^31 bytes, through a receive and through the mailbox.
func huge(w *mpiwrap.Comm) error {
	const n = 1<<31 + 12345
	buf := make([]byte, n)
	if w.Rank() == 0 {
		buf[0], buf[n/2], buf[n-1] = 1, 2, 3
		for tag := range 2 {
			s, err := mpiwrap.Isend(w, buf, 1, tag)
			if err != nil {
				return err
			}
			if tag == 1 {
				err = mpitest.Drain(w)
			}
			if _, werr := s.Wait(); err != nil || werr != nil {
				return errors.Join(err, werr)
			}
		}
		return w.Barrier()
	}
	for tag := range 2 {
		if tag == 1 {
			if err := mpitest.Drain(w); err != nil {
				return err
			}
		}
		clear(buf)
		st, err := w.Probe(0, tag)
		if err != nil || st.Bytes != n {
			return fmt.Errorf("probe: %+v %v", st, err)
		}
		st, err = mpiwrap.Recv(w, buf, 0, tag)
		if err != nil || st.Bytes != n || buf[0] != 1 || buf[n/2] != 2 || buf[n-1] != 3 {
			return fmt.Errorf("received %+v: %v", st, err)
		}
	}
	return w.Barrier()
}

// threads: with ThreadMultiple goroutines call at once; without it one of two
// calls at once is refused and the other unharmed.
func threads(w *mpiwrap.Comm) error {
	next, prev := (w.Rank()+1)%w.Size(), (w.Rank()+w.Size()-1)%w.Size()
	const each, goroutines = 50, 4
	errs := make([]error, goroutines)
	var wg sync.WaitGroup
	for g := range goroutines {
		wg.Go(func() {
			for i := range each {
				in := []int{0}
				r, err := mpiwrap.Irecv(w, in, prev, g)
				if err == nil {
					err = mpiwrap.Send(w, []int{i*10 + g}, next, g)
				}
				if err == nil {
					_, err = r.Wait()
				}
				if err != nil || in[0] != i*10+g {
					errs[g] = fmt.Errorf("goroutine %d message %d: got %d: %w", g, i, in[0], err)
					return
				}
			}
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	return errors.Join(mpitest.Drain(w), w.Barrier())
}

func TestSplitMessagesUnderMPI(t *testing.T) {
	for _, l := range mpirun.Launchers() {
		t.Run(l.Name, func(t *testing.T) { launch(t, l, 2, "split") })
	}
}

func TestThreadMultipleUnderMPI(t *testing.T) {
	for _, l := range mpirun.Launchers() {
		t.Run(l.Name, func(t *testing.T) { launch(t, l, 2, "threads", threadsEnv+"=1") })
	}
}

// TestHugeMessages needs 9 GiB and is asked for by name.
func TestHugeMessages(t *testing.T) {
	if on, _ := strconv.ParseBool(os.Getenv("HOLDFAST_TEST_HUGE")); !on {
		t.Skip("set HOLDFAST_TEST_HUGE=1; needs 9 GiB of memory")
	}
	for _, l := range mpirun.Launchers() {
		t.Run(l.Name, func(t *testing.T) { launch(t, l, 2, "huge") })
	}
}

package coordinated_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-hpc/holdfast/coordinated"
	"github.com/holdfast-hpc/holdfast/mpiwrap"
	"github.com/holdfast-hpc/holdfast/mpiwrap/mpitest"
)

var errGivesUp = errors.New("this rank gives up")

// stuckRank is one rank of a program that is stuck, or is not.
type stuckRank struct {
	w  *mpiwrap.Comm
	ck *coordinated.Checkpointer
}

func (j stuckRank) recv(from int) error {
	_, err := mpiwrap.Recv(j.w, []float64{0}, from, 1)
	return err
}

// stuckJobs are programs in which some ranks wait for what cannot come. Each returns
// by an error on one rank, which then closes as `defer ck.Close()` does.
var stuckJobs = []struct {
	name string
	rank func(j stuckRank) error
	want []string // in what the job ends with
}{
	{"recv", func(j stuckRank) error {
		if j.w.Rank() == 2 {
			return errGivesUp
		}
		return j.recv(2)
	}, []string{"rank 0 is in Recv on communicator world from rank 2", "rank 1 is in Recv", "rank 2 is in Close at ",
		"stuck_test.go"}},
	{"from any", func(j stuckRank) error {
		if j.w.Rank() > 0 {
			return errGivesUp
		}
		return j.recv(mpiwrap.AnySource)
	}, []string{"rank 0 is in Recv on communicator world from rank any", "rank 1 is in Close", "rank 2 is in Close"}},
	{"collective", func(j stuckRank) error {
		if j.w.Rank() == 2 {
			return errGivesUp
		}
		return j.w.Barrier()
	}, []string{"rank 0 is in Barrier", "rank 1 is in Barrier", "rank 2 is in Close"}},
	{"chain", func(j stuckRank) error {
		switch j.w.Rank() {
		case 0:
			return errGivesUp
		case 1:
			return j.recv(0)
		}
		return j.recv(1)
	}, []string{"rank 1 is in Recv", "rank 2 is in Recv", "rank 0 is in Close"}},
	{"wait", func(j stuckRank) error {
		if j.w.Rank() > 0 {
			return errGivesUp
		}
		a, err := mpiwrap.Irecv(j.w, []float64{0}, 1, 1)
		if err != nil {
			return err
		}
		b, err := mpiwrap.Irecv(j.w, []float64{0}, 2, 1)
		if err != nil {
			return err
		}
		return mpiwrap.WaitAll(a, b)
	}, []string{"rank 0 is in WaitAll", "from rank 1", "from rank 2"}},
	{"synchronous send", func(j stuckRank) error {
		switch j.w.Rank() {
		case 0:
			return mpiwrap.Ssend(j.w, []float64{0}, 1, 9)
		case 1:
			return j.recv(2)
		}
		return errGivesUp
	}, []string{"rank 0 is in Ssend", "to rank 1", "rank 1 is in Recv", "rank 2 is in Close"}},
	{"communicator", func(j stuckRank) error {
		if j.w.Rank() == 2 {
			return errGivesUp
		}
		_, err := j.w.Dup()
		return err
	}, []string{"rank 0 is in Dup", "rank 2 is in Close"}},
	{"poll", func(j stuckRank) error {
		if j.w.Rank() > 0 {
			return errGivesUp
		}
		for {
			if _, there, err := j.w.Iprobe(1, 1); err != nil || there {
				return err
			}
		}
	}, []string{"rank 0 is polling from rank 1", "rank 1 is in Close"}},
}

func stuckOptions(t *testing.T) coordinated.Options {
	local := filepath.Join(t.TempDir(), "local")
	if err := os.Mkdir(local, 0o700); err != nil {
		t.Fatal(err)
	}
	return coordinated.Options{Job: "stuck", Local: local, CheckpointSignals: []os.Signal{}, StopSignals: []os.Signal{},
		Fanout:      1,
		PeerTimeout: time.Minute, WaitTimeout: 200 * time.Millisecond,
		Logger: slog.New(slog.NewTextHandler(io.Discard, nil))}
}

// runStuck runs a program and returns the error that it was ended with.
func runStuck(t *testing.T, opt coordinated.Options, rank func(j stuckRank) error) *coordinated.LostError {
	t.Helper()
	world := mpitest.NewWorld(3, mpitest.Options{Seed: 1, EagerBytes: 64})
	var lost atomic.Pointer[coordinated.LostError]
	opt.OnLost = func(e *coordinated.LostError) { lost.Store(e); world.Abort(e) }
	done := make(chan error, 1)
	go func() {
		done <- world.Run(func(w *mpiwrap.Comm) error {
			ctx := context.Background()
			ck, err := coordinated.Open(ctx, w, opt)
			if err != nil {
				return err
			}
			err = rank(stuckRank{w, ck})
			return errors.Join(err, ck.Close()) // as a program does, with defer ck.Close()
		})
	}()
	select {
	case err := <-done:
		var le *coordinated.LostError
		if errors.As(err, &le) {
			return le
		}
		if le = lost.Load(); le == nil {
			t.Logf("ended with %v", err)
		}
		return le
	case <-time.After(time.Minute):
		t.Fatal("the job hangs")
		return nil
	}
}

// TestStuck: ranks that wait for what cannot come end the job, and are named with
// their calls and places.
func TestStuck(t *testing.T) {
	for _, s := range stuckJobs {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			lost := runStuck(t, stuckOptions(t), func(j stuckRank) error {
				if _, err := j.ck.Restore(context.Background()); err != nil {
					return err
				}
				return s.rank(j)
			})
			if lost == nil {
				t.Fatal("nobody was told")
			}
			for _, want := range s.want {
				if !strings.Contains(lost.Error(), want) {
					t.Errorf("%v\ndoes not have %q", lost, want)
				}
			}
		})
	}
}

// TestStuckInRestore: the same where some ranks call Restore and others do not.
func TestStuckInRestore(t *testing.T) {
	lost := runStuck(t, stuckOptions(t), func(j stuckRank) error {
		if j.w.Rank() == 1 {
			return errGivesUp
		}
		_, err := j.ck.Restore(context.Background())
		return err
	})
	if lost == nil || !strings.Contains(lost.Error(), "rank 0 is in Restore at ") ||
		!strings.Contains(lost.Error(), "rank 1 is in Close at ") {
		t.Fatalf("got %v", lost)
	}
}

// TestWaitsForOneThatComputes: a wait is no reason to end a job as long as it hangs on
// a rank that computes.
func TestWaitsForOneThatComputes(t *testing.T) {
	opt := stuckOptions(t)
	lost := runStuck(t, opt, func(j stuckRank) error {
		if _, err := j.ck.Restore(context.Background()); err != nil {
			return err
		}
		switch j.w.Rank() {
		case 0:
			return nil
		case 1:
			return j.recv(2)
		}
		time.Sleep(6 * opt.WaitTimeout) // it computes
		return mpiwrap.Send(j.w, []float64{0}, 1, 1)
	})
	if lost != nil {
		t.Fatal(lost)
	}
}

// TestCloseOrAbort: an error ends the job at once, and ErrStop or none closes it.
func TestCloseOrAbort(t *testing.T) {
	opt := stuckOptions(t)
	opt.WaitTimeout = time.Hour
	lost := runStuck(t, opt, func(j stuckRank) error {
		run := func() (err error) {
			defer j.ck.CloseOrAbort(&err)
			if _, err := j.ck.Restore(context.Background()); err != nil {
				return err
			}
			if j.w.Rank() == 1 {
				return errGivesUp
			}
			return j.recv(1)
		}
		return run()
	})
	if lost == nil || lost.Rank != 1 || !strings.Contains(lost.Error(), errGivesUp.Error()) {
		t.Errorf("got %v", lost)
	}
	if lost := runStuck(t, stuckOptions(t), func(j stuckRank) (err error) {
		defer j.ck.CloseOrAbort(&err)
		_, err = j.ck.Restore(context.Background())
		if err == nil && j.w.Rank() == 1 {
			err = fmt.Errorf("as Point has it: %w", coordinated.ErrStop)
		}
		return err
	}); lost != nil {
		t.Errorf("got %v", lost)
	}
}

// TestCloseAfterFailedRestore: all ranks have the error of Restore, and none an error that
// another gave up.
func TestCloseAfterFailedRestore(t *testing.T) {
	opt := stuckOptions(t)
	opt.Epoch = 99
	if lost := runStuck(t, opt, func(j stuckRank) error {
		run := func() (err error) {
			defer j.ck.CloseOrAbort(&err)
			_, err = j.ck.Restore(context.Background())
			return err
		}
		if err := run(); err == nil || !strings.Contains(err.Error(), "not all ranks can read epoch 99") {
			t.Errorf("got %v, want the missing epoch named", err)
		}
		return nil
	}); lost != nil {
		t.Errorf("got %v", lost)
	}
}

// TestRestoreNoTime: the context of one rank's Restore has ended, before there is an epoch
// and when there are some. All ranks have its error, and none waits for it.
func TestRestoreNoTime(t *testing.T) {
	opt := stuckOptions(t)
	values := make([]int, 3)
	for epochs := range 3 {
		for _, ends := range []bool{true, false} {
			lost := runStuck(t, opt, func(j stuckRank) (err error) {
				defer j.ck.CloseOrAbort(&err)
				ctx, cancel := context.WithCancel(context.Background())
				defer cancel()
				if ends && j.w.Rank() == 1 {
					cancel()
				}
				err = j.ck.Protect("value", &values[j.w.Rank()])
				if err == nil {
					_, err = j.ck.Restore(ctx)
				}
				if ends {
					if err == nil || !strings.Contains(err.Error(), context.Canceled.Error()) {
						t.Errorf("%d epochs, rank %d: got %v, want the end of rank 1's context", epochs, j.w.Rank(),
							err)
					}
					return nil
				}
				if err == nil && j.w.Rank() == 0 {
					err = j.ck.Request(ctx)
				}
				for err == nil && len(j.ck.Stats().Epochs) == 0 {
					err = j.ck.Point(ctx)
				}
				return err
			})
			if lost != nil {
				t.Fatalf("%d epochs, ends %v: %v", epochs, ends, lost)
			}
		}
	}
}

// TestOpenBySome: Open that not all ranks call fails on those that do, and rank 0
// names the others.
func TestOpenBySome(t *testing.T) {
	opt := stuckOptions(t)
	opt.WaitTimeout = 100 * time.Millisecond
	var waited atomic.Int64
	world := mpitest.NewWorld(3, mpitest.Options{Seed: 1})
	err := world.Run(func(w *mpiwrap.Comm) error {
		if w.Rank() == 1 {
			for waited.Load() < 2 {
				time.Sleep(time.Millisecond)
			}
			return nil
		}
		_, err := coordinated.Open(context.Background(), w, opt)
		waited.Add(1)
		if err == nil || !strings.Contains(err.Error(), "every rank must call Open") ||
			w.Rank() == 0 && !strings.Contains(err.Error(), "rank(s) 1 have not") {
			t.Errorf("rank %d: got %v, want an error that names rank 1 at rank 0", w.Rank(), err)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestOpenLate: a rank that comes late is waited for.
func TestOpenLate(t *testing.T) {
	opt := stuckOptions(t)
	if lost := runStuck(t, opt, func(j stuckRank) error { return nil }); lost != nil {
		t.Error(lost)
	}
	err := mpitest.Run(3, 1, func(w *mpiwrap.Comm) error {
		time.Sleep(time.Duration(w.Rank()) * 2 * opt.WaitTimeout)
		ck, err := coordinated.Open(context.Background(), w, opt)
		if err != nil {
			return err
		}
		return ck.Close()
	})
	if err != nil {
		t.Error(err)
	}
}

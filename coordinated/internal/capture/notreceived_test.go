package capture_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/holdfast-hpc/holdfast/coordinated"
	"github.com/holdfast-hpc/holdfast/coordinated/jobtest"
	"github.com/holdfast-hpc/holdfast/mpiwrap"
	"github.com/holdfast-hpc/holdfast/mpiwrap/mpitest"
)

// TestPlainReceiveAcrossARestart: rank 1 has an Irecv pending when the program is
// stopped, and its message has come. The restarted program posts it again, waits for a
// request that it has not started, or forgets it.
func TestPlainReceiveAcrossARestart(t *testing.T) {
	for _, then := range []string{"post again", "wait only", "forget"} {
		t.Run(then, func(t *testing.T) {
			opt := jobtest.Options(t)
			for life := range 2 {
				errs := make([]error, 2)
				err := mpitest.Run(2, uint64(life), func(w *mpiwrap.Comm) (err error) {
					errs[w.Rank()], err = plainReceive(w, opt, then)
					return err
				})
				if err != nil {
					t.Fatal(err)
				}
				var lost *coordinated.NotReceivedError
				switch {
				case life == 1 && then == "forget":
					if !errors.As(errs[1], &lost) || !strings.Contains(errs[1].Error(), "notreceived_test.go:") {
						t.Errorf("Close returned %v, want a *NotReceivedError that names the place", errs[1])
					}
				case errs[1] != nil && (life == 0 || then == "post again"):
					t.Errorf("Close returned %v", errs[1])
				}
			}
		})
	}
}

// plainReceive returns what Close says, apart.
func plainReceive(w *mpiwrap.Comm, opt coordinated.Options, then string) (closed, err error) {
	ctx := context.Background()
	ck, step, err := jobtest.OpenStep(ctx, w, opt)
	if err != nil {
		return nil, err
	}
	in := []float64{0}
	post := func() *mpiwrap.Request {
		r := mpiwrap.NewRequest(w, in)
		err = errors.Join(err, r.Irecv(0, 1))
		return r
	}
	if restored := *step > 0; restored {
		var r *mpiwrap.Request
		switch {
		case w.Rank() == 0 || then == "forget":
			return ck.Close(), nil
		case then == "wait only":
			if _, err := mpiwrap.NewRequest(w, in).Wait(); !errors.Is(err, mpiwrap.ErrRequest) ||
				!strings.Contains(err.Error(), "notreceived_test.go:") {
				return nil, fmt.Errorf("Wait: got %v, want ErrRequest and the place", err)
			}
			return ck.Close(), nil
		}
		if r = post(); err == nil {
			_, err = r.Wait()
		}
		if err != nil || in[0] != 42 {
			return nil, fmt.Errorf("got %v, want 42: %w", in, err)
		}
		return ck.Close(), nil
	}
	if w.Rank() == 1 {
		post()
	} else {
		err = errors.Join(mpiwrap.Send(w, []float64{42}, 1, 1), ck.RequestStop(ctx))
	}
	for *step = 1; err == nil; {
		err = ck.Point(ctx)
	}
	if !errors.Is(err, coordinated.ErrStop) {
		return nil, err
	}
	return ck.Close(), nil
}

// TestFreedWindowAtAPoint: a protected window is freed, as it should be before Close, and
// a checkpoint is taken at a Point and in Close. The restarted program comes to the same end.
func TestFreedWindowAtAPoint(t *testing.T) {
	opt := jobtest.Options(t)
	for life := range 3 {
		err := mpitest.Run(2, uint64(life), func(w *mpiwrap.Comm) error {
			ctx := context.Background()
			ck, err := coordinated.Open(ctx, w, opt)
			if err != nil {
				return err
			}
			win, err := mpiwrap.WinAllocate[int64](w, 3)
			if err != nil {
				return err
			}
			step := 0
			if err := errors.Join(ck.Protect("step", &step), ck.Protect("window", win)); err != nil {
				return err
			}
			restored, err := ck.Restore(ctx)
			if err != nil || restored != (life > 0) {
				return fmt.Errorf("restored %v: %w", restored, err)
			}
			if life > 0 && step != life {
				return fmt.Errorf("step %d, want %d", step, life)
			}
			step++
			err = win.Free()
			if w.Rank() == 0 {
				err = errors.Join(err, ck.Request(ctx), jobtest.UntilTaken(ctx, ck))
			}
			err = errors.Join(err, ck.Close())
			for _, es := range ck.Stats().Epochs {
				err = errors.Join(err, es.Err)
			}
			return err
		})
		if err != nil {
			t.Fatalf("life %d: %v", life, err)
		}
	}
}

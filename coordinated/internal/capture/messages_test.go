package capture_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-hpc/holdfast/coordinated"
	"github.com/holdfast-hpc/holdfast/coordinated/jobtest"
	"github.com/holdfast-hpc/holdfast/mpiwrap"
	"github.com/holdfast-hpc/holdfast/mpiwrap/mpitest"
)

// TestMailboxBudget: a cut with more in flight than may be kept fails on all ranks, with
// the reason, and the program gets its messages.
func TestMailboxBudget(t *testing.T) {
	opt := jobtest.Options(t)
	opt.MaxMailbox = 10_000
	err := mpitest.Run(2, 1, func(w *mpiwrap.Comm) error {
		ctx := context.Background()
		ck, _, err := jobtest.OpenStep(ctx, w, opt)
		if err != nil {
			return err
		}
		const n, length = 5, 500 // 20,000 bytes
		if w.Rank() == 0 {
			for i := range n {
				if err := mpiwrap.Send(w, make([]float64, length), 1, i); err != nil {
					return err
				}
			}
			if err := ck.Request(ctx); err != nil {
				return err
			}
		}
		for len(ck.Stats().Epochs) == 0 {
			if err := ck.Point(ctx); err != nil {
				return err
			}
		}
		err = ck.Wait(ctx, "local")
		if err == nil || !strings.Contains(err.Error(), "rank 1: ") || !strings.Contains(err.Error(), "max_mailbox") ||
			w.Rank() == 1 && !errors.Is(err, mpiwrap.ErrMailboxFull) {
			t.Errorf("rank %d: got %v, want ErrMailboxFull of rank 1", w.Rank(), err)
		}
		for i := 0; i < n && w.Rank() == 1; i++ {
			if _, err := mpiwrap.Recv(w, make([]float64, length), 0, n-1-i); err != nil {
				return err
			}
		}
		return ck.Close()
	})
	if err != nil {
		t.Fatal(err)
	}
}

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
					if !errors.As(errs[1], &lost) || !strings.Contains(errs[1].Error(), "messages_test.go:") {
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
				!strings.Contains(err.Error(), "messages_test.go:") {
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

// slow takes its time in a capture and in a restore.
type slow struct{ d time.Duration }

func (s *slow) MarshalBinary() ([]byte, error) { time.Sleep(s.d); return []byte{1}, nil }
func (s *slow) UnmarshalBinary([]byte) error   { time.Sleep(s.d); return nil }

// peek is a program's own way to keep a window.
type peek struct{ win *mpiwrap.Win[int64] }

func (p *peek) MarshalBinary() ([]byte, error) { return p.win.MarshalBinary() }
func (p *peek) UnmarshalBinary(b []byte) error { return p.win.UnmarshalBinary(b) }

// tickets is a program in which rank 0 draws tickets from a counter that lies in
// a window of rank 1. Rank 1 captures and restores slowly.
type tickets struct {
	opt     coordinated.Options
	protect func(ck *coordinated.Checkpointer, win *mpiwrap.Win[int64]) error
}

// draw runs the program; it returns what the counter was after the restore and
// what rank 0 drew right after that.
func (p *tickets) draw(t *testing.T) (counter, drawn int64, restored bool) {
	t.Helper()
	err := mpitest.Run(2, 1, func(w *mpiwrap.Comm) error {
		ctx := context.Background()
		win, err := mpiwrap.WinAllocate[int64](w, 9000)
		if err != nil {
			return err
		}
		ck, err := coordinated.Open(ctx, w, p.opt)
		if err != nil {
			return err
		}
		got := int64(-1)
		late := &slow{time.Duration(w.Rank()) * 100 * time.Millisecond}
		if err := errors.Join(ck.Protect("got", &got), ck.Protect("slow", late), p.protect(ck, win)); err != nil {
			return err
		}
		again, err := ck.Restore(ctx)
		if err != nil {
			return err
		}
		if again && w.Rank() == 0 {
			restored = true
		}
		for i := 0; !again && len(ck.Stats().Epochs) == 0; i++ {
			if i == 0 && w.Rank() == 0 {
				if err := ck.Request(ctx); err != nil {
					return err
				}
			}
			if err := ck.Point(ctx); err != nil {
				return err
			}
			time.Sleep(time.Millisecond)
		}
		if w.Rank() == 0 { // at once
			if err := errors.Join(win.Lock(1, false), win.FetchAndOp(1, 0, &got, 1, mpiwrap.Sum),
				win.Unlock(1)); err != nil {
				return err
			}
			drawn = got
		}
		if err := w.Barrier(); err != nil {
			return err
		}
		if w.Rank() == 1 {
			counter = win.Memory()[0]
		}
		return errors.Join(ck.Close(), win.Free())
	})
	if err != nil {
		t.Fatal(err)
	}
	return counter, drawn, restored
}

// TestWindowAtCut: what a rank does to another's window after its Point is not in
// the epoch, however the window is protected, and what it does after Restore is not
// overwritten.
func TestWindowAtCut(t *testing.T) {
	for name, protect := range map[string]func(ck *coordinated.Checkpointer, win *mpiwrap.Win[int64]) error{
		"window": func(ck *coordinated.Checkpointer, win *mpiwrap.Win[int64]) error { return ck.Protect("win", win) },
		"its memory": func(ck *coordinated.Checkpointer, win *mpiwrap.Win[int64]) error {
			mem := win.Memory()
			return ck.Protect("win", &mem)
		},
		"by the program": func(ck *coordinated.Checkpointer, win *mpiwrap.Win[int64]) error {
			return ck.Protect("win", &peek{win})
		},
	} {
		for _, pool := range []int64{0, 4096} { // the latter has no room: the memory itself is written
			p := tickets{jobtest.Options(t), protect}
			p.opt.MaxPool = pool
			p.draw(t)
			if counter, drawn, restored := p.draw(t); !restored || drawn != 0 || counter != 1 {
				t.Errorf("%s, pool of %d: restored %t, rank 0 drew %d and the counter went to %d, want 0 and 1", name,
					pool, restored, drawn, counter)
			}
		}
	}
}

// TestWindowLockedAtCut: a lock that is held at a Point fails the epoch on all
// ranks, with the window's name; the program continues.
func TestWindowLockedAtCut(t *testing.T) {
	opt := jobtest.Options(t)
	err := mpitest.Run(2, 1, func(w *mpiwrap.Comm) error {
		ctx := context.Background()
		win, err := mpiwrap.WinAllocate[int64](w, 1)
		if err != nil {
			return err
		}
		ck, _, err := jobtest.OpenStep(ctx, w, opt)
		if err != nil {
			return err
		}
		if w.Rank() == 0 {
			if err := errors.Join(win.Lock(1, true), ck.Request(ctx)); err != nil {
				return err
			}
		}
		for len(ck.Stats().Epochs) == 0 {
			if err := ck.Point(ctx); err != nil {
				return err
			}
		}
		if w.Rank() == 0 {
			if err := win.Unlock(1); err != nil {
				return err
			}
			if err := ck.Wait(ctx, "local"); !errors.Is(err, mpiwrap.ErrEpochOpen) {
				t.Errorf("got %v, want it to match ErrEpochOpen", err)
			}
		}
		return ck.Close()
	})
	if err != nil {
		t.Fatal(err)
	}
}

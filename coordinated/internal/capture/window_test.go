package capture_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/holdfast-hpc/holdfast/coordinated"
	"github.com/holdfast-hpc/holdfast/coordinated/jobtest"
	"github.com/holdfast-hpc/holdfast/mpiwrap"
	"github.com/holdfast-hpc/holdfast/mpiwrap/mpitest"
)

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

package capture_test

import (
	"context"
	"errors"
	"strings"
	"testing"

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

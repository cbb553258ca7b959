package request_test

import (
	"testing"

	"github.com/holdfast-hpc/holdfast/internal/endpoint"
	"github.com/holdfast-hpc/holdfast/mpiwrap"
)

// TestStagedRecordsLeaveNoTrace stages a newer record and throws it away, then an
// older one: only what the older holds is there.
func TestStagedRecordsLeaveNoTrace(t *testing.T) {
	older, newer := save(t, 1), save(t, 3)
	onSim(t, 2, func(w *mpiwrap.Comm) error {
		r := w.Rank()
		req := mpiwrap.NewRequest(w, make([]int64, 1))
		if _, err := endpoint.Of(w).StageMailbox(newer.mailbox[r]); err != nil {
			return err
		}
		if _, err := req.StageBinary(newer.request[r]); err != nil {
			return err
		}
		if n, _ := endpoint.Of(w).Mailbox(); n != 0 {
			t.Errorf("staging left %d messages", n)
		}
		mail, err := endpoint.Of(w).StageMailbox(older.mailbox[r])
		if err != nil {
			return err
		}
		pending, err := req.StageBinary(older.request[r])
		if err != nil {
			return err
		}
		mail()
		pending()
		if n, _ := endpoint.Of(w).Mailbox(); r == 1 && n != 1 {
			t.Errorf("%d messages in the mailbox, want 1", n)
		}
		return nil
	})
}

// save makes a checkpoint in which rank 1 has messages in its mailbox and both
// ranks a receive that is pending.
func save(t *testing.T, messages int) *saved {
	s := newSaved(2)
	onSim(t, 2, func(w *mpiwrap.Comm) error {
		req := mpiwrap.NewRequest(w, make([]int64, 1))
		if err := req.Irecv(1-w.Rank(), 9); err != nil {
			return err
		}
		for i := range messages {
			if w.Rank() == 0 {
				if err := mpiwrap.Send(w, []int64{int64(i)}, 1, 5); err != nil {
					return err
				}
			}
		}
		return s.save(w, req)
	})
	return s
}

package request_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/holdfast-hpc/holdfast/internal/endpoint"
	"github.com/holdfast-hpc/holdfast/mpiwrap"
	"github.com/holdfast-hpc/holdfast/mpiwrap/mpitest"
)

// saved is what a run of n ranks leaves for the next.
type saved struct {
	mailbox, request [][]byte
}

func newSaved(n int) *saved { return &saved{make([][]byte, n), make([][]byte, n)} }

func (s *saved) save(w *mpiwrap.Comm, r *mpiwrap.Request) (err error) {
	if err = drain(w); err != nil {
		return err
	}
	if r != nil {
		if s.request[w.Rank()], err = r.MarshalBinary(); err != nil {
			return err
		}
	}
	s.mailbox[w.Rank()], err = w.Endpoint().SaveMailbox()
	return err
}

func (s *saved) load(w *mpiwrap.Comm) error { return loadMailbox(w.Endpoint(), s.mailbox[w.Rank()]) }

// places make communicators at one place each, whichever run of a test it is.
type places struct{}

var again places

func (places) dup(c *mpiwrap.Comm) (*mpiwrap.Comm, error)   { return c.Dup() }
func (places) other(c *mpiwrap.Comm) (*mpiwrap.Comm, error) { return c.Dup() }
func (places) split(c *mpiwrap.Comm, color int) (*mpiwrap.Comm, error) {
	return c.Split(color, 0)
}

func TestCommunicatorsAreMadeAgain(t *testing.T) {
	s := newSaved(3)
	onSim(t, 3, func(w *mpiwrap.Comm) error {
		first, err := again.dup(w) // world.1, made before Restore
		if err != nil {
			return err
		}
		for range 3 { // world.2 to world.4, gone at the checkpoint
			d, err := again.dup(w)
			if err != nil {
				return err
			}
			if err := d.Free(); err != nil {
				return err
			}
		}
		late, err := again.other(first)
		if err != nil {
			return err
		}
		color := mpiwrap.Undefined
		if w.Rank() > 0 {
			color = 1
		}
		part, err := again.split(w, color) // world.5[1], not on rank 0
		if err != nil {
			return err
		}
		if part != nil {
			if err := mpiwrap.Send(part, []int{w.Rank()}, 1-part.Rank(), 2); err != nil {
				return err
			}
		}
		if err := mpiwrap.Send(late, []int{w.Rank()}, (w.Rank()+1)%3, 1); err != nil {
			return err
		}
		return s.save(w, nil)
	})
	onSim(t, 3, func(w *mpiwrap.Comm) error {
		first, err := again.dup(w)
		if err != nil {
			return err
		}
		if err := s.load(w); err != nil {
			return err
		}
		color := mpiwrap.Undefined
		if w.Rank() > 0 {
			color = 1
		}
		part, err := again.split(w, color)
		if err != nil {
			return err
		}
		in := make([]int, 1)
		if part != nil {
			if part.Name() != "world.5[1]" {
				return fmt.Errorf("split is called %s", part.Name())
			}
			if _, err := mpiwrap.Recv(part, in, 1-part.Rank(), 2); err != nil || in[0] != 3-w.Rank() {
				return fmt.Errorf("from the split: %v %v", in, err)
			}
		}
		late, err := again.other(first)
		if err != nil {
			return err
		}
		if _, err := mpiwrap.Recv(late, in, mpiwrap.AnySource, 1); err != nil || in[0] != (w.Rank()+2)%3 {
			return fmt.Errorf("from %s: %v %v", late.Name(), in, err)
		}
		next, err := again.dup(w)
		if err != nil || next.Name() != "world.6" {
			return fmt.Errorf("next is called %s: %v", next.Name(), err)
		}
		return nil
	})
}

func TestMismatchNamesBothCreators(t *testing.T) {
	s := newSaved(2)
	onSim(t, 2, func(w *mpiwrap.Comm) error {
		if _, err := w.Dup(); err != nil {
			return err
		}
		return s.save(w, nil)
	})
	check := func(err error, words ...string) error {
		if !errors.Is(err, mpiwrap.ErrMismatch) {
			return fmt.Errorf("got %v, want ErrMismatch", err)
		}
		for _, word := range words {
			if !strings.Contains(err.Error(), word) {
				return fmt.Errorf("%q is not in %q", word, err)
			}
		}
		return nil
	}
	onSim(t, 2, func(w *mpiwrap.Comm) error { // all ranks differ from before
		if err := s.load(w); err != nil {
			return err
		}
		_, err := w.Split(0, 0)
		return check(err, "world.1", "Split at restart_test.go", "Dup at restart_test.go")
	})
	onSim(t, 2, func(w *mpiwrap.Comm) error { // one rank differs: both fail
		if err := s.load(w); err != nil {
			return err
		}
		var err error
		if w.Rank() == 0 {
			_, err = w.Dup()
		} else {
			_, err = w.Split(0, 0)
		}
		return check(err, "world", "Split at restart_test.go", "Dup at restart_test.go")
	})
	whole := newSaved(2)
	onSim(t, 2, func(w *mpiwrap.Comm) error {
		if _, err := w.Split(0, 0); err != nil { // world.1[0] of both ranks
			return err
		}
		return whole.save(w, nil)
	})
	onSim(t, 2, func(w *mpiwrap.Comm) error { // made before the record is loaded, by another split
		if _, err := w.Split(w.Rank(), 0); err != nil {
			return err
		}
		err := whole.load(w)
		if w.Rank() == 1 { // its world.1[1] is not in the record
			return err
		}
		return check(err, "world.1[0]", "Split at restart_test.go")
	})
}

// pending leaves a receive pending at the checkpoint and checks that it gets the
// message sent after the restart, before a later wildcard.
func TestPendingReceiveIsPostedAgain(t *testing.T) {
	s := newSaved(2)
	onSim(t, 2, func(w *mpiwrap.Comm) error {
		r := mpiwrap.NewRequest(w, make([]int, 2))
		if err := r.Irecv(1-w.Rank(), 5); err != nil {
			return err
		}
		if err := mpiwrap.Send(w, []int{7}, 1-w.Rank(), 6); err != nil {
			return err
		}
		return s.save(w, r)
	})
	onSim(t, 2, func(w *mpiwrap.Comm) error {
		buf := make([]int, 2)
		r := mpiwrap.NewRequest(w, buf)
		if err := r.UnmarshalBinary(s.request[w.Rank()]); err != nil {
			return err
		}
		if err := s.load(w); err != nil {
			return err
		}
		for _, v := range []int{1, 2} {
			if err := mpiwrap.Send(w, []int{v, v}, 1-w.Rank(), 5); err != nil {
				return err
			}
		}
		other := make([]int, 2)
		for _, want := range []int{7, 2} { // from the mailbox; then what the pending receive left
			if _, err := mpiwrap.Recv(w, other, mpiwrap.AnySource, mpiwrap.AnyTag); err != nil || other[0] != want {
				return fmt.Errorf("wildcard got %v, want %d: %v", other, want, err)
			}
		}
		if st, err := r.Wait(); err != nil || buf[0] != 1 || st.Tag != 5 {
			return fmt.Errorf("pending receive got %v %+v: %v", buf, st, err)
		}
		return r.Irecv(1-w.Rank(), 9)
	})
}

func TestPersistentRequestIsPendingAgain(t *testing.T) {
	s := newSaved(2)
	onSim(t, 2, func(w *mpiwrap.Comm) error {
		r, err := mpiwrap.RecvInit(w, make([]int, 1), 1-w.Rank(), 3)
		if err != nil {
			return err
		}
		if err := mpiwrap.Start(r); err != nil {
			return err
		}
		return s.save(w, r)
	})
	onSim(t, 2, func(w *mpiwrap.Comm) error {
		buf := make([]int, 1)
		wrong, err := mpiwrap.RecvInit(w, buf, 1-w.Rank(), 4)
		if err != nil {
			return err
		}
		if err := wrong.UnmarshalBinary(s.request[w.Rank()]); !errors.Is(err, mpiwrap.ErrMismatch) {
			return fmt.Errorf("got %v, want ErrMismatch", err)
		}
		r, err := mpiwrap.RecvInit(w, buf, 1-w.Rank(), 3)
		if err != nil {
			return err
		}
		if err := errors.Join(r.UnmarshalBinary(s.request[w.Rank()]), s.load(w)); err != nil {
			return err
		}
		if err := mpiwrap.Send(w, []int{11}, 1-w.Rank(), 3); err != nil {
			return err
		}
		if _, err := r.Wait(); err != nil || buf[0] != 11 {
			return fmt.Errorf("got %v: %v", buf, err)
		}
		return mpiwrap.Start(r)
	})
}

// TestFirstCallIsTheWait: nothing else has posted the restored receive yet.
func TestFirstCallIsTheWait(t *testing.T) {
	s := newSaved(1)
	onSim(t, 1, func(w *mpiwrap.Comm) error {
		r := mpiwrap.NewRequest(w, make([]int, 1))
		if err := r.Irecv(0, 5); err != nil {
			return err
		}
		return s.save(w, r)
	})
	for _, how := range []string{"Test", "TestAll", "WaitAny", "Cancel"} {
		onSim(t, 1, func(w *mpiwrap.Comm) error {
			r := mpiwrap.NewRequest(w, make([]int, 1))
			if err := r.UnmarshalBinary(s.request[0]); err != nil {
				return err
			}
			done, err := false, error(nil)
			switch how {
			case "Test":
				_, done, err = r.Test()
			case "TestAll":
				done, err = mpiwrap.TestAll(r)
			case "WaitAny", "Cancel":
				if err := r.Cancel(); err != nil {
					return err
				}
				var st mpiwrap.Status
				if _, st, err = mpiwrap.WaitAny(r); !st.Cancelled {
					return fmt.Errorf("%+v", st)
				}
			}
			if done || err != nil {
				return fmt.Errorf("%s of a pending receive: %v %v", how, done, err)
			}
			return nil
		})
	}
}

func TestDrainedMatchSurvivesARestart(t *testing.T) {
	s := newSaved(2)
	onSim(t, 2, func(w *mpiwrap.Comm) error {
		r := mpiwrap.NewRequest(w, make([]int, 1))
		if err := r.Irecv(1-w.Rank(), 5); err != nil {
			return err
		}
		if err := mpiwrap.Send(w, []int{1, 2}, 1-w.Rank(), 5); err != nil {
			return err
		}
		return s.save(w, r)
	})
	onSim(t, 2, func(w *mpiwrap.Comm) error {
		r := mpiwrap.NewRequest(w, make([]int, 1))
		if err := r.UnmarshalBinary(s.request[w.Rank()]); err != nil {
			return err
		}
		if _, err := r.Wait(); !errors.Is(err, mpiwrap.ErrTruncate) {
			return fmt.Errorf("got %v, want ErrTruncate", err)
		}
		return nil
	})
}

func TestUnprotectableRequest(t *testing.T) {
	if err := mpitest.Run(1, 0, func(w *mpiwrap.Comm) error {
		r, err := mpiwrap.Irecv(w, make([]int, 1), 0, 0)
		if err != nil {
			return err
		}
		if _, err := r.MarshalBinary(); !errors.Is(err, mpiwrap.ErrUnsupported) {
			return fmt.Errorf("got %v, want ErrUnsupported", err)
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
}

// TestStagedRecordsLeaveNoTrace stages a newer record and throws it away, then an
// older one: only what the older holds is there.
func TestStagedRecordsLeaveNoTrace(t *testing.T) {
	older, newer := save(t, 1), save(t, 3)
	onSim(t, 2, func(w *mpiwrap.Comm) error {
		r := w.Rank()
		req := mpiwrap.NewRequest(w, make([]int64, 1))
		if _, err := w.Endpoint().StageMailbox(newer.mailbox[r]); err != nil {
			return err
		}
		if _, err := req.StageBinary(newer.request[r]); err != nil {
			return err
		}
		if n, _ := w.Endpoint().Mailbox(); n != 0 {
			t.Errorf("staging left %d messages", n)
		}
		mail, err := w.Endpoint().StageMailbox(older.mailbox[r])
		if err != nil {
			return err
		}
		pending, err := req.StageBinary(older.request[r])
		if err != nil {
			return err
		}
		mail()
		pending()
		if n, _ := w.Endpoint().Mailbox(); r == 1 && n != 1 {
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

// loadMailbox puts a record in force.
func loadMailbox(e endpoint.Endpoint, record []byte) error {
	apply, err := e.StageMailbox(record)
	if err == nil {
		apply()
	}
	return err
}

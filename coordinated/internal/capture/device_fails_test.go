package capture_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-hpc/holdfast/coordinated"
	"github.com/holdfast-hpc/holdfast/coordinated/jobtest"
	"github.com/holdfast-hpc/holdfast/gpustate"
	"github.com/holdfast-hpc/holdfast/gpustate/gputest"
	"github.com/holdfast-hpc/holdfast/internal/job"
	"github.com/holdfast-hpc/holdfast/internal/testbuf"
	"github.com/holdfast-hpc/holdfast/mpiwrap"
	"github.com/holdfast-hpc/holdfast/mpiwrap/mpitest"
)

// TestRestoreDeviceFails: a Restore whose device is lost, or has too little memory, says that the device is why. It
// tells no supervisor that nothing can be restored, which would give up or start over. The next start restores the
// newest epoch.
func TestRestoreDeviceFails(t *testing.T) {
	for _, c := range []struct {
		name  string
		begin func()
		end   func()
		want  error
		tries int // epochs
	}{
		{"lost", gputest.Faults.Lose, gputest.Faults.Find, gpustate.ErrDeviceLost, 1},
		{"out of memory", func() { gputest.Faults.FailAlloc(-1) }, func() { gputest.Faults.FailAlloc(0) },
			gpustate.ErrOutOfMemory, 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, opt := jobtest.Supervised(t)
			for range 2 {
				if _, err := onBuffer(t, s, opt, nil, nil); err != nil {
					t.Fatal(err)
				}
			}
			var log testbuf.Buffer
			opt.Logger = slog.New(slog.NewTextHandler(&log, nil))
			rep, err := onBuffer(t, s, opt, c.begin, c.end)
			var failed *coordinated.RestoreError
			if !errors.As(err, &failed) || !failed.Device || !errors.Is(err, c.want) ||
				strings.Contains(err.Error(), "verify") || strings.Contains(err.Error(), "FRESH") {
				t.Errorf("got %v, want a *RestoreError that says it is the device", err)
			}
			if n := strings.Count(log.String(), "trying an older one"); n != c.tries-1 {
				t.Errorf("%d older epochs are tried, want %d\n%s", n, c.tries-1, log.String())
			}
			if rep.Unrestorable != "" {
				t.Errorf("the supervisor hears that nothing can be restored: %s", rep.Unrestorable)
			}
			if rep, err = onBuffer(t, s, opt, nil, nil); err != nil || rep.Restored == nil || rep.Restored.Epoch != 2 {
				t.Errorf("the next start restored %+v, want epoch 2: %v", rep.Restored, err)
			}
		})
	}
}

// onBuffer is a start that restores a device, takes a checkpoint of it, and gives its last report. begin is called
// before Restore, and end after it.
func onBuffer(t *testing.T, s *job.Supervisor, opt coordinated.Options, begin, end func()) (last job.Report,
	err error) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		w, err := s.Accept(ctx)
		if err != nil {
			t.Error(err)
			return
		}
		defer w.Close()
		for r, err := w.Next(time.Minute); err == nil; r, err = w.Next(time.Minute) {
			last = r
		}
	}()
	err = mpitest.NewWorld(1, mpitest.Options{}).Run(func(w *mpiwrap.Comm) (err error) {
		ck, err := coordinated.Open(t.Context(), w, opt)
		if err != nil {
			return err
		}
		defer ck.CloseOrAbort(&err)
		d, err := gpustate.Open(gpustate.Select{Kind: "fake"})
		if err != nil {
			return err
		}
		defer d.Close()
		if err := ck.Protect("device", d); err != nil {
			return err
		}
		if begin != nil {
			begin()
			defer end()
		}
		restored, err := ck.Restore(t.Context())
		if err != nil {
			return err
		}
		return changed(t.Context(), ck, d, restored)
	})
	<-done
	return last, err
}

// changed writes to the device's buffer, which must have what the start before has left, and takes a checkpoint.
func changed(ctx context.Context, ck *coordinated.Checkpointer, d *gpustate.Device, restored bool) error {
	q, err1 := d.Queue("q")
	b, err2 := d.Buffer("b", 1<<16)
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	got := make([]byte, b.Bytes())
	if restored {
		if err := q.Read(b, 0, got); err != nil {
			return err
		}
		if want := bytes.Repeat(got[:1], len(got)); !bytes.Equal(got, want) || got[0] == 0 {
			return errors.New("the buffer has other bytes than the start before has left")
		}
	}
	_, err := q.Fill(b, 0, b.Bytes(), []byte{got[0] + 1})
	if err = errors.Join(err, ck.Request(ctx)); err != nil {
		return err
	}
	for len(ck.Stats().Epochs) == 0 {
		if err := ck.Point(ctx); err != nil {
			return err
		}
	}
	return nil
}

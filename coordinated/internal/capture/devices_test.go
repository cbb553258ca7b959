package capture_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-hpc/holdfast/coordinated"
	"github.com/holdfast-hpc/holdfast/coordinated/events"
	"github.com/holdfast-hpc/holdfast/coordinated/jobtest"
	"github.com/holdfast-hpc/holdfast/gpustate"
	"github.com/holdfast-hpc/holdfast/gpustate/gputest"
	"github.com/holdfast-hpc/holdfast/internal/job"
	"github.com/holdfast-hpc/holdfast/mpiwrap"
	"github.com/holdfast-hpc/holdfast/mpiwrap/mpitest"
	"github.com/holdfast-hpc/holdfast/storage"
	"github.com/holdfast-hpc/holdfast/storage/checkpoints"
	"github.com/holdfast-hpc/holdfast/test/testbuf"
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

// onBuffer returns a start that restores a device, takes a checkpoint of it, and gives its last report. begin is called
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

// TestOtherOrder restarts a program that asks for unnamed GPU memory in another order
// than before: its first Point says so, before it computes with an undefined buffer.
func TestOtherOrder(t *testing.T) {
	opt := jobtest.Options(t)
	run := func(again, right bool) error {
		return onFake(opt, func(ctx context.Context, dev *gpustate.Device, ck *coordinated.Checkpointer) error {
			err := ck.Protect("dev", dev)
			if err == nil {
				_, err = ck.Restore(ctx)
			}
			var grid *gpustate.Buffer
			if err == nil {
				grid, err = dev.Buffer("", 64)
			}
			if err == nil && (!again || right) { // it grows
				small := grid
				if _, err = dev.Buffer("", 64); err == nil {
					err = small.Release()
				}
			}
			if err == nil && !again {
				err = ck.Request(ctx)
			}
			for err == nil && !again && len(ck.Stats().Epochs) == 0 {
				err = ck.Point(ctx)
			}
			for range 2 {
				if err == nil {
					err = ck.Point(ctx)
				}
			}
			if !again && err == nil {
				err = ck.Wait(ctx, "local")
			}
			if errors.Is(err, gpustate.ErrIdentity) {
				ck.Abort(err)
				return err
			}
			return errors.Join(err, ck.Close())
		})
	}
	if err := run(false, false); err != nil {
		t.Fatal(err)
	}
	if err := run(true, false); !errors.Is(err, gpustate.ErrIdentity) {
		t.Errorf("another order: got %v, want ErrIdentity", err)
	}
	if err := run(true, true); err != nil {
		t.Errorf("the same order: %v", err)
	}
}

// TestFreedThenClosed: a rank that has closed takes part in many checkpoints,
// whatever communicators were freed before.
func TestFreedThenClosed(t *testing.T) {
	opt := jobtest.Options(t)
	const epochs = 3
	err := mpitest.NewWorld(3, mpitest.Options{Seed: 1}).Run(func(w *mpiwrap.Comm) error {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		ck, _, err := jobtest.OpenStep(ctx, w, opt)
		if err != nil {
			return err
		}
		c, err := w.Dup()
		if err != nil {
			return err
		}
		pair, err := w.Split(w.Rank()/2, 0) // ranks 0 and 1, and rank 2 alone
		if err != nil {
			return err
		}
		if err := c.Free(); err != nil {
			return err
		}
		if w.Rank() == 2 {
			if err := pair.Free(); err != nil {
				return err
			}
			return ck.Close()
		}
		for n := 0; n < epochs && ctx.Err() == nil; n = len(ck.Stats().Epochs) {
			if w.Rank() == 0 && n == committed(ck) {
				if err := ck.Request(ctx); err != nil {
					return err
				}
			}
			if n == 1 && pair != nil {
				if err := pair.Free(); err != nil {
					return err
				}
				pair = nil
			}
			if err := ck.Point(ctx); err != nil {
				return err
			}
			time.Sleep(time.Millisecond)
		}
		if err := ck.Wait(ctx, "local"); err != nil {
			t.Errorf("rank %d, after %d epochs: %v", w.Rank(), len(ck.Stats().Epochs), err)
		}
		return ck.Close()
	})
	if err != nil {
		t.Fatal(err)
	}
}

// committed counts the epochs that are at the first level.
func committed(ck *coordinated.Checkpointer) int {
	n := 0
	for _, es := range ck.Stats().Epochs {
		if _, ok := es.Durable["local"]; ok {
			n++
		}
	}
	return n
}

// TestPointInForeign: a checkpoint that is due in a Point within Device.Foreign says so and fails; the program goes on,
// and the next one is taken.
func TestPointInForeign(t *testing.T) {
	opt := jobtest.Options(t)
	err := onFake(opt, func(ctx context.Context, dev *gpustate.Device, ck *coordinated.Checkpointer) error {
		if err := ck.Protect("dev", dev); err != nil {
			return err
		}
		if _, err := ck.Restore(ctx); err != nil {
			return err
		}
		if err := ck.Request(ctx); err != nil {
			return err
		}
		if err := dev.Foreign(func(*gpustate.Foreign) error {
			for len(ck.Stats().Epochs) == 0 {
				if err := ck.Point(ctx); err != nil {
					return err
				}
			}
			return nil
		}); err != nil {
			return err
		}
		if s := ck.Stats(); len(s.Epochs) != 1 || !errors.Is(s.Epochs[0].Err, gpustate.ErrInForeign) {
			t.Errorf("got %+v, want one epoch with ErrInForeign", s.Epochs)
		}
		if err := ck.Request(ctx); err != nil {
			return err
		}
		for len(ck.Stats().Epochs) < 2 {
			if err := ck.Point(ctx); err != nil {
				return err
			}
		}
		return errors.Join(ck.Wait(ctx, storage.LevelLocal), ck.Close())
	})
	if err != nil {
		t.Error(err)
	}
}

// TestMaxShadow: the option bounds the device memory that captures of a protected device take.
func TestMaxShadow(t *testing.T) {
	for limit, inDevice := range map[int64]bool{-1: false, 1 << 20: true, 1000: true} {
		opt := jobtest.Options(t)
		opt.MaxShadow = limit
		err := onFake(opt, func(ctx context.Context, dev *gpustate.Device, ck *coordinated.Checkpointer) error {
			q, err := dev.Queue("q")
			if err != nil {
				return err
			}
			x, err := dev.Buffer("x", 4096)
			if err != nil {
				return err
			}
			if err := errors.Join(q.Write(x, 0, make([]byte, 4096)), ck.Protect("dev", dev)); err != nil {
				return err
			}
			c, err := dev.Capture(ctx, nil)
			if err != nil {
				return err
			}
			// whole in device memory, in part, or not
			if first := c.Slice(0, 0, 1) == nil; first != inDevice {
				t.Errorf("limit %d: the first byte is in device memory: %v", limit, first)
			}
			if last := c.Slice(0, 4095, 1) == nil; last != (limit == 1<<20) {
				t.Errorf("limit %d: the last byte is in device memory: %v", limit, last)
			}
			return errors.Join(c.Release(), ck.Close())
		})
		if err != nil {
			t.Error(err)
		}
	}
}

// TestFromSource restores a device program whose binary form the device does not load: the
// log, the event log and the Stats of the restart name it, each once.
func TestFromSource(t *testing.T) {
	opt := jobtest.Options(t)
	var log bytes.Buffer
	opt.Logger = slog.New(slog.NewTextHandler(&log, nil))
	var told []coordinated.FromSource
	run := func(again bool) error {
		return onFake(opt, func(ctx context.Context, dev *gpustate.Device, ck *coordinated.Checkpointer) error {
			err := ck.Protect("dev", dev)
			if err == nil {
				_, err = ck.Restore(ctx)
			}
			told = ck.Stats().Restore.FromSource
			if err == nil && !again {
				_, err = dev.Program("flow", gpustate.Sources{OpenCL: "text", PTX: []byte("of another device")}, "")
			}
			if err == nil {
				err = ck.Request(ctx)
			}
			for err == nil && len(ck.Stats().Epochs) == 0 {
				err = ck.Point(ctx)
			}
			if err == nil {
				err = ck.Wait(ctx, "local")
			}
			return errors.Join(err, ck.Close())
		})
	}
	for _, again := range []bool{false, true} {
		log.Reset()
		if err := run(again); err != nil {
			t.Fatal(err)
		}
		const line = "program=flow"
		if n := strings.Count(log.String(), line); n != 1 {
			t.Errorf("restarted %v: the log has %q %d times, want once", again, line, n)
		}
	}
	if len(told) != 1 || told[0].Device != "dev" || told[0].Program != "flow" ||
		!strings.Contains(told[0].Why, "no binary") {
		t.Errorf("Stats of the restart: got %+v, want the program flow of dev, and why", told)
	}
	logs, _, err := events.ReadDir(t.Context(), opt.Global, 0)
	if err != nil || len(logs) != 2 {
		t.Fatalf("event logs: got %d, %v, want those of two runs", len(logs), err)
	}
	for _, l := range logs {
		n := 0
		for _, e := range l.Events {
			if e.Name == events.Source && e.What == "dev/flow" && strings.Contains(e.Text, "no binary") {
				n++
			}
		}
		if n != 1 {
			t.Errorf("run %d: %d events of the program, want one", l.Header.Run, n)
		}
	}
}

// TestFirstIncrement: the first checkpoint after a restart, and after another one, stores what the program has changed
// since the restored one, of its device and of its memory.
func TestFirstIncrement(t *testing.T) {
	const chunks = 20
	opt := jobtest.Options(t)
	opt.Global = ""
	run := func() error {
		return onFake(opt, func(ctx context.Context, dev *gpustate.Device, ck *coordinated.Checkpointer) error {
			q, err := dev.Queue("q")
			if err != nil {
				return err
			}
			buf, err := dev.Buffer("field", chunks*storage.ChunkBytes)
			if err != nil {
				return err
			}
			mem := make([]byte, chunks*storage.ChunkBytes)
			if err := errors.Join(ck.Protect("dev", dev), ck.Protect("mem", &mem)); err != nil {
				return err
			}
			restored, err := ck.Restore(ctx)
			if err != nil {
				return err
			}
			if !restored {
				_, _ = rand.NewChaCha8([32]byte{1}).Read(mem)
				if err := q.Write(buf, 0, mem); err != nil {
					return err
				}
			}
			at := int(ck.Stats().Restore.Epoch) % chunks * storage.ChunkBytes
			mem[at]++
			err = errors.Join(q.Write(buf, at, mem[at:at+1]), ck.Request(ctx))
			for err == nil && len(ck.Stats().Epochs) == 0 {
				err = ck.Point(ctx)
			}
			if err == nil {
				err = ck.Wait(ctx, storage.LevelLocal)
			}
			return errors.Join(err, ck.Close())
		})
	}
	for range 3 {
		if err := run(); err != nil {
			t.Fatal(err)
		}
	}
	dir, err := checkpoints.Open(t.Context(), opt.Local)
	if err != nil {
		t.Fatal(err)
	}
	list, err := dir.Epochs(t.Context())
	if err != nil || len(list) != 3 {
		t.Fatalf("got %d epochs, %v, want three", len(list), err)
	}
	for _, e := range list {
		most := int64(2*storage.ChunkBytes + 16<<10)
		if e.Epoch == 1 {
			most = 3 * chunks * storage.ChunkBytes
		}
		if got := e.Shards[0].Stored; got > most {
			t.Errorf("epoch %d: %d bytes were written, want %d at most", e.Epoch, got, most)
		}
	}
}

// onFake runs body on one rank with a fake device of its own, which body may protect, and
// a Checkpointer, which body closes.
func onFake(opt coordinated.Options, body func(ctx context.Context, dev *gpustate.Device,
	ck *coordinated.Checkpointer) error) error {
	return mpitest.NewWorld(1, mpitest.Options{Seed: 1}).Run(func(w *mpiwrap.Comm) error {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		dev, err := gpustate.Open(gpustate.Select{Kind: "fake"})
		if err != nil {
			return err
		}
		defer dev.Close()
		ck, err := coordinated.Open(ctx, w, opt)
		if err != nil {
			return err
		}
		return body(ctx, dev, ck)
	})
}

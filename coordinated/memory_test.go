package coordinated

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-hpc/holdfast/mpiwrap"
	"github.com/holdfast-hpc/holdfast/mpiwrap/mpitest"
	"golang.org/x/sys/unix"
)

// TestPoolWithoutMemory: where the system has no memory for the pages, none of them is
// written to; a kernel that cannot populate them has them touched.
func TestPoolWithoutMemory(t *testing.T) {
	defer func(f func([]byte) error) { populate = f }(populate)
	for _, test := range []struct {
		answer error
		room   bool
	}{{unix.ENOMEM, false}, {unix.EHWPOISON, false}, {unix.EFAULT, false}, {unix.EINVAL, true}} {
		populate = func([]byte) error { return test.answer }
		p := newPool(0, newPins(nil, nil))
		if got := p.alloc(3*pageBytes) != nil; got != test.room {
			t.Errorf("%v: got memory: %t, want %t", test.answer, got, test.room)
		}
		if want := map[bool]int64{true: 1 << 20}[test.room]; p.mapped != want {
			t.Errorf("%v: %d bytes are mapped, want %d", test.answer, p.mapped, want)
		}
	}
}

// TestMailboxBudget: a cut with more in flight than may be kept fails on all ranks, with
// the reason, and the program gets its messages.
func TestMailboxBudget(t *testing.T) {
	opt := testOptions(t)
	opt.MaxMailbox = 10_000
	err := mpitest.Run(2, 1, func(w *mpiwrap.Comm) error {
		ctx := context.Background()
		ck, _, err := openStep(ctx, w, opt)
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

// TestGroupMemory: the tightest control group counts.
func TestGroupMemory(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		if err := errors.Join(os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755),
			os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	write("self", "0::/job/step\n")
	self := filepath.Join(dir, "self")
	if _, known := groupMemory(self, dir); known {
		t.Error("known without any limit")
	}
	write("job/memory.max", "1000\n")
	write("job/memory.current", "300\n")
	write("job/step/memory.max", "max\n")
	write("job/step/memory.current", "100\n")
	if left, known := groupMemory(self, dir); !known || left != 700 {
		t.Errorf("got %d %t, want 700", left, known)
	}
}

package capture_test

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/holdfast-hpc/holdfast/coordinated"
	"github.com/holdfast-hpc/holdfast/coordinated/jobtest"
	"github.com/holdfast-hpc/holdfast/mpiwrap"
	"github.com/holdfast-hpc/holdfast/mpiwrap/mpitest"
)

// short is a State that may read less than it wrote.
type short struct{ read int }

func (s *short) SaveTo(w io.Writer) error { _, err := w.Write(make([]byte, 16)); return err }
func (s *short) LoadFrom(r io.Reader) error {
	_, err := io.ReadFull(r, make([]byte, s.read))
	return err
}

// ledger is a marshaler by pointer.
type ledger struct{ n uint64 }

func (l *ledger) MarshalBinary() ([]byte, error) {
	return binary.LittleEndian.AppendUint64(nil, l.n), nil
}
func (l *ledger) UnmarshalBinary(b []byte) error { l.n = binary.LittleEndian.Uint64(b); return nil }

// TestRefusedAtProtect: what could be saved and not restored is refused, by its type.
func TestRefusedAtProtect(t *testing.T) {
	opt := jobtest.Options(t)
	err := mpitest.Run(1, 1, func(w *mpiwrap.Comm) error {
		ck, err := coordinated.Open(context.Background(), w, opt)
		if err != nil {
			return err
		}
		for want, x := range map[string]any{
			"*[]struct {}":         &[]struct{}{{}},
			"*[][0]int":            &[][0]int{},
			"*capture_test.ledger": (*ledger)(nil),
			"*capture_test.short":  (*short)(nil),
			"*int":                 (*int)(nil),
			"*[]float64":           (*[]float64)(nil),
		} {
			var refused *coordinated.ProtectError
			if err := ck.Protect("x", x); !errors.As(err, &refused) || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: got %v, want a *ProtectError that names the type", want, err)
			}
		}
		if err := ck.Protect("nothing", &struct{}{}); err != nil {
			t.Errorf("a value without bytes: %v", err)
		}
		return ck.Close()
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestLoadFromReadsAll: a State that reads less than was saved fails the restore, by name.
func TestLoadFromReadsAll(t *testing.T) {
	opt := jobtest.Options(t)
	for _, read := range []int{16, 16, 15} {
		err := mpitest.Run(2, 1, func(w *mpiwrap.Comm) error {
			ctx := context.Background()
			ck, err := coordinated.Open(ctx, w, opt)
			if err != nil {
				return err
			}
			var nothing struct{}
			if err := errors.Join(ck.Protect("state", &short{read}), ck.Protect("nothing", &nothing)); err != nil {
				return err
			}
			_, err = ck.Restore(ctx)
			if read == 15 {
				if err == nil || !strings.Contains(err.Error(), `"state"`) ||
					!strings.Contains(err.Error(), "15 of the 16 bytes") {
					t.Errorf("got %v, want it to name the state and what it read", err)
				}
				return ck.Close()
			}
			if err == nil && w.Rank() == 0 {
				err = ck.Request(ctx)
			}
			for err == nil && len(ck.Stats().Epochs) == 0 {
				err = ck.Point(ctx)
			}
			return errors.Join(err, ck.Close())
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// failing cannot be captured.
type failing struct{ ledger }

func (f *failing) MarshalBinary() ([]byte, error) { return nil, errors.New("no state now") }

// TestCaptureErrorNamesNoLevel: an epoch that could not be captured was written nowhere,
// and no level is blamed.
func TestCaptureErrorNamesNoLevel(t *testing.T) {
	opt := jobtest.Options(t)
	err := mpitest.Run(2, 1, func(w *mpiwrap.Comm) error {
		ctx := context.Background()
		ck, err := coordinated.Open(ctx, w, opt)
		if err != nil {
			return err
		}
		if w.Rank() == 1 {
			err = ck.Protect("bad", &failing{})
		}
		if err == nil {
			_, err = ck.Restore(ctx)
		}
		if err == nil && w.Rank() == 0 {
			err = ck.Request(ctx)
		}
		for err == nil && len(ck.Stats().Epochs) == 0 {
			err = ck.Point(ctx)
		}
		if err != nil {
			return err
		}
		err = ck.Wait(ctx, "local")
		if err == nil || strings.Contains(err.Error(), "level") ||
			!strings.Contains(err.Error(), `take epoch 1: rank 1: capture "bad": no state now`) {
			t.Errorf("got %v", err)
		}
		return ck.Close()
	})
	if err != nil {
		t.Fatal(err)
	}
}

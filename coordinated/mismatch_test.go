package coordinated

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/holdfast-hpc/holdfast/coordinated/internal/connect/connecttest"
	"github.com/holdfast-hpc/holdfast/coordinated/internal/vote"
	"github.com/holdfast-hpc/holdfast/mpiwrap"
	"github.com/holdfast-hpc/holdfast/mpiwrap/mpitest"
	"github.com/holdfast-hpc/holdfast/storage"
)

// TestOtherProgram: a program that protects something else than the checkpoints hold is
// told so, loses nothing, and is not held against the epoch.
func TestOtherProgram(t *testing.T) {
	b := newBulk(t, storage.LevelLocal)
	b.epochs = 2
	if err := b.run(); err != nil {
		t.Fatal(err)
	}
	opt := b.opt
	opt.Logger = slog.New(slog.DiscardHandler)
	for range vote.LastDeaths + 1 {
		opt.plane = connecttest.NewNet(3).Plane
		err := mpitest.NewWorld(3, mpitest.Options{Seed: 1}).Run(func(w *mpiwrap.Comm) error {
			ck, err := Open(context.Background(), w, opt)
			if err != nil {
				return err
			}
			step, data := int32(-1), []float64{7}
			if err := errors.Join(ck.Protect("step", &step), ck.Protect("data", &data)); err != nil {
				return err
			}
			_, err = ck.Restore(context.Background())
			var failed *RestoreError
			var other *MismatchError
			if !errors.As(err, &failed) || !failed.Mismatch || !errors.As(err, &other) || other.Name != "step" ||
				!strings.Contains(err.Error(), "start the program that wrote them") ||
				strings.Contains(err.Error(), "verify") || strings.Contains(err.Error(), "FRESH") {
				t.Errorf("got %v, want a *RestoreError that says the program is another", err)
			}
			if step != -1 || len(data) != 1 || data[0] != 7 {
				t.Errorf("the program has %d and %v", step, data)
			}
			return ck.Close()
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	b.epochs = 0
	if err := b.run(); err != nil || b.stats[0].Restore.Epoch != 2 {
		t.Errorf("the right program restored %d, %v", b.stats[0].Restore.Epoch, err)
	}
}

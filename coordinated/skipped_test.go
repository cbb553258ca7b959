package coordinated

import (
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/holdfast-hpc/holdfast/coordinated/internal/vote"
	"github.com/holdfast-hpc/holdfast/internal/testbuf"
	"github.com/holdfast-hpc/holdfast/storage"
)

// TestSkippedEpoch lets the program die twice right after each restore. The log,
// and in the end the error, must say so and how to have the epoch all the same.
func TestSkippedEpoch(t *testing.T) {
	b := newBulk(t, storage.LevelLocal, storage.LevelGlobal)
	b.epochs = 2
	if err := b.run(); err != nil {
		t.Fatal(err)
	}
	died := errors.New("died of what it restored")
	dieOf := func(e storage.Epoch) {
		t.Helper()
		b.die, b.epochs, b.opt.OnLost = died, 0, func(*LostError) {}
		for range vote.MaxDeaths {
			if err := b.run(); !errors.Is(err, died) {
				t.Fatalf("got %v, want it to restore epoch %d and die", err, e)
			}
		}
		b.die = nil
	}
	dieOf(2)
	var log testbuf.Buffer
	b.opt.Logger = slog.New(slog.NewTextHandler(&log, nil))
	dieOf(1)
	for _, want := range []string{"epoch(s) [2] skipped", "at least 2 crashes within a minute of restoring",
		"HOLDFAST_EPOCH=2"} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("the log does not say %q:\n%s", want, &log)
		}
	}
	var last testbuf.Buffer
	b.opt.Logger = slog.New(slog.NewTextHandler(&last, nil))
	b.die, b.epochs, b.opt.OnLost = died, 0, func(*LostError) {}
	for range 2 * (vote.LastDeaths - vote.MaxDeaths) { // both, as there is no other
		if err := b.run(); !errors.Is(err, died) {
			t.Fatalf("got %v, want it to try once more", err)
		}
	}
	if !strings.Contains(last.String(), "trying once more") {
		t.Errorf("the log does not say that it tries once more:\n%s", &last)
	}
	b.die = nil
	var bad *SkippedEpochsError
	err := b.run()
	if !errors.As(err, &bad) || len(bad.Epochs) != 2 || !strings.Contains(err.Error(), "HOLDFAST_FRESH=1") {
		t.Errorf("all epochs are skipped: got %v, want a *SkippedEpochsError that names both", err)
	}
	b.opt.Epoch = 2
	if err := b.run(); err != nil || b.stats[0].Restore.Epoch != 2 {
		t.Errorf("forced: restored %+v, %v", b.stats[0].Restore, err)
	}
	b.opt.Epoch = 0 // that run ended by itself
	if err := b.run(); err != nil || b.stats[0].Restore.Epoch != 2 {
		t.Errorf("after a run that lived: restored %+v, %v", b.stats[0].Restore, err)
	}
}

package jobtest

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/holdfast-hpc/holdfast/coordinated"
	"github.com/holdfast-hpc/holdfast/internal/job"
	"github.com/holdfast-hpc/holdfast/mpiwrap"
)

// Options are options for simulated ranks in one process: no signals, and a
// lost rank is an error of the test, however slow the machine is.
func Options(t *testing.T) coordinated.Options {
	t.Helper()
	base := t.TempDir()
	o := coordinated.Options{Job: "test", Local: filepath.Join(base, "local"), Global: filepath.Join(base, "global"),
		CheckpointSignals: []os.Signal{}, StopSignals: []os.Signal{}, Keep: 100, Fanout: 2, PeerTimeout: time.Minute,
		Logger: slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn})),
		OnLost: func(e *coordinated.LostError) { t.Errorf("%v", e) }}
	for _, d := range []string{o.Local, o.Global} {
		if err := os.Mkdir(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return o
}

// OpenStep opens a Checkpointer that protects a step and restores it.
func OpenStep(ctx context.Context, world *mpiwrap.Comm, opt coordinated.Options) (*coordinated.Checkpointer, *int,
	error) {
	ck, err := coordinated.Open(ctx, world, opt)
	if err != nil {
		return nil, nil, err
	}
	step := new(int)
	if err = ck.Protect("step", step); err == nil {
		_, err = ck.Restore(ctx)
	}
	return ck, step, err
}

// UntilTaken comes to Points until a checkpoint is taken: one that is asked for is not, once all ranks are in Close.
func UntilTaken(ctx context.Context, ck *coordinated.Checkpointer) error {
	for len(ck.Stats().Epochs) == 0 {
		if err := ck.Point(ctx); err != nil {
			return err
		}
	}
	return nil
}

// Supervised returns a supervisor and the options of a job that it has started.
func Supervised(t *testing.T) (*job.Supervisor, coordinated.Options) {
	t.Helper()
	s, err := job.Supervise("127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() }) // it serves no more
	opt := Options(t)
	opt.Supervisor = s.Var(false, false)[len(coordinated.SupervisorVar)+1:]
	return s, opt
}

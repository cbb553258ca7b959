package mpiwrap

import (
	"errors"
	"log/slog"
	"time"

	"github.com/holdfast-hpc/holdfast/mpiwrap/internal/call"
	"github.com/holdfast-hpc/holdfast/mpiwrap/internal/driver"
)

// Finalize ends MPI, on the OS thread that Init began it on, whichever goroutine
// calls. It is collective over all ranks; every request must be complete. Windows that the
// program has not freed are freed. Without Init, or a second time, it does nothing.
//
// It waits without limit for all ranks to call it, and then until MPI has ended, but
// at most Options.FinalizeTimeout. After that time it logs a warning through slog's
// default logger and returns nil, so that the program can end with its own exit
// code. Launchers react differently: mpirun and mpiexec may kill the other ranks
// when the first has left, and mpiexec may return 0 whatever the ranks return. So
// write results before Finalize.
func Finalize() error {
	process.mu.Lock()
	defer process.mu.Unlock()
	w := process.world
	if w == nil || w.st.Finalized.Load() {
		return nil
	}
	return w.finalize(process.limit)
}

const defaultFinalizeTimeout = 30 * time.Second

// finalize is Finalize for the world, once.
func (c *Comm) finalize(limit time.Duration) error {
	s := c.st
	s.Device.Flush()
	// A rank that waits for one still computing is no hang; after the barrier there
	// is none.
	if err := s.private.Barrier(); err != nil {
		return c.ch.Wrap("Finalize", NoPeer, NoTag, err)
	}
	s.Device.DropCTS()
	if _, err := c.ch.Quick(call.Finalize, NoPeer, NoTag); err != nil {
		return err
	}
	// The call is never left: later ones are refused as those at the same time are.
	s.Finalized.Store(true)
	if limit <= 0 {
		limit = defaultFinalizeTimeout
	}
	done := make(chan error, 1)
	s.onThread(func() { done <- errors.Join(s.freeWindows(), s.Driver.Finalize()) })
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case err := <-done:
		if err != nil {
			return c.ch.Wrap("Finalize", NoPeer, NoTag, err)
		}
	case <-timer.C:
		slog.Warn("holdfast: MPI_Finalize hangs although all ranks have called it; Finalize returns without it",
			"rank", c.rank, "waited", limit, "library", s.Info.Name)
	}
	return nil
}

// freeWindows frees what the program has left: MPICH aborts otherwise. All ranks of a
// window have it, and windows in the same order. Epochs that are open are closed.
func (s *state) freeWindows() error {
	var errs []error
	for _, w := range s.windows {
		for target := range w.locks {
			errs = append(errs, s.Driver.WinSync(w.h, driver.WinSync{Kind: driver.Unlock, Rank: target}))
		}
		if w.all {
			errs = append(errs, s.Driver.WinSync(w.h, driver.WinSync{Kind: driver.UnlockAll}))
		}
		errs = append(errs, s.Driver.WinFree(w.h))
		w.freed = true
		w.unpinAll()
	}
	s.windows = nil
	return errors.Join(errs...)
}

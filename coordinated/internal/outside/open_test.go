package outside_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-hpc/holdfast/coordinated"
	"github.com/holdfast-hpc/holdfast/coordinated/jobtest"
	"github.com/holdfast-hpc/holdfast/internal/job"
	"github.com/holdfast-hpc/holdfast/mpiwrap"
	"github.com/holdfast-hpc/holdfast/mpiwrap/mpitest"
)

// TestFailedOpenIsTold: the supervisor hears why Open failed.
func TestFailedOpenIsTold(t *testing.T) {
	s, opt := jobtest.Supervised(t)
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	opt.Global = file // no directory
	got := make(chan job.Report, 1)
	go func() {
		var r job.Report
		if w, err := s.Accept(t.Context()); err == nil {
			r, _ = w.Next(time.Minute)
			_ = w.Close()
		}
		got <- r
	}()
	err := mpitest.NewWorld(2, mpitest.Options{}).Run(func(world *mpiwrap.Comm) error {
		ck, err := coordinated.Open(t.Context(), world, opt)
		if err == nil {
			return errors.Join(errors.New("it opened"), ck.Close())
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if r := <-got; !strings.Contains(r.Failed, "not a directory") || len(r.Nodes) != 2 || r.FailedNodes != nil {
		t.Errorf("got %+v", r)
	}
}

// TestHeardBeforeOpenReturns: what a program reports that ends right after Open or a Restore
// that fails is heard, because somebody listens by then.
func TestHeardBeforeOpenReturns(t *testing.T) {
	s, opt := jobtest.Supervised(t)
	var heard atomic.Bool
	go func() {
		time.Sleep(200 * time.Millisecond) // a supervisor that is slow to listen
		w, err := s.Accept(t.Context())
		if err != nil {
			return
		}
		defer w.Close()
		for heard.Store(true); err == nil; _, err = w.Next(time.Minute) {
		}
	}()
	err := mpitest.NewWorld(2, mpitest.Options{}).Run(func(world *mpiwrap.Comm) error {
		ck, err := coordinated.Open(t.Context(), world, opt)
		if err != nil {
			return err
		}
		if world.Rank() == 0 && !heard.Load() {
			err = errors.New("Open returned before the supervisor listened")
		}
		return errors.Join(err, ck.Close())
	})
	if err != nil {
		t.Error(err)
	}
}

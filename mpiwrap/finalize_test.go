package mpiwrap

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-hpc/holdfast/mpiwrap/internal/driver"
	"github.com/holdfast-hpc/holdfast/mpiwrap/internal/sim"
)

// stuck is a driver whose Finalize returns only when told to, with an error.
type stuck struct {
	driver.Driver
	until chan struct{}
}

func (s stuck) Finalize() error {
	<-s.until
	return &driver.Error{Class: driver.ClassOther, Text: "ended"}
}

// TestFinalize: nobody hurries a rank that still computes; when all have come, a
// library that hangs is left behind, without an error and not without a word, and
// what it reports in time is returned.
func TestFinalize(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		before := slog.Default()
		defer slog.SetDefault(before)
		slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))
		const late = time.Hour
		w := sim.New(3, sim.Options{})
		hangs := stuck{w.Rank(0), make(chan struct{})}
		defer close(hangs.until)
		fails := stuck{w.Rank(1), make(chan struct{})}
		close(fails.until)
		errs, took := make([]error, 3), make([]time.Duration, 3)
		var ranks sync.WaitGroup
		start := time.Now()
		for i, d := range []driver.Driver{hangs, fails, w.Rank(2)} {
			ranks.Go(func() {
				c, err := newWorld(d)
				if err != nil {
					t.Error(err)
					return
				}
				if i == 2 {
					time.Sleep(late)
				}
				errs[i] = c.finalize(0)
				took[i] = time.Since(start)
				if err := c.Barrier(); !errors.Is(err, ErrFinalized) {
					t.Errorf("rank %d: a call after Finalize: got %v", i, err)
				}
			})
		}
		ranks.Wait()
		if errs[0] != nil || took[0] != late+defaultFinalizeTimeout {
			t.Errorf("a library that hangs: got %v after %v, want no error after %v", errs[0], took[0],
				late+defaultFinalizeTimeout)
		}
		if errs[1] == nil || took[1] != late || errs[2] != nil || took[2] != late {
			t.Errorf("got %v after %v and %v after %v, want an error and none after %v", errs[1], took[1], errs[2],
				took[2], late)
		}
		if n := strings.Count(log.String(), "MPI_Finalize hangs"); n != 1 || !strings.Contains(log.String(), "rank=0") {
			t.Errorf("want one line, of rank 0:\n%s", log.String())
		}
	})
}

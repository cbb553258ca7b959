package outside_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-hpc/holdfast/coordinated"
	"github.com/holdfast-hpc/holdfast/coordinated/internal/connect"
	"github.com/holdfast-hpc/holdfast/coordinated/jobtest"
	"github.com/holdfast-hpc/holdfast/internal/job"
	"github.com/holdfast-hpc/holdfast/mpiwrap"
	"github.com/holdfast-hpc/holdfast/mpiwrap/mpitest"
)

// TestSecondStart: a start waits for ranks that the same supervisor has started and ended before. A run that another
// supervisor has started is refused, and no node is to blame.
func TestSecondStart(t *testing.T) {
	for name, tc := range map[string]struct{ own bool }{"of the same run": {true}, "of another run": {false}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, opt := jobtest.Supervised(t)
			refused := make(chan job.Report, 1)
			go func() {
				for {
					w, err := s.Accept(t.Context())
					if err != nil {
						return
					}
					go func() {
						defer w.Close()
						for r, err := w.Next(time.Minute); err == nil; r, err = w.Next(time.Minute) {
							if r.Failed != "" {
								refused <- r
							}
						}
					}()
				}
			}()
			first := opt
			if !tc.own {
				_, other := jobtest.Supervised(t)
				first.Supervisor = other.Supervisor
			}
			opened, end := make(chan error, 2), make(chan struct{})
			ended := make(chan error, 1)
			go func() { ended <- start(t.Context(), 2, first, opened, end) }()
			if err := <-opened; err != nil {
				t.Fatal(err)
			}
			again := make(chan error, 2)
			if tc.own {
				time.AfterFunc(6*time.Second, func() { close(end) }) // another run is not waited for as long
			} else {
				defer func() { close(end); <-ended }()
			}
			err := start(t.Context(), 2, opt, again, nil)
			if tc.own {
				if err != nil || <-ended != nil {
					t.Errorf("got %v", err)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), "another run of this job uses") {
				t.Errorf("got %v", err)
			}
			if r := <-refused; len(r.Nodes) != 2 || r.FailedNodes != nil {
				t.Errorf("got %+v", r)
			}
		})
	}
}

// start opens a run of ranks on a node each, and closes it at an end, if there is one to wait for.
func start(ctx context.Context, ranks int, opt coordinated.Options, opened chan<- error, end <-chan struct{}) error {
	return mpitest.NewWorld(ranks, mpitest.Options{}).Run(func(world *mpiwrap.Comm) error {
		seam := connect.Seam{Host: fmt.Sprint("n", world.Rank())}
		ck, err := coordinated.Open(connect.WithSeam(ctx, seam), world, opt)
		opened <- err
		if err != nil {
			return err
		}
		if end != nil {
			<-end
		}
		return ck.Close()
	})
}

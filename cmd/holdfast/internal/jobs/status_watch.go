package jobs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"time"

	"github.com/holdfast-hpc/holdfast/internal/job"
	"github.com/holdfast-hpc/holdfast/internal/sleep"
)

// errNoMore reports that the job that was watched does not answer any more.
var errNoMore = errors.New("the job no longer answers and did not close its checkpointer: it was killed, or its node " +
	"cannot be reached")

// follow looks again and again, at one run of the job after the other, until one ends in
// order.
func (o *statusOptions) follow(ctx context.Context, w, notes io.Writer, dir string) error {
	if _, err := os.Stat(dir); err != nil {
		return err
	}
	c, err := awaitJob(ctx, notes, dir, func() (*job.Client, error) { return o.dial(ctx, dir) }, o.pauseTime())
	for err == nil && c != nil {
		var lost error
		if lost, err = o.look(ctx, w, c); lost == nil || ctx.Err() != nil {
			break
		}
		fmt.Fprintf(notes, "holdfast: %v\n", lost)
		if c, err = o.next(ctx, dir); c == nil && err == nil {
			fmt.Fprintln(notes, "holdfast: the job has ended")
		}
	}
	if ctx.Err() != nil {
		return nil // the user has seen enough
	}
	return err
}

// awaitJob dials until a job answers or ctx ends, with a pause between, and says once that it waits. The error is that
// of the last try.
func awaitJob(ctx context.Context, notes io.Writer, dir string, dial func() (*job.Client, error),
	pause time.Duration) (*job.Client, error) {
	for said := false; ; said = true {
		c, err := dial()
		if err == nil || ctx.Err() != nil {
			return c, err
		}
		if !said {
			fmt.Fprintf(notes, "holdfast: waiting for a job in %s\n", dir)
		}
		_ = sleep.For(ctx, pause) // the loop looks at ctx
	}
}

// next waits until the job that no longer answers has taken back its contact file, as an ordered end does (nil without
// an error), or for the next run.
func (o *statusOptions) next(ctx context.Context, dir string) (*job.Client, error) {
	for end := time.Now().Add(o.timeout); ; _ = sleep.For(ctx, o.pauseTime()) {
		c, err := o.dial(ctx, dir)
		switch {
		case err == nil:
			return c, nil
		case errors.Is(err, fs.ErrNotExist):
			return nil, nil
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case time.Now().After(end):
			return nil, fmt.Errorf("%w (no other run within --timeout %v)", errNoMore, o.timeout)
		}
	}
}

func (o *statusOptions) dial(ctx context.Context, dir string) (*job.Client, error) {
	ctx, cancel := context.WithTimeout(ctx, o.timeout)
	defer cancel()
	return job.DialJob(ctx, dir)
}

// pauseTime is between two tries to reach a job.
func (o *statusOptions) pauseTime() time.Duration { return min(o.every, time.Second) }

// look prints how the job stands until it no longer answers, and returns why it does not;
// or until it cannot print, or ctx ends.
func (o *statusOptions) look(ctx context.Context, w io.Writer, c *job.Client) (lost, err error) {
	defer c.Close()
	var before *job.Status
	var at time.Time
	tick := time.NewTicker(max(o.every, 100*time.Millisecond))
	defer tick.Stop()
	for {
		ask, cancel := context.WithTimeout(ctx, o.timeout)
		st, err := c.Status(ask)
		cancel()
		if err != nil {
			return err, nil
		}
		now := time.Now()
		if err := o.print(ctx, w, st, before, now.Sub(at)); err != nil {
			return nil, err
		}
		before, at = st, now
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil, nil
		}
	}
}

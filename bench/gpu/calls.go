package gpu

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-hpc/holdfast/bench"
	"github.com/holdfast-hpc/holdfast/bench/raw"
	"github.com/holdfast-hpc/holdfast/gpustate"
)

// Size of the index space of the kernel.
const items = 1 << 16

// recording measures the cost that gpustate adds to the calls of the driver: to setting an argument, to launching a
// short kernel, and to a program that is bound by its kernels.
func (s *suite) recording(ctx context.Context) (err error) {
	d, err := gpustate.Open(s.Select)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	k, err := raw.Busy(d, items, 0)
	if err != nil {
		return err
	}
	// without a window, which has figures of its own
	q, err := d.QueueWith("q", gpustate.QueueOptions{Window: -1})
	if err != nil {
		return err
	}
	dev, err := raw.Open(s.Select)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, dev.Close()) }()
	b, err := dev.Busy(items, 0)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.Release()) }()

	const calls = 2000
	err = s.added(ctx, "SetArg", calls, 50,
		bench.Timed(func() error { return many(calls, func() error { return k.SetArg(1, int32(0)) }) }),
		bench.Timed(func() error { return many(calls, func() error { return b.SetRounds(0) }) }))
	if err != nil {
		return err
	}

	// Only the calls are timed, far fewer than a driver lets wait, and the device is idle before them:
	// otherwise they take as long as it does.
	const launches = 50
	bare := untimed(b.Finish, func() error { return many(launches, func() error { return b.Launch(64) }) })
	recorded := untimed(q.Finish, func() error { return launch(q, k, launches, 64) })
	if err := s.added(ctx, "Launch", launches, 80, recorded, bare); err != nil {
		return err
	}
	if q, err = d.Queue("windowed"); err != nil {
		return err
	}
	return s.kernelBound(ctx, k, q, b)
}

// kernelBound compares a program whose kernels take about a millisecond.
func (s *suite) kernelBound(ctx context.Context, k *gpustate.Kernel, q *gpustate.Queue, b *raw.Kernel) error {
	bare := func(n int) error {
		return errors.Join(many(n, func() error { return b.Launch(items) }), b.Finish())
	}
	for s.rounds = 256; s.rounds < 1<<24; s.rounds *= 2 {
		begin := time.Now()
		if err := errors.Join(b.SetRounds(s.rounds), bare(1)); err != nil {
			return err
		}
		if time.Since(begin) > time.Millisecond {
			break
		}
	}
	if err := errors.Join(k.SetArg(1, int32(s.rounds)), b.SetRounds(s.rounds)); err != nil {
		return err
	}
	const launches = 50
	took, err := bench.InTurn(ctx, 2*s.Runs,
		bench.Timed(func() error { return errors.Join(launch(q, k, launches, items), q.Finish()) }),
		bench.Timed(func() error { return bare(launches) }))
	if err != nil {
		return err
	}
	s.Add(row("kernel-bound program", "time with recording", "s").Of(took[0], took[1], bench.AtMost(1.01)))
	return nil
}

// untimed is bench.Timed with a call afterwards that is not timed.
func untimed(after, do func() error) func() (float64, error) {
	return func() (float64, error) {
		seconds, err := bench.Seconds(do)
		return seconds, errors.Join(err, after())
	}
}

// added reports the nanoseconds of each of the calls beyond those of the driver. The last row is the same
// measurement of no difference at all.
func (s *suite) added(ctx context.Context, call string, calls int, goal bench.AtMost,
	ours, theirs func() (float64, error)) error {
	const stretches, turns = 12, 40
	d, err := bench.Compare(ctx, stretches, turns*s.Runs, ours, theirs)
	if err != nil {
		return err
	}
	d = d.Times(1e9 / float64(calls))
	s.Add(row("recording", call+" without recording", "ns").Of(d.Theirs, nil, nil),
		row("recording", "added to "+call, "ns").Of(d.More, nil, goal),
		row("recording", "added to "+call+" by nothing", "ns").Of(d.None, nil, nil))
	return nil
}

// launch starts a kernel n times.
func launch(q *gpustate.Queue, k *gpustate.Kernel, times, items int) error {
	return many(times, func() error {
		_, err := q.Launch(k, []int{items}, []int{64})
		return err
	})
}

func many(n int, do func() error) error {
	for range n {
		if err := do(); err != nil {
			return err
		}
	}
	return nil
}

// windows measures the cost of bounding the number of unfinished commands, for a program of long
// kernels and for one of many short ones.
func (s *suite) windows(ctx context.Context) (err error) {
	d, err := gpustate.Open(s.Select)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	for _, c := range []struct {
		name                string
		rounds, items, many int
	}{{"short kernels", 0, 64, 4000}, {"long kernels", s.rounds, items, 50}} {
		k, err := raw.Busy(d, items, c.rounds)
		if err != nil {
			return err
		}
		var none bench.Samples
		for _, window := range []int{-1, 50, 20, 10, 5, 2} {
			q, err := d.QueueWith(fmt.Sprintf("%s %d", c.name, window), gpustate.QueueOptions{Window: window})
			if err != nil {
				return err
			}
			took, err := bench.InTurn(ctx, s.Runs, bench.Timed(func() error {
				return errors.Join(launch(q, k, c.many, c.items), q.Finish())
			}))
			if err != nil {
				return err
			}
			if window < 0 {
				none = took[0]
				s.Add(row(c.name, "no window", "s").Of(none, none, nil))
				continue
			}
			s.Add(row(c.name, fmt.Sprintf("window %d", window), "s").Of(took[0], none, nil))
		}
	}
	return nil
}

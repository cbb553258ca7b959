// Package trigger decides when a checkpoint is wanted, and names the reason: a signal, an interval, the deadline of the
// job, a final checkpoint that failed. It takes no checkpoint: the owner of a Triggers receives its wishes and asks the
// other ranks.
package trigger

import (
	"context"
	"log/slog"
	"os"
	"os/signal"
	"slices"
	"time"

	"github.com/holdfast-hpc/holdfast/internal/job"
	"github.com/holdfast-hpc/holdfast/slurm"
)

// Wish is a checkpoint that is wanted.
type Wish struct {
	Stop bool   // a final one
	By   string // whose it is
}

// Options are the sources of requests.
type Options struct {
	// Checkpoint are signals that ask for one, Stop those that ask for a final one.
	Checkpoint, Stop []os.Signal
	// Foreign are the signals of a program in another process; nil: those of this one.
	Foreign <-chan os.Signal

	// The fields below are for rank 0. Interval and MTBF are as in Options of coordinated. LeastCost is the least cost
	// of a checkpoint, for MTBF. Points counts the program's Points, if none is to be asked for before the first. Final
	// is the time of the final checkpoint; zero: unknown.
	Clock                     bool
	Interval, MTBF, LeastCost time.Duration
	Points                    func() uint64
	Final                     time.Time

	Log *slog.Logger
}

// Triggers are those of one rank. All but Signals and Timer, whose channels stay the same
// after Catch, belongs to one goroutine.
type Triggers struct {
	opt     Options
	clock   *clock // nil if nothing is asked for by the clock
	timer   *time.Timer
	caught  chan os.Signal
	signals <-chan os.Signal // caught, or those of a program in another process
}

// New makes the triggers of a rank. The clock runs from now on.
func New(opt Options) *Triggers {
	t := &Triggers{opt: opt, timer: time.NewTimer(time.Hour), caught: make(chan os.Signal, 8)}
	t.signals = t.caught
	t.timer.Stop()
	if opt.Clock {
		t.clock = (&clock{interval: opt.Interval, mtbf: opt.MTBF, least: opt.LeastCost, points: opt.Points,
			final: opt.Final}).start(time.Now())
		t.arm()
	}
	return t
}

// Catch catches the signals from now on, until Release.
func (t *Triggers) Catch() {
	all := append(slices.Clone(t.opt.Checkpoint), t.opt.Stop...)
	switch {
	case t.opt.Foreign != nil:
		t.signals = t.opt.Foreign
	case len(all) > 0:
		signal.Notify(t.caught, all...)
	}
}

// Release leaves the signals to the program.
func (t *Triggers) Release() { signal.Stop(t.caught) }

// Signals delivers those that were caught, for Signalled.
func (t *Triggers) Signals() <-chan os.Signal { return t.signals }

// Signalled returns the wish of a signal.
func (t *Triggers) Signalled(s os.Signal) Wish {
	stop := slices.Contains(t.opt.Stop, s)
	level := slog.LevelDebug // launchers give a signal to all ranks; the event log has it of each
	if t.opt.Clock {
		level = slog.LevelInfo
	}
	t.opt.Log.Log(context.Background(), level, "holdfast: signal", "signal", s.String(), "stop", stop)
	return Wish{Stop: stop, By: "signal " + s.String()}
}

// Timer announces that something may be due, for Due.
func (t *Triggers) Timer() <-chan time.Time { return t.timer.C }

// Due returns the wish that is due by the clock, if there is one.
func (t *Triggers) Due() (w Wish, ok bool) {
	defer t.arm()
	ask, stop := t.clock.due(time.Now())
	if !ask {
		return Wish{}, false
	}
	t.opt.Log.Debug("holdfast: checkpoint due", "stop", stop)
	return Wish{Stop: stop, By: t.clock.name(stop)}, true
}

func (t *Triggers) arm() {
	if t.clock == nil {
		return
	}
	t.timer.Stop()
	if d, ok := t.clock.wait(time.Now()); ok {
		t.timer.Reset(d)
	}
}

// Over plans the next checkpoint when one is over that blocked the program for cost,
// committed or not.
func (t *Triggers) Over(cost time.Duration) {
	if t.clock == nil {
		return
	}
	t.clock.plan(time.Now(), cost)
	t.arm()
}

// GivenUp is Over for an epoch that was given up after that time: ranks may have waited at a Point all the time. A
// program with rare Points is asked less often.
func (t *Triggers) GivenUp(after time.Duration) { t.Over(max(after, FirstCost)) }

// Again asks again later for a final checkpoint that has failed, or was given up.
func (t *Triggers) Again() {
	if t.clock == nil {
		return
	}
	t.opt.Log.Warn("holdfast: the final checkpoint will be retried", "in", t.clock.failed(time.Now()))
	t.arm()
}

// PutOff asks again after in for a checkpoint that was put off.
func (t *Triggers) PutOff(stop bool, in time.Duration) {
	t.clock.putOff, t.clock.putOffStop = time.Now().Add(in), stop
	t.arm()
}

// Cut notes that there is a cut: a checkpoint that was put off is not requested again, unless it was final and this one
// is not.
func (t *Triggers) Cut(stop bool) {
	if t.clock != nil && (stop || !t.clock.putOffStop) {
		t.clock.putOff = time.Time{}
		t.arm()
	}
}

// Final sets when to ask for the final one; at the rank with the clock.
func (t *Triggers) Final(at time.Time) {
	t.clock.final = at
	t.arm()
}

// Status returns the next checkpoint that is due by the clock, or nil.
func (t *Triggers) Status() *job.NextStatus { return t.clock.status() }

// Deadline asks Slurm, without the program's help, when a job will be ended; zero: unknown, or never.
func Deadline(ctx context.Context, job string, log *slog.Logger) time.Time {
	end, err := (&slurm.Client{}).Deadline(ctx, job)
	if err != nil {
		if ctx.Err() == nil {
			log.Warn("holdfast: no final checkpoint before the deadline, because Slurm does not report it",
				"error", err)
		}
		return time.Time{}
	}
	if end.IsZero() {
		log.Info("holdfast: the job has no time limit, so no final checkpoint is scheduled")
	}
	return end
}

// Patience decides how long a checkpoint is put off because messages are in flight.
type Patience struct {
	Quiet   time.Duration // Options.Quiet
	Waited  time.Duration // since the first cut that was put off
	Final   bool
	Timeout time.Duration // Options.CutTimeout
	Between time.Duration // about the time from Point to Point
	Left    time.Duration // until the process is killed
	Known   bool          // Left is known
}

// More reports whether a cut may be put off. For a final checkpoint two more Points have to fit into a tenth of the
// time-out and a quarter of the time left: the computing since the previous epoch is worth more than any number of
// ranks.
func (p Patience) More() bool {
	if !p.Final {
		return p.Waited < p.Quiet
	}
	limit := min(p.Quiet, p.Timeout/10)
	if p.Known {
		limit = min(limit, p.Left/4)
	}
	return p.Quiet > 0 && p.Waited+2*p.Between <= limit
}

// promptTries is how many tries follow each other at once; the pauses before later ones double, up to longestPause: a
// program that always has messages in flight is not to stand still at every Point.
const (
	promptTries  = 8
	longestPause = time.Second
)

// PauseBefore returns how long to wait before a try, counted from 1.
func PauseBefore(try int) time.Duration {
	if try <= promptTries {
		return 0
	}
	return min(time.Millisecond<<min(try-promptTries-1, 20), longestPause)
}

// Package bench has the common parts of the suites of `holdfast bench`: a Row for each figure, the Runner that takes
// figures and collects them, and Write, which makes the table or JSON of them. Each suite is a package below this one,
// named for its subject.
//
// A suite has a function Run(ctx, *Runner, Options). One that measures in processes
// of its own has a function Work as well, which is such a process, and starts it by
// Runner.Worker. A process prints Figures, or carries out commands as a Process.
package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"
)

// A Runner collects the results of one suite. It belongs to one goroutine.
type Runner struct {
	Self   string                       // the program holdfast-bench
	Runs   int                          // of each figure
	Budget time.Duration                // how long all of it may take, about; 0: no bound
	Note   func(step string, total int) // gets the progress; may be nil

	Rows []Row // the measurements so far

	suite string
	steps int // about; 0: unknown
	begun time.Time
}

// Start begins a suite of about this many steps; 0 if the number is not known.
func (r *Runner) Start(suite string, steps int) {
	r.suite, r.steps, r.begun = suite, steps, time.Now()
}

// Step reports that the next step begins. Any goroutine may call it.
func (r *Runner) Step(format string, args ...any) {
	if r.Note == nil {
		return
	}
	step := fmt.Sprintf(format, args...)
	if r.Budget > 0 {
		step += fmt.Sprintf(" (%v of %v)", time.Since(r.begun).Round(time.Second), r.Budget)
	}
	r.Note(step, r.steps)
}

// Add adds results.
func (r *Runner) Add(rows ...Row) {
	for _, row := range rows {
		row.Suite = r.suite
		r.Rows = append(r.Rows, row)
	}
}

// Skip records that a case cannot run here, with the first line of the reason.
func (r *Runner) Skip(name, metric string, why error) {
	text, _, _ := strings.Cut(why.Error(), "\n")
	r.Add(Row{Case: name, Metric: metric, Skipped: text})
}

// Late reports whether the time of the budget is over, and if so records the case as skipped.
func (r *Runner) Late(name, metric string) bool {
	if r.Budget == 0 || time.Since(r.begun) < r.Budget {
		return false
	}
	r.Skip(name, metric, fmt.Errorf("the %v of --time are over; raise it", r.Budget))
	return true
}

// Until returns the time by which this part should be over when so many parts are left; zero without a
// budget.
func (r *Runner) Until(left int) time.Time {
	if r.Budget == 0 {
		return time.Time{}
	}
	return time.Now().Add(time.Until(r.begun.Add(r.Budget)) / time.Duration(left))
}

// Set is the samples of several metrics by name.
type Set map[string]Samples

// Add adds a sample.
func (s Set) Add(name string, v float64) { s[name] = append(s[name], v) }

// Join adds the samples of another set.
func (s Set) Join(other Set) {
	for name, v := range other {
		s[name] = append(s[name], v...)
	}
}

// Repeat calls once for each run and returns the samples that it added. One more call before them
// warms up and does not count.
func Repeat(ctx context.Context, runs int, once func(Set) error) (Set, error) {
	var all Set
	for i := range runs + 1 {
		if i < 2 {
			all = Set{}
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if err := once(all); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// InTurn times several ways to do the same thing, one after the other in each run, so that a
// disturbance affects all of them. One more round before the first warms up.
func InTurn(ctx context.Context, runs int, ways ...func() (float64, error)) ([]Samples, error) {
	out := make([]Samples, len(ways))
	for run := range runs + 1 {
		for i, way := range ways {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			v, err := way()
			if err != nil {
				return nil, err
			}
			if run > 0 {
				out[i] = append(out[i], v)
			}
		}
	}
	return out, nil
}

// Difference is the difference of two ways to do the same thing, with its confidence interval. Each sample is the
// median of one stretch of turns.
type Difference struct {
	Theirs Samples // of one way alone
	More   Samples // ours without theirs
	None   Samples // theirs without theirs: 0 but for the machine's other work
}

// Compare measures a small difference on a machine whose speed changes: its clock, other users, the length of a
// driver's queue. Both ways take well below a millisecond, so that such a change seldom comes within a turn: theirs,
// ours, ours, theirs, which leaves out even changes. A change within one is an outlier, which the median of a stretch
// of turns leaves out. How the stretches differ says how far to believe their median. One more stretch before the first
// warms up.
func Compare(ctx context.Context, stretches, turns int, ours, theirs func() (float64, error)) (Difference, error) {
	var d Difference
	for stretch := range stretches + 1 {
		var base, more, none Samples
		for range turns {
			if err := ctx.Err(); err != nil {
				return Difference{}, err
			}
			var v [4]float64
			for i, way := range []func() (float64, error){theirs, ours, ours, theirs} {
				var err error
				if v[i], err = way(); err != nil {
					return Difference{}, err
				}
			}
			base = append(base, v[0], v[3])
			more = append(more, (v[1]+v[2]-v[0]-v[3])/2)
			none = append(none, v[3]-v[0])
		}
		if stretch > 0 {
			d.Theirs = append(d.Theirs, base.Median())
			d.More = append(d.More, more.Median())
			d.None = append(d.None, none.Median())
		}
	}
	return d, nil
}

// Times returns the difference in another unit.
func (d Difference) Times(factor float64) Difference {
	return Difference{Theirs: d.Theirs.Times(factor), More: d.More.Times(factor), None: d.None.Times(factor)}
}

// Seconds returns the time that do takes.
func Seconds(do func() error) (float64, error) {
	begin := time.Now()
	err := do()
	return time.Since(begin).Seconds(), err
}

// Timed makes do a way for InTurn, measured by the time that it takes.
func Timed(do func() error) func() (float64, error) {
	return func() (float64, error) { return Seconds(do) }
}

// Worker returns the command line of a process that a suite measures in. The Work of the suite gets the
// setup.
func (r *Runner) Worker(suite string, setup any) []string {
	text, err := json.Marshal(setup)
	if err != nil {
		panic(err) // setups are plain structs of the suites
	}
	return []string{r.Self, "worker", suite, string(text)}
}

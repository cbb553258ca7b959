// Package bench is what the suites of `holdfast bench` have in common: a Row for
// each figure, the Runner that takes figures and collects them, and Write, which
// makes the table or JSON of them. Each suite is a package below this one, named
// for what it measures; plot draws the rows of any.
//
// A suite has a function Run(ctx, *Runner, Options). One that measures in processes
// of its own has a function Work as well, which is such a process, and starts it by
// Runner.Worker.
package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"
)

// A Runner runs one suite. It belongs to one goroutine.
type Runner struct {
	Self   []string                     // command line of holdfast
	Runs   int                          // of each figure
	Budget time.Duration                // how long all of it may take, about; 0: no bound
	Note   func(step string, total int) // hears of progress; may be nil

	Rows []Row // what was measured so far

	suite string
	steps int // about; 0: nobody knows
	begun time.Time
}

// Start begins a suite of about so many steps; 0 if nobody knows how many.
func (r *Runner) Start(suite string, steps int) {
	r.suite, r.steps, r.begun = suite, steps, time.Now()
}

// Step says that the next step begins; any goroutine may.
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

// Add enters results.
func (r *Runner) Add(rows ...Row) {
	for _, row := range rows {
		row.Suite = r.suite
		r.Rows = append(r.Rows, row)
	}
}

// Skip enters a case that cannot run here, with the first line of why.
func (r *Runner) Skip(name, metric string, why error) {
	text, _, _ := strings.Cut(why.Error(), "\n")
	r.Add(Row{Case: name, Metric: metric, Skipped: text})
}

// Late says whether the time is up, and if so enters the case as skipped.
func (r *Runner) Late(name, metric string) bool {
	if r.Budget == 0 || time.Since(r.begun) < r.Budget {
		return false
	}
	r.Skip(name, metric, fmt.Errorf("the %v of --time are over; raise it", r.Budget))
	return true
}

// Until is when this part of so many that are left should be over; zero without a
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

// Repeat calls once for each run and one time before, which warms up and is not
// counted, and returns what it added.
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

// InTurn times several ways to do the same, one after the other in each run, and
// once before to warm up. What disturbs one so disturbs the others.
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

// Seconds says how long something takes.
func Seconds(do func() error) (float64, error) {
	begin := time.Now()
	err := do()
	return time.Since(begin).Seconds(), err
}

// Timed is a way for InTurn: it says how long do takes.
func Timed(do func() error) func() (float64, error) {
	return func() (float64, error) { return Seconds(do) }
}

// Worker is the command line of a process that a suite measures in: its Work gets
// the setup.
func (r *Runner) Worker(suite string, setup any) []string {
	text, err := json.Marshal(setup)
	if err != nil {
		panic(err) // setups are plain structs of the suites
	}
	return append(r.Self[:len(r.Self):len(r.Self)], "bench", "worker", suite, string(text))
}

// Package bench writes the results of `holdfast bench`: a table for people, or
// one JSON object per line.
package bench

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"text/tabwriter"
)

// Line is one result. Pointers are nil where there is nothing to say: no
// baseline, no goal.
type Line struct {
	Suite    string   `json:"suite"`
	Case     string   `json:"case"`
	Metric   string   `json:"metric"`
	Value    float64  `json:"value"`
	Unit     string   `json:"unit"`
	Baseline *float64 `json:"baseline"` // same unit, measured in the same run
	Ratio    *float64 `json:"ratio"`    // value / baseline
	Goal     *float64 `json:"goal"`     // greatest good ratio, or value where there is no baseline
	Met      *bool    `json:"met"`      // null where no goal is set
	Runs     int      `json:"runs"`
	Spread   float64  `json:"spread"`        // (largest - smallest) / median of the value
	Min      *float64 `json:"min,omitempty"` // of the runs, where it is known
	Max      *float64 `json:"max,omitempty"`
	Skipped  string   `json:"skipped,omitempty"`
}

// Samples are the measurements of one metric, one per run.
type Samples []float64

// Median is the middle value; of two the mean.
func (s Samples) Median() float64 {
	if len(s) == 0 {
		return 0
	}
	t := slices.Clone(s)
	slices.Sort(t)
	n := len(t)
	return (t[(n-1)/2] + t[n/2]) / 2
}

// Spread is the range over the median.
func (s Samples) Spread() float64 {
	m := s.Median()
	if m == 0 {
		return 0
	}
	return (slices.Max(s) - slices.Min(s)) / math.Abs(m)
}

// Against makes a line of values and their baseline, with a goal for the ratio;
// a goal of 0 is none. Values and baselines are measured in turn, so that what
// disturbs one disturbs the other; the ratio is that of their medians.
func Against(l Line, values, baselines Samples, goal float64) Line {
	l.fill(values)
	b := baselines.Median()
	r := l.Value / b
	l.Baseline, l.Ratio = &b, &r
	l.judge(r, goal)
	return l
}

// Alone makes a line of values with a goal for the value itself.
func Alone(l Line, values Samples, goal float64) Line {
	l.fill(values)
	l.judge(l.Value, goal)
	return l
}

// Skip makes a line that says why a case cannot run here.
func Skip(l Line, why error) Line {
	l.Skipped = why.Error()
	return l
}

func (l *Line) fill(values Samples) {
	l.Value, l.Runs, l.Spread = values.Median(), len(values), values.Spread()
	if len(values) > 1 {
		low, high := slices.Min(values), slices.Max(values)
		l.Min, l.Max = &low, &high
	}
}

func (l *Line) judge(v, goal float64) {
	if goal == 0 {
		return
	}
	met := v <= goal
	l.Goal, l.Met = &goal, &met
}

// Write writes lines as JSON or as a table.
func Write(w io.Writer, lines []Line, asJSON bool) error {
	if asJSON {
		enc := json.NewEncoder(w)
		for _, l := range lines {
			if err := enc.Encode(l); err != nil {
				return err
			}
		}
		return nil
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "CASE\tMETRIC\tVALUE\tUNIT\tBASELINE\tRATIO\tGOAL\tMET\tRUNS\tSPREAD")
	for _, l := range lines {
		if l.Skipped != "" {
			fmt.Fprintf(t, "%s\t%s\tskipped: %s\n", l.Case, l.Metric, l.Skipped)
			continue
		}
		met := "-"
		if l.Met != nil {
			met = map[bool]string{true: "yes", false: "NO"}[*l.Met]
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%d\t%.0f %%\n", l.Case, l.Metric, number(&l.Value), l.Unit,
			number(l.Baseline), number(l.Ratio), number(l.Goal), met, l.Runs, 100*l.Spread)
	}
	return t.Flush()
}

func number(v *float64) string {
	if v == nil {
		return "-"
	}
	return strconv.FormatFloat(*v, 'g', 4, 64)
}

// AllMet says whether every goal that is set was reached.
func AllMet(lines []Line) bool {
	return !slices.ContainsFunc(lines, func(l Line) bool { return l.Met != nil && !*l.Met })
}

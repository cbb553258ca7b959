package bench

import (
	"math"
	"slices"
)

// Row is one result. A value is null if there is none: no baseline, no goal.
type Row struct {
	Suite    string   `json:"suite"`             // name of the suite
	Case     string   `json:"case"`              // the measured operation
	Metric   string   `json:"metric"`            // the measured quantity
	Value    float64  `json:"value"`             // median of the runs, in the unit
	Unit     string   `json:"unit"`              // unit of value, baseline, min and max
	Baseline *float64 `json:"baseline"`          // same unit, measured in the same run
	Ratio    *float64 `json:"ratio"`             // value / baseline
	Goal     *float64 `json:"goal"`              // for the ratio, or for the value without a baseline
	Met      *bool    `json:"met"`               // null if no goal is set
	Runs     int      `json:"runs"`              // number of measurements
	Spread   float64  `json:"spread"`            // (largest - smallest) / median of the value
	Min      *float64 `json:"min,omitempty"`     // least of several runs
	Max      *float64 `json:"max,omitempty"`     // largest of several runs
	Skipped  string   `json:"skipped,omitempty"` // reason why the case cannot run here

	noise float64 // of the baselines
}

// Samples are the measurements of one metric, one per run.
type Samples []float64

// Median returns the middle value; of two the mean.
func (s Samples) Median() float64 {
	if len(s) == 0 {
		return 0
	}
	t := slices.Clone(s)
	slices.Sort(t)
	n := len(t)
	return (t[(n-1)/2] + t[n/2]) / 2
}

// Spread returns the range over the median.
func (s Samples) Spread() float64 {
	m := s.Median()
	if m == 0 {
		return 0
	}
	return (slices.Max(s) - slices.Min(s)) / math.Abs(m)
}

// Noise returns the interquartile range over the median, which ignores a few outliers among many
// samples.
func (s Samples) Noise() float64 {
	t := slices.Sorted(slices.Values(s))
	n := len(t)
	if n == 0 || s.Median() == 0 {
		return 0
	}
	return (t[n*3/4] - t[n/4]) / math.Abs(s.Median())
}

// Times returns the samples in another unit.
func (s Samples) Times(factor float64) Samples {
	out := make(Samples, len(s))
	for i, v := range s {
		out[i] = factor * v
	}
	return out
}

// Rates turns seconds for n units into units a second.
func (s Samples) Rates(n float64) Samples {
	out := make(Samples, len(s))
	for i, v := range s {
		out[i] = n / v
	}
	return out
}

// A Goal is the bound of a ratio, or of a value without a baseline: AtMost or AtLeast
// a number.
type Goal interface {
	judge(v float64) (goal float64, met bool)
}

// AtMost is an upper bound.
type AtMost float64

// AtLeast is a lower bound.
type AtLeast float64

func (g AtMost) judge(v float64) (float64, bool)  { return float64(g), v <= float64(g) }
func (g AtLeast) judge(v float64) (float64, bool) { return float64(g), v >= float64(g) }

// Of fills in the median of values, its ratio to the median of the baselines, and whether the goal
// is met; nil is no goal, and without baselines there is no ratio. Measure values and baselines in
// turn, so that a disturbance affects both.
func (r Row) Of(values, baselines Samples, goal Goal) Row {
	r.noise = baselines.Noise()
	return r.fill(values, values.Median(), baselines.Median(), goal)
}

// Fastest is Of with the smallest values instead of the medians: the time without disturbance.
// values must not be empty.
func (r Row) Fastest(values, baselines Samples, goal Goal) Row {
	base := 0.0
	if len(baselines) > 0 {
		base = slices.Min(baselines)
	}
	return r.fill(values, slices.Min(values), base, goal)
}

func (r Row) fill(values Samples, value, baseline float64, goal Goal) Row {
	r.Value, r.Runs, r.Spread = value, len(values), values.Spread()
	if len(values) > 1 {
		low, high := slices.Min(values), slices.Max(values)
		r.Min, r.Max = &low, &high
	}
	judged := value
	if baseline != 0 {
		judged = value / baseline
		ratio := judged
		r.Baseline, r.Ratio = &baseline, &ratio
	}
	if goal != nil {
		g, met := goal.judge(judged)
		r.Goal, r.Met = &g, &met
	}
	return r
}

// AllMet reports whether every goal that is set was met.
func AllMet(rows []Row) bool {
	return !slices.ContainsFunc(rows, func(r Row) bool { return r.Met != nil && !*r.Met })
}

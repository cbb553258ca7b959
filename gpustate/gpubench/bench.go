package gpubench

import (
	"context"
	"fmt"
	"math"
	"sort"
	"time"

	"github.com/holdfast-hpc/holdfast/gpustate"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/cl"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/cuda"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/driver"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/fake"
)

// Options say what to measure. The zero value takes the best device and sizes
// that suit it.
type Options struct {
	Select gpustate.Select
	// Sizes are the bytes of state of the capture figures. nil: 4, 16 and 48 GiB
	// on a device with memory of its own, 256 MiB on others.
	Sizes []int64
	// Runs is how often each figure is taken; the median counts. 0: 3.
	Runs int
	// Self is the command line of a process that calls Hold; nil: this program
	// without arguments.
	Self []string
}

// Result is one figure.
type Result struct {
	Suite    string   `json:"suite"`
	Case     string   `json:"case"`
	Metric   string   `json:"metric"`
	Value    float64  `json:"value"`
	Unit     string   `json:"unit"`
	Baseline float64  `json:"baseline,omitempty"` // in the same unit
	Ratio    float64  `json:"ratio,omitempty"`    // of value to baseline
	Goal     *float64 `json:"goal"`               // for the ratio, or the value without a baseline
	Met      *bool    `json:"met"`                // nil where no goal is set
	Runs     int      `json:"runs,omitempty"`
	Spread   float64  `json:"spread,omitempty"` // largest minus smallest, over the median
	Skipped  string   `json:"skipped,omitempty"`
}

// String is the figure in one line.
func (r Result) String() string {
	if r.Skipped != "" {
		return fmt.Sprintf("%-26s %-30s skipped: %s", r.Case, r.Metric, r.Skipped)
	}
	s := fmt.Sprintf("%-26s %-30s %10.4g %-5s", r.Case, r.Metric, r.Value, r.Unit)
	if r.Baseline != 0 {
		s += fmt.Sprintf(" baseline %10.4g ratio %7.4f", r.Baseline, r.Ratio)
	}
	if r.Goal != nil {
		s += fmt.Sprintf(" goal %.4g met %v", *r.Goal, *r.Met)
	}
	if r.Runs > 1 {
		s += fmt.Sprintf(" (median of %d, spread %.1f %%)", r.Runs, 100*r.Spread)
	}
	return s
}

// runner holds what the measurements share.
type runner struct {
	ctx    context.Context
	opt    Options
	info   gpustate.Info
	report func(Result)
	pinned float64 // bytes per second from device to host
	upload float64 // and from host to device
	rounds int     // of the kernel, so that it takes about a millisecond
	chunks []byte  // buffers of the readers
}

// Run measures everything and reports each figure as it is known.
func Run(ctx context.Context, opt Options, report func(Result)) error {
	d, err := gpustate.Open(opt.Select)
	if err != nil {
		return err
	}
	r := &runner{ctx: ctx, opt: opt, info: d.Info(), report: report}
	if err := d.Close(); err != nil {
		return err
	}
	// the same device from now on, whatever matched first
	r.opt.Select = gpustate.Select{Kind: r.info.Kind, Platform: r.info.Platform, Name: r.info.Name, PCI: r.info.PCI}
	if r.opt.Runs == 0 {
		r.opt.Runs = 3
	}
	if r.opt.Sizes == nil {
		r.opt.Sizes = []int64{256 << 20}
		if !r.info.HostMemory {
			r.opt.Sizes = []int64{4 << 30, 16 << 30, 48 << 30}
		}
	}
	for _, step := range []func() error{r.raw, r.recording, r.windows, r.captures, r.driverCheckpoint} {
		if err := step(); err != nil {
			return err
		}
		if err := ctx.Err(); err != nil {
			return err
		}
	}
	return nil
}

// bare opens the device without gpustate, for baselines.
func (r *runner) bare() (driver.Device, error) {
	for _, lib := range []driver.Driver{&cuda.Library{}, cl.System, &fake.Library{}} {
		if lib.Kind() == r.info.Kind {
			return lib.Open(r.info.Index)
		}
	}
	return nil, fmt.Errorf("no driver of kind %q", r.info.Kind)
}

func (r *runner) skip(where, metric, why string) {
	r.report(Result{Suite: "gpu", Case: where, Metric: metric, Skipped: why})
}

// Ways in which a figure can meet its goal.
type sense int

const (
	noGoal sense = iota
	atLeast
	atMost
)

// figure reports the median of values.
func (r *runner) figure(where, metric, unit string, values []float64, baseline, goal float64, s sense) {
	sort.Float64s(values)
	n := len(values)
	res := Result{Suite: "gpu", Case: where, Metric: metric, Unit: unit, Value: values[n/2],
		Runs: n, Baseline: baseline}
	if res.Value != 0 {
		res.Spread = math.Abs((values[n-1] - values[0]) / res.Value)
	}
	judged := res.Value
	if baseline != 0 {
		res.Ratio = res.Value / baseline
		judged = res.Ratio
	}
	if s != noGoal {
		met := judged >= goal
		if s == atMost {
			met = judged <= goal
		}
		res.Goal, res.Met = &goal, &met
	}
	r.report(res)
}

// repeat measures a time several times, after one run that is not counted.
func (r *runner) repeat(do func() error) ([]float64, error) {
	var seconds []float64
	for i := range r.opt.Runs + 1 {
		if err := r.ctx.Err(); err != nil {
			return nil, err
		}
		begin := time.Now()
		if err := do(); err != nil {
			return nil, err
		}
		if i > 0 {
			seconds = append(seconds, time.Since(begin).Seconds())
		}
	}
	return seconds, nil
}

// rates turns times for n bytes into GB/s.
func rates(seconds []float64, n int64) []float64 {
	out := make([]float64, len(seconds))
	for i, s := range seconds {
		out[i] = float64(n) / s / 1e9
	}
	return out
}

func median(values []float64) float64 {
	v := append([]float64(nil), values...)
	sort.Float64s(v)
	return v[len(v)/2]
}

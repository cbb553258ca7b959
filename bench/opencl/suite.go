// Package opencl measures what libholdfast-opencl costs an OpenCL program: `holdfast bench opencl`.
// A program in C measures itself, with the device's own library and through the one that is
// measured, in turn.
package opencl

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/holdfast-hpc/holdfast/bench"
)

// Options shape a run.
type Options struct {
	Lib     string  // directory of libholdfast-opencl.so; empty: beside the one of holdfast
	Program string  // the program, compiled before; empty: it is compiled
	Vendors string  // OCL_ICD_VENDORS of the device's own library; empty: that of the environment
	Device  string  // a word of the platform's name or version; empty: the first
	MiB     int     // of the largest transfer
	Seconds float64 // for each figure
}

// The goals, of devices with memory of their own. With a CPU device a transfer of its own library
// is no transfer at all.
const (
	leastLaunches = bench.AtLeast(0.9)
	leastBytes    = bench.AtLeast(0.9) // of pinned and mapped memory, from goalBytes on
	mostCompute   = bench.AtMost(1.02)
	goalBytes     = 1 << 20
)

// Run measures. Without the library, a compiler or a device there is a row with the reason.
func Run(ctx context.Context, r *bench.Runner, o Options) (err error) {
	if o.MiB < 1 || o.Seconds <= 0 {
		return fmt.Errorf("--mib %d, --seconds %v: want more than 0", o.MiB, o.Seconds)
	}
	r.Start("opencl", 2+3*(r.Runs+1))
	dir, err := os.MkdirTemp("", "holdfast-opencl")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	r.Step("compile")
	p, err := prepare(ctx, dir, o)
	if err != nil {
		r.Skip("OpenCL program", "all", err)
		return nil
	}
	r.Step("start a server")
	if err := p.serve(ctx, o); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.stop()) }()
	var own, through, inside []*result
	for run := range r.Runs + 1 { // the first warms up: programs are compiled once
		r.Step("the device's own library, run %d", run)
		a, err := p.run(ctx, p.ownEnv, o, o.MiB)
		if err != nil && run == 0 {
			r.Skip("OpenCL program", "all", err)
			return nil
		}
		if err != nil {
			return err
		}
		r.Step("libholdfast-opencl, run %d", run)
		b, err := p.run(ctx, p.throughEnv, o, o.MiB)
		if err != nil {
			return err
		}
		r.Step("libholdfast-opencl without a server, run %d", run)
		c, err := p.run(ctx, p.insideEnv, o, 0)
		if err != nil {
			return err
		}
		if !a.Same || !b.Same {
			return fmt.Errorf("bytes read back are not those written (right: own library %v, ours %v)",
				a.Same, b.Same)
		}
		if run > 0 {
			own, through, inside = append(own, a), append(through, b), append(inside, c)
		}
	}
	report(r, own, through, inside)
	return nil
}

// report adds the rows.
func report(r *bench.Runner, own, through, inside []*result) {
	name := own[0].Device
	gpu := !own[0].CPU
	compare := func(metric, unit string, with []*result, goal bench.Goal, value func(*result) float64) {
		var v, base bench.Samples
		for i := range own {
			v, base = append(v, value(with[i])), append(base, value(own[i]))
		}
		r.Add(bench.Row{Case: name, Metric: metric, Unit: unit}.Of(v, base, goal))
	}
	add := func(metric, unit string, goal bench.Goal, value func(*result) float64) {
		compare(metric, unit, through, goal, value)
	}
	launches := goalOf(gpu, leastLaunches)
	add("launches", "1/s", launches, func(r *result) float64 { return r.Launches })
	add("launches, an argument set before each", "1/s", launches, func(r *result) float64 { return r.WithArgument })
	compare("launches, no server", "1/s", inside, nil, func(r *result) float64 { return r.Launches })
	compare("launches, an argument set before each, no server", "1/s", inside, nil,
		func(r *result) float64 { return r.WithArgument })
	add("a launch, until its call returns", "us", nil, func(r *result) float64 { return r.Called })
	add("a launch and its end", "us", nil, func(r *result) float64 { return r.Awaited })
	add("compute-bound program", "s", mostCompute, func(r *result) float64 { return r.Compute })
	for i, t := range own[0].Transfers {
		goal := goalOf(gpu && (t.Way == "pinned" || t.Way == "mapped") && t.Bytes >= goalBytes, leastBytes)
		add(t.metric(), "GB/s", goal, func(r *result) float64 { return r.Transfers[i].Rate / 1e9 })
	}
}

func goalOf(judged bool, g bench.Goal) bench.Goal {
	if judged {
		return g
	}
	return nil
}

// metric names a transfer.
func (t *transfer) metric() string {
	size := fmt.Sprintf("%d KiB", t.Bytes>>10)
	if t.Bytes >= 1<<20 {
		size = fmt.Sprintf("%d MiB", t.Bytes>>20)
	}
	to := "to device"
	if t.Read {
		to = "to host"
	}
	return fmt.Sprintf("%s, %s, %s", t.Way, to, size)
}

// icd is the file that a loader finds the library by.
func icd(dir, lib string) (vendors string, err error) {
	vendors = filepath.Join(dir, "vendors")
	if err := os.Mkdir(vendors, 0o700); err != nil {
		return "", err
	}
	return vendors, os.WriteFile(filepath.Join(vendors, "holdfast.icd"),
		[]byte(filepath.Join(lib, "libholdfast-opencl.so")+"\n"), 0o600)
}

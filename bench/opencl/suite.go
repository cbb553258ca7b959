// Package opencl measures the cost of libholdfast-opencl for an OpenCL program: `holdfast bench opencl`. A program in C
// measures itself, with the device's own library and through the one that is measured, in turn.
package opencl

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

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
	leastBytes    = bench.AtLeast(0.9) // of pinned and mapped memory, from 1 MiB on
	mostCompute   = bench.AtMost(1.02)
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
	defer func() { err = errors.Join(err, p.server.Stop()) }()
	var first bench.Figures
	own, through, inside := bench.Set{}, bench.Set{}, bench.Set{}
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
		if right, ours := a.Set[same][0] == 1, b.Set[same][0] == 1; !right || !ours {
			return fmt.Errorf("bytes read back are not those written (right: own library %v, ours %v)", right, ours)
		}
		if run == 0 {
			first = a
			continue
		}
		own.Join(a.Set)
		through.Join(b.Set)
		inside.Join(c.Set)
	}
	report(r, first, own, through, inside)
	return nil
}

// The program's output, besides a rate in bytes a second for each transfer.
const (
	launches = "launches"
	argument = "launches, an argument set before each"
	called   = "a launch, until its call returns"
	awaited  = "a launch and its end"
	compute  = "compute-bound program"
	same     = "same" // 1: all bytes that were read back are those written
	onCPU    = "cpu"  // 1: the device is one
)

// report adds the rows. First is the first result of the device's own library.
func report(r *bench.Runner, first bench.Figures, own, through, inside bench.Set) {
	device, gpu := first.Texts["device"], first.Set[onCPU][0] != 1
	add := func(name, unit string, goal bench.Goal) {
		r.Add(bench.Row{Case: device, Metric: name, Unit: unit}.Of(through[name], own[name], goal))
	}
	add(launches, "1/s", goalOf(gpu, leastLaunches))
	add(argument, "1/s", goalOf(gpu, leastLaunches))
	for _, name := range []string{launches, argument} {
		r.Add(bench.Row{Case: device, Metric: name + ", no server", Unit: "1/s"}.Of(inside[name], own[name], nil))
	}
	add(called, "us", nil)
	add(awaited, "us", nil)
	add(compute, "s", mostCompute)
	for _, name := range first.Names {
		if way, _, moved := strings.Cut(name, ", to "); moved {
			judged := gpu && (way == "pinned" || way == "mapped") && strings.HasSuffix(name, "MiB")
			r.Add(bench.Row{Case: device, Metric: name, Unit: "GB/s"}.
				Of(through[name].Times(1e-9), own[name].Times(1e-9), goalOf(judged, leastBytes)))
		}
	}
}

func goalOf(judged bool, g bench.Goal) bench.Goal {
	if judged {
		return g
	}
	return nil
}

// icd returns the file that a loader finds the library by.
func icd(dir, lib string) (vendors string, err error) {
	vendors = filepath.Join(dir, "vendors")
	if err := os.Mkdir(vendors, 0o700); err != nil {
		return "", err
	}
	return vendors, os.WriteFile(filepath.Join(vendors, "holdfast.icd"),
		[]byte(filepath.Join(lib, "libholdfast-opencl.so")+"\n"), 0o600)
}

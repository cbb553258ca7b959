// Package remote measures the cost of a device of another process against the same device in the program's own:
// `holdfast bench remote`. It starts its servers itself, on this machine.
package remote

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/holdfast-hpc/holdfast/bench"
	"github.com/holdfast-hpc/holdfast/gpustate"
)

// Options select the measurements.
type Options struct {
	BinDir  string // of the applications
	Dir     string // to write in; empty: the temporary directory
	Device  string // as gpustate.ParseSelect takes it; empty: the best there is
	Apps    []string
	Seconds float64 // that an application runs, about
	Cases   []string
}

// Cases are the parts of the suite, in order.
var Cases = []string{"bandwidth", "launches", "apps", "migration", "balance"}

type suite struct {
	*bench.Runner
	o   Options
	dir string

	sel     gpustate.Select
	info    gpustate.Info
	big     bool // a device with memory of its own
	a, b    *server
	devices int                // of the kind that is measured
	perLoad map[string]float64 // seconds that work 1 of an application takes
}

// Run measures. It starts no application once the budget of the runner is spent.
func Run(ctx context.Context, r *bench.Runner, o Options) (err error) {
	for _, c := range o.Cases {
		if !slices.Contains(Cases, c) {
			return fmt.Errorf("unknown case %q: want some of %s", c, strings.Join(Cases, ", "))
		}
	}
	if len(o.Cases) == 0 {
		o.Cases = Cases
	}
	r.Start("remote", len(o.Cases))
	s := &suite{Runner: r, o: o, perLoad: map[string]float64{}}
	if s.dir, err = os.MkdirTemp(o.Dir, "holdfast-bench-remote-"); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(s.dir)) }()
	if err := s.prepare(ctx); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.a.stop(), s.b.stop()) }()
	for i, step := range []func(context.Context) error{
		s.bandwidth, s.launches, s.applications, s.migration, s.balance} {
		if !slices.Contains(o.Cases, Cases[i]) {
			continue
		}
		s.Step("%s", Cases[i])
		if err := step(ctx); err != nil {
			return fmt.Errorf("%s: %w", Cases[i], err)
		}
	}
	return nil
}

// prepare finds the device and starts two servers: for two devices where there
// are two of a kind, otherwise both for the same one.
func (s *suite) prepare(ctx context.Context) (err error) {
	if s.sel, err = gpustate.ParseSelect(s.o.Device); err != nil {
		return err
	}
	d, err := gpustate.Open(s.sel)
	if err != nil {
		return err
	}
	s.info = d.Info()
	if err := d.Close(); err != nil {
		return err
	}
	s.big = !s.info.HostMemory
	all, err := gpustate.Devices()
	if err != nil {
		return err
	}
	for _, i := range all {
		if i.Kind == s.info.Kind && i.Platform == s.info.Platform && i.Name == s.info.Name {
			s.devices++
		}
	}
	// two PoCL servers are two devices when each has half of the cores
	var env [2][]string
	if s.info.Vendor == "NVIDIA Corporation" && s.devices > 1 {
		env = [2][]string{{"CUDA_VISIBLE_DEVICES=0"}, {"CUDA_VISIBLE_DEVICES=1"}}
	}
	if s.a, err = s.start(ctx, "a", env[0]); err != nil {
		return err
	}
	if s.b, err = s.start(ctx, "b", env[1]); err != nil {
		return errors.Join(err, s.a.stop())
	}
	return nil
}

// word returns the selection of the device, as the servers know it.
func (s *suite) word() string {
	switch {
	case s.info.Kind == "cuda":
		return "cuda"
	case strings.EqualFold(s.info.Platform, "Portable Computing Language"):
		return "pocl"
	}
	return s.info.Name
}

// server is a holdfast gpud that was started.
type server struct {
	*bench.Server
	unix, tcp string
	key       string
}

func (s *suite) start(ctx context.Context, name string, env []string) (*server, error) {
	v := &server{unix: "unix:" + filepath.Join(s.dir, name+".sock"), key: filepath.Join(s.dir, "key")}
	cmd, err := bench.Holdfast(ctx, "gpud", "--listen", v.unix, "--listen", "127.0.0.1:0", "--key", v.key,
		"--device", s.word(), "--grace", "0s")
	if err != nil {
		return nil, err
	}
	cmd.Env = append(os.Environ(), env...)
	v.Server, err = bench.Serve(cmd, func(line string) (ok bool) {
		v.tcp, ok = strings.CutPrefix(line, "gpud: listens at ")
		return ok && strings.HasPrefix(v.tcp, "127.")
	})
	if err != nil {
		return nil, err
	}
	return v, nil
}

func (v *server) stop() error {
	if v == nil {
		return nil
	}
	return v.Stop()
}

// at returns the selection of the device of a server.
func (s *suite) at(v *server, addr string) string {
	return "remote=" + addr + ",key=" + v.key + "," + s.word()
}

// way is one way to a device.
type way struct{ name, text string }

// ways returns the program's own driver and the first server.
func (s *suite) ways() []way {
	return []way{{"direct", s.o.Device}, {"unix socket", s.at(s.a, s.a.unix)}, {"loopback TCP", s.at(s.a, s.a.tcp)}}
}

func (w way) open() (*gpustate.Device, error) {
	sel, err := gpustate.ParseSelect(w.text)
	if err != nil {
		return nil, err
	}
	return gpustate.Open(sel)
}

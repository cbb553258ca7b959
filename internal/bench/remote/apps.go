package remote

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"

	"github.com/holdfast-hpc/holdfast/internal/bench"
	"github.com/holdfast-hpc/holdfast/internal/bench/apps"
)

// apps are the applications that are here; the others are skipped with a line.
func (s *suite) apps(what string) []string {
	var list []string
	for _, name := range apps.Names() {
		if len(s.o.Apps) > 0 && !slices.Contains(s.o.Apps, name) {
			continue
		}
		if _, err := os.Stat(filepath.Join(s.o.BinDir, name)); err != nil {
			s.Skip(name, what, err)
			continue
		}
		list = append(list, name)
	}
	return list
}

// run is one run of an application on one rank, without MPI.
type run struct {
	cmd   *exec.Cmd
	out   bytes.Buffer
	times string
	file  string // the result
}

func (s *suite) launch(ctx context.Context, name string, load float64, device string, n int, more ...string) (*run,
	error) {
	dir := filepath.Join(s.dir, fmt.Sprint(n)) // of this instance: there may be two at a time
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	args, result, err := apps.Arguments(name, load, s.big, dir)
	if err != nil {
		return nil, err
	}
	r := &run{times: filepath.Join(dir, name+"-times.json"), file: filepath.Join(dir, name+"-"+result)}
	args = append(args, "-ranks", "1", "-progress", "off", "-device", device, "-times", r.times, "-out", r.file)
	r.cmd = exec.CommandContext(ctx, filepath.Join(s.o.BinDir, name), append(args, more...)...)
	r.cmd.Env = append(os.Environ(), "HOLDFAST_LOCAL=", "HOLDFAST_GLOBAL=", "HOLDFAST_CONFIG=")
	r.cmd.Stdout, r.cmd.Stderr = &r.out, &r.out
	return r, r.cmd.Start()
}

// wait gives the seconds of the steps.
func (r *run) wait() (float64, error) {
	if err := r.cmd.Wait(); err != nil {
		return 0, fmt.Errorf("%s: %w\n%s", filepath.Base(r.cmd.Path), err, r.out.String())
	}
	raw, err := os.ReadFile(r.times)
	if err != nil {
		return 0, err
	}
	var t struct{ Loop float64 }
	return t.Loop, json.Unmarshal(raw, &t)
}

func (s *suite) timed(ctx context.Context, name string, load float64, device string, more ...string) (float64, error) {
	r, err := s.launch(ctx, name, load, device, 0, more...)
	if err != nil {
		return 0, err
	}
	return r.wait()
}

// load finds the work that keeps an application busy for about so long.
func (s *suite) load(ctx context.Context, name string, want float64) (float64, error) {
	if per := s.perLoad[name]; per > 0 {
		return want / per, nil
	}
	load := 1.0
	for range 4 {
		t, err := s.timed(ctx, name, load, s.o.Device)
		if err != nil {
			return 0, err
		}
		s.perLoad[name] = t / load
		if t > 0.7*want {
			break
		}
		load *= min(want/max(t, 1e-3), 20)
	}
	return load, nil
}

// goals of applications: times as much as with the device of the own process.
var goals = map[string]bench.Goal{"matmul": bench.AtMost(1.02), "nbody": bench.AtMost(1.02)}

// applications compares whole runs, and their results.
func (s *suite) applications(ctx context.Context) error {
	for _, name := range s.apps("steps") {
		if s.Late(name, "steps") {
			continue
		}
		load, err := s.load(ctx, name, s.o.Seconds)
		if err != nil {
			return err
		}
		ways := s.ways()
		values := make([]bench.Samples, len(ways))
		var result []byte
		for n := range s.Runs {
			for i := range ways {
				i = (i + n) % len(ways)
				r, err := s.launch(ctx, name, load, ways[i].text, i)
				if err != nil {
					return err
				}
				t, err := r.wait()
				if err != nil {
					return err
				}
				values[i] = append(values[i], t)
				got, err := os.ReadFile(r.file)
				if err != nil {
					return err
				}
				if result == nil {
					result = got
				}
				if !bytes.Equal(got, result) {
					return fmt.Errorf("%s: the result through %s differs", name, ways[i].name)
				}
			}
		}
		for i, w := range ways[1:] {
			// the fastest of each: others shared the machine with something
			s.Add(bench.Row{Case: w.name, Metric: name + " steps", Unit: "s"}.Fastest(values[i+1], values[0],
				goals[name]))
		}
	}
	return nil
}

// windows shows what a bound of unfinished commands costs a remote program.
func (s *suite) windows(ctx context.Context) error {
	for _, name := range s.apps("windows") {
		if s.Late(name, "windows") {
			continue
		}
		load, err := s.load(ctx, name, s.o.Seconds/2)
		if err != nil {
			return err
		}
		bounds := []int{-1, 50, 20, 10, 5, 2, 1}
		values := map[int]bench.Samples{}
		for range max(s.Runs/2, 1) {
			for _, n := range bounds {
				t, err := s.timed(ctx, name, load, s.at(s.a, s.a.unix), "-window", fmt.Sprint(n))
				if err != nil {
					return err
				}
				values[n] = append(values[n], t)
			}
		}
		for _, n := range bounds[1:] {
			s.Add(bench.Row{Case: name, Metric: fmt.Sprintf("steps, window %d, unix socket", n),
				Unit: "s"}.Fastest(values[n], values[-1], nil))
		}
	}
	return nil
}

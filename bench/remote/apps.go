package remote

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/holdfast-hpc/holdfast/bench"
	"github.com/holdfast-hpc/holdfast/bench/apps"
)

// apps returns the applications that are installed; each other one is skipped with a row.
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

// launch prepares a start of an application on one rank, without MPI, on a device. n tells apart
// starts at the same time.
func (s *suite) launch(name string, load float64, device string, n int, more ...string) (*apps.Launch, error) {
	dir := filepath.Join(s.dir, fmt.Sprint(n))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	return &apps.Launch{App: name, BinDir: s.o.BinDir, Work: load, Big: s.big, Dir: dir, Device: device,
		Out: filepath.Join(dir, name+"-"+apps.ResultFile(name)), Args: more}, nil
}

// timed returns the seconds of the steps.
func (s *suite) timed(ctx context.Context, name string, load float64, device string, more ...string) (float64, error) {
	l, err := s.launch(name, load, device, 0, more...)
	if err != nil {
		return 0, err
	}
	t, _, err := l.Run(ctx)
	if err != nil {
		return 0, err
	}
	return t.Loop, nil
}

// load finds the work that takes about this many seconds.
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

// applications compares the times and the results of whole runs.
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
				l, err := s.launch(name, load, ways[i].text, i)
				if err != nil {
					return err
				}
				t, _, err := l.Run(ctx)
				if err != nil {
					return err
				}
				values[i] = append(values[i], t.Loop)
				got, err := os.ReadFile(l.Out)
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

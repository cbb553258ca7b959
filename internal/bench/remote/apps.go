package remote

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-hpc/holdfast/gpustate"
	"github.com/holdfast-hpc/holdfast/gpustate/gpud"
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

func (s *suite) launch(ctx context.Context, name string, load float64, device string, n int, more ...string) (*run, error) {
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
					return fmt.Errorf("%s: the result through %s is another one", name, ways[i].name)
				}
			}
		}
		for i, w := range ways[1:] {
			// the fastest of each: others shared the machine with something
			s.Add(bench.Row{Case: w.name, Metric: name + " steps", Unit: "s"}.Fastest(values[i+1], values[0], goals[name]))
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
			s.Add(bench.Row{Case: name, Metric: fmt.Sprintf("steps, window %d, unix socket", n), Unit: "s"}.Fastest(values[n], values[-1], nil))
		}
	}
	return nil
}

// migration moves running applications of three sizes to and fro and shows each
// step, and moves states of several sizes.
func (s *suite) migration(ctx context.Context) error {
	for _, name := range s.apps("migration") {
		for _, size := range s.problems(name) {
			if s.Late("migration", name+" "+size.name) {
				continue
			}
			moves, err := s.moved(ctx, name, size)
			if err != nil {
				return fmt.Errorf("%s %s: %w", name, size.name, err)
			}
			s.steps(name+" "+size.name, moves)
		}
	}
	sizes := []int{16 << 20, 256 << 20}
	if s.big {
		sizes = append(sizes, 1<<30, 4<<30, 16<<30)
	}
	for _, n := range sizes {
		if s.Late("migration", "state of "+sizeText(n)) {
			continue
		}
		if err := s.state(ctx, n); err != nil {
			return err
		}
	}
	return nil
}

// problem is a size of an application that runs until it is ended.
type problem struct {
	name string
	work float64 // as apps.Arguments takes it
	more []string
}

// extents are small, middling and large problems: of the matrices, the number of
// bodies, and the work that sequences are made for, on a CPU and on a big GPU.
var extents = map[string][2][3]int{
	"matmul":        {{128, 256, 512}, {2048, 4096, 8192}},
	"nbody":         {{1024, 2048, 4096}, {16384, 65536, 131072}},
	"smithwaterman": {{1, 4, 16}, {4, 16, 64}},
	"transpose":     {{512, 1024, 2048}, {4096, 8192, 16384}},
}

func (s *suite) problems(name string) (list []problem) {
	kind := 0
	if s.big {
		kind = 1
	}
	const forever = "1000000"
	for i, n := range extents[name][kind] {
		p := problem{name: []string{"small", "medium", "large"}[i], work: 1}
		switch name {
		case "matmul":
			p.more = []string{"-size", fmt.Sprintf("%dx%dx%d", n, n, n), "-repeat", forever}
		case "nbody":
			p.more = []string{"-plummer", fmt.Sprint(n), "-steps", forever}
		case "smithwaterman": // its length is its size
			p.work = float64(n)
		case "transpose":
			p.more = []string{"-size", fmt.Sprintf("%dx%d", n, n), "-rounds", forever}
		}
		list = append(list, p)
	}
	return list
}

// moved moves a program to and fro, and ends it.
func (s *suite) moved(ctx context.Context, name string, size problem) ([]gpustate.Migration, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	r, err := s.launch(ctx, name, size.work, s.at(s.a, s.a.unix), 0, size.more...)
	if err != nil {
		return nil, err
	}
	ended := make(chan error, 1)
	go func() {
		_, err := r.wait()
		ended <- err
	}()
	moves, err := s.ping(ctx, ended, 2*s.Runs)
	select {
	case end := <-ended:
		err = errors.Join(err, end)
	default:
		cancel() // it has moved often enough
		<-ended
	}
	return moves, errors.Join(err, s.empty(s.a), s.empty(s.b))
}

// ping moves the only program of the servers between them, once it computes, until
// it ends or has moved so often.
func (s *suite) ping(ctx context.Context, ended chan error, most int) (list []gpustate.Migration, err error) {
	from, to := s.a, s.b
	for len(list) < most {
		busy, err := s.await(ctx, from, ended)
		if err != nil || !busy {
			return list, err
		}
		m, moved, err := s.move(ctx, from, to)
		if err != nil || !moved {
			return list, err
		}
		list = append(list, m)
		from, to = to, from
	}
	return list, nil
}

// await waits until the first program of a server computes: it has memory, and
// commands beyond those that brought its input. It returns false when the program
// has ended.
func (s *suite) await(ctx context.Context, v *server, ended chan error) (bool, error) {
	admin, err := gpud.DialAdmin(ctx, v.unix, v.key)
	if err != nil {
		return false, err
	}
	defer admin.Close()
	const commands = 20
	for {
		st, err := admin.Status(ctx)
		if err != nil {
			return false, err
		}
		if len(st.Clients) > 0 && st.Clients[0].UsedBytes > 0 && st.Clients[0].Commands > commands {
			return true, nil
		}
		select {
		case err := <-ended:
			ended <- err
			return false, nil
		case <-ctx.Done():
			return false, ctx.Err()
		case <-time.After(2 * time.Millisecond):
		}
	}
}

// empty waits until a server has no programs.
func (s *suite) empty(v *server) error {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	admin, err := gpud.DialAdmin(ctx, v.unix, v.key)
	if err != nil {
		return err
	}
	defer admin.Close()
	for {
		st, err := admin.Status(ctx)
		if err != nil || len(st.Clients) == 0 {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s: a program that was ended is still there", v.unix)
		case <-time.After(2 * time.Millisecond):
		}
	}
}

// move moves the first program of a server; false when there is none any more.
func (s *suite) move(ctx context.Context, from, to *server) (m gpustate.Migration, moved bool, err error) {
	admin, err := gpud.DialAdmin(ctx, from.unix, from.key)
	if err != nil {
		return m, false, err
	}
	defer admin.Close()
	st, err := admin.Status(ctx)
	if err != nil || len(st.Clients) == 0 {
		return m, false, err
	}
	got, err := admin.Move(ctx, st.Clients[0].ID, s.at(to, to.unix))
	if err != nil && (strings.Contains(err.Error(), "went away") || strings.Contains(err.Error(), gpustate.ErrClosed.Error())) {
		return m, false, nil // it has ended
	}
	if err != nil {
		return m, false, err
	}
	return m, true, json.Unmarshal(got.Steps, &m)
}

// steps enters the times of migrations.
func (s *suite) steps(what string, list []gpustate.Migration) {
	if len(list) == 0 {
		s.Skip("migration", what, errors.New("the program ended before it was moved"))
		return
	}
	for _, part := range []struct {
		name string
		of   func(gpustate.Migration) time.Duration
	}{
		{"choose", func(m gpustate.Migration) time.Duration { return m.Choose }},
		{"drain", func(m gpustate.Migration) time.Duration { return m.Drain }},
		{"create", func(m gpustate.Migration) time.Duration { return m.Create }},
		{"stream", func(m gpustate.Migration) time.Duration { return m.Stream }},
		{"build", func(m gpustate.Migration) time.Duration { return m.Build }},
		{"remap", func(m gpustate.Migration) time.Duration { return m.Remap }},
		{"release", func(m gpustate.Migration) time.Duration { return m.Release }},
		{"total", func(m gpustate.Migration) time.Duration { return m.Total }},
	} {
		var v bench.Samples
		for _, m := range list {
			v = append(v, part.of(m).Seconds()*1e3)
		}
		s.Add(bench.Row{Case: "migration", Metric: fmt.Sprintf("%s (%.1f MB): %s", what, float64(list[0].Bytes)/1e6, part.name), Unit: "ms"}.Of(v, nil, nil))
	}
}

// state moves a state of one buffer from server to server and through the program.
func (s *suite) state(ctx context.Context, n int) (err error) {
	d, err := way{"", s.at(s.a, s.a.unix)}.open()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	b, err := d.Buffer("state", n)
	if errors.Is(err, gpustate.ErrLimit) || errors.Is(err, gpustate.ErrOutOfMemory) {
		s.Skip("migration", "state of "+sizeText(n), err)
		return nil
	}
	if err != nil {
		return err
	}
	q, err := d.Queue("q")
	if err != nil {
		return err
	}
	piece := bytes.Repeat([]byte{1, 2, 3, 4}, 4<<20)
	for off := 0; off < n; off += len(piece) {
		if err := q.Write(b, off, piece[:min(len(piece), n-off)]); err != nil {
			return err
		}
	}
	moves := 2 * s.Runs
	if n >= 1<<30 {
		moves = 2
	}
	var rate bench.Samples
	for i := range moves {
		to := s.b
		if i%2 == 1 {
			to = s.a
		}
		sel, err := gpustate.ParseSelect(s.at(to, to.unix))
		if err != nil {
			return err
		}
		m, err := d.Migrate(ctx, sel)
		if err != nil {
			return err
		}
		rate = append(rate, float64(n)/m.Stream.Seconds()/1e9)
	}
	s.Add(bench.Row{Case: "migration", Metric: "stream server to server, " + sizeText(n), Unit: "GB/s"}.Of(rate, nil, nil))
	return nil
}

// published are the speed-ups of VOCL (Xiao et al., CCGrid 2012, Figure 10).
var published = map[string]float64{"matmul": 1.7, "nbody": 1.9, "smithwaterman": 1.7, "transpose": 1.4}

// balance runs two instances on one device, alone and with a balancer that may
// move one of them to the other device.
func (s *suite) balance(ctx context.Context) error {
	if s.big && s.devices < 2 {
		s.Skip("balance", "two instances", errors.New("there is one device only"))
		return nil
	}
	if !s.big {
		if err := s.halves(ctx); err != nil {
			return err
		}
	}
	for _, name := range s.apps("balance") {
		if s.Late("balance", name) {
			continue
		}
		load, err := s.load(ctx, name, max(2*s.o.Seconds, 2))
		if err != nil {
			return err
		}
		var alone, balanced bench.Samples
		for range max(s.Runs/2, 1) {
			for _, with := range []bool{false, true} {
				t, moved, err := s.pair(ctx, name, load, with)
				if err != nil {
					return err
				}
				if with && !moved {
					s.Step("%s: the balancer moved nothing", name)
				}
				if with {
					balanced = append(balanced, t)
				} else {
					alone = append(alone, t)
				}
			}
		}
		s.Add(bench.Row{Case: "balance", Metric: fmt.Sprintf("%s, two instances: speed-up (VOCL: %.1f)", name, published[name]), Unit: "1/s"}.
			Of(balanced.Rates(1), alone.Rates(1), nil))
	}
	return nil
}

// halves starts the servers anew with one core each, so that they are two devices
// of which one does not slow the other down.
func (s *suite) halves(ctx context.Context) (err error) {
	if err := errors.Join(s.a.stop(), s.b.stop()); err != nil {
		return err
	}
	one := []string{"POCL_MAX_PTHREAD_COUNT=1", "POCL_CPU_MAX_CU_COUNT=1", "LP_NUM_THREADS=1"}
	if s.a, err = s.start(ctx, "a", one); err != nil {
		return err
	}
	s.b, err = s.start(ctx, "b", one)
	return err
}

// pair runs two instances on the first device and returns the time that the steps
// of the slower one take.
func (s *suite) pair(ctx context.Context, name string, load float64, with bool) (t float64, moved bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var balancing sync.WaitGroup
	defer balancing.Wait()
	var runs []*run
	for n := range 2 {
		r, err := s.launch(ctx, name, load, s.at(s.a, s.a.unix), n)
		if err != nil {
			return 0, false, err
		}
		runs = append(runs, r)
	}
	over := make(chan struct{})
	if with {
		b := &gpud.Balancer{Servers: []string{s.a.unix, s.b.unix}, KeyFile: s.a.key,
			Policy: &gpud.Window{N: 10}, Pause: 5 * time.Millisecond}
		balancing.Go(func() {
			for {
				select {
				case <-over:
					return
				case <-time.After(20 * time.Millisecond):
				}
				orders, results, _ := b.Once(ctx)
				for i := range orders {
					moved = moved || results[i] == nil
					if results[i] != nil {
						s.Step("%s: not moved: %v", name, results[i])
					}
				}
			}
		})
	}
	for _, r := range runs {
		steps, werr := r.wait()
		err, t = errors.Join(err, werr), max(t, steps)
	}
	close(over)
	balancing.Wait()
	return t, moved, err
}

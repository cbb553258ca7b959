package remote

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/holdfast-hpc/holdfast/bench"
	"github.com/holdfast-hpc/holdfast/gpustate"
	"github.com/holdfast-hpc/holdfast/gpustate/gpud"
	"github.com/holdfast-hpc/holdfast/internal/sleep"
)

// migration moves running applications of three sizes back and forth and reports each step, and
// moves states of several sizes.
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

// extents are the sizes of small, medium and large problems, on a CPU and on a big GPU: of the
// matrices, the number of bodies, and for smithwaterman the work.
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

// moved moves a program back and forth between the servers, then ends it.
func (s *suite) moved(ctx context.Context, name string, size problem) ([]gpustate.Migration, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	l, err := s.launch(name, size.work, s.at(s.a, s.a.unix), 0, size.more...)
	if err != nil {
		return nil, err
	}
	l.Limit = time.Hour // it computes until it has been moved often enough
	ended := make(chan error, 1)
	go func() {
		_, _, err := l.Run(ctx)
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

// ping moves the only program of the servers back and forth, once it computes, until it ends or has
// moved this many times.
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
	admin, err := gpud.DialAdmin(ctx, v.unix, gpud.MoveKeyFile(v.key))
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
		default:
		}
		if err := sleep.For(ctx, 2*time.Millisecond); err != nil {
			return false, err
		}
	}
}

// empty waits until a server has no programs.
func (s *suite) empty(v *server) error {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	admin, err := gpud.DialAdmin(ctx, v.unix, gpud.MoveKeyFile(v.key))
	if err != nil {
		return err
	}
	defer admin.Close()
	for {
		st, err := admin.Status(ctx)
		if err != nil || len(st.Clients) == 0 {
			return err
		}
		if sleep.For(ctx, 2*time.Millisecond) != nil {
			return fmt.Errorf("%s: the server still lists a program that was ended", v.unix)
		}
	}
}

// move moves the first program of a server; false when it has none.
func (s *suite) move(ctx context.Context, from, to *server) (m gpustate.Migration, moved bool, err error) {
	admin, err := gpud.DialAdmin(ctx, from.unix, gpud.MoveKeyFile(from.key))
	if err != nil {
		return m, false, err
	}
	defer admin.Close()
	st, err := admin.Status(ctx)
	if err != nil || len(st.Clients) == 0 {
		return m, false, err
	}
	got, err := admin.Move(ctx, st.Clients[0].ID, s.at(to, to.unix))
	if err != nil && (strings.Contains(err.Error(), "disconnected") ||
		strings.Contains(err.Error(), gpustate.ErrClosed.Error())) {
		return m, false, nil // it has ended
	}
	if err != nil {
		return m, false, err
	}
	return m, true, json.Unmarshal(got.Steps, &m)
}

// steps adds the times of migrations.
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
		s.Add(bench.Row{Case: "migration", Metric: fmt.Sprintf("%s (%.1f MB): %s", what, float64(list[0].Bytes)/1e6,
			part.name), Unit: "ms"}.Of(v, nil, nil))
	}
}

// state moves a state of one buffer between the servers.
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
	s.Add(bench.Row{Case: "migration", Metric: "stream, " + sizeText(n), Unit: "GB/s"}.Of(rate, nil,
		nil))
	return nil
}

package jobtest_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-hpc/holdfast/coordinated"
	"github.com/holdfast-hpc/holdfast/coordinated/events"
	"github.com/holdfast-hpc/holdfast/coordinated/internal/agent"
	"github.com/holdfast-hpc/holdfast/coordinated/internal/connect"
	"github.com/holdfast-hpc/holdfast/coordinated/jobtest"
	"github.com/holdfast-hpc/holdfast/mpiwrap"
	"github.com/holdfast-hpc/holdfast/mpiwrap/mpitest"
)

// TestEventLog: each rank logs what happened in a run with a checkpoint, and in
// the run that continues from it.
func TestEventLog(t *testing.T) {
	const ranks = 3
	opt := jobtest.Options(t)
	first := ring{Steps: 12, Asker: 1, AskAt: 5, Stop: true}
	if err := mpitest.NewWorld(ranks, mpitest.Options{Seed: 4}).Run(first.Run(opt)); err != nil &&
		!errors.Is(err, coordinated.ErrStop) {
		t.Fatal(err)
	}
	second := ring{Steps: 12, Asker: -1}
	if err := mpitest.NewWorld(ranks, mpitest.Options{Seed: 5}).Run(second.Run(opt)); err != nil {
		t.Fatal(err)
	}
	logs, problems, err := events.ReadDir(t.Context(), opt.Global, 0)
	if err != nil || len(problems) > 0 || len(logs) != 2*ranks {
		t.Fatalf("got %d logs, problems %v, %v, want %d logs", len(logs), problems, err, 2*ranks)
	}
	for _, l := range logs {
		want := []string{events.Open, events.Sync, events.Restore, events.Arm, events.Park, events.Drain,
			events.Capture, events.Resume,
			events.Write, events.Vote, events.Commit, events.Stop, events.Finish, events.Close}
		if l.Header.Run == 2 {
			want = []string{events.Open, events.Sync, events.Restore, events.Finish, events.Close}
		}
		checkLog(t, l, want)
		asked, flushed := count(l, events.Request), count(l, events.Flush)
		if want := map[bool]int{true: 1}[l.Header.Run == 1 && l.Rank == 1]; asked != want {
			t.Errorf("run %d, rank %d: %d requests, want %d", l.Header.Run, l.Rank, asked, want)
		}
		if want := map[bool]int{true: 1}[l.Header.Run == 1]; flushed != want {
			t.Errorf("run %d, rank %d: %d flushes, want %d: each rank writes its part of the node's pack", l.Header.Run,
				l.Rank, flushed, want)
		}
	}
}

// TestEventLogOfNodes: on a shared file system the number of log files is that of the nodes, and
// each rank's events are there.
func TestEventLogOfNodes(t *testing.T) {
	const ranks, nodes = 6, 2
	opt := jobtest.Options(t)
	opt.Local = ""
	for run := range 2 {
		err := mpitest.NewWorld(ranks, mpitest.Options{Seed: 4}).Run(func(world *mpiwrap.Comm) error {
			ctx := connect.WithSeam(t.Context(), connect.Seam{Host: fmt.Sprint("n", world.Rank()%nodes)})
			ck, step, err := jobtest.OpenStep(ctx, world, opt)
			if err != nil {
				return err
			}
			if world.Rank() == 5 {
				err = ck.Request(ctx)
			}
			for err == nil && len(ck.Stats().Epochs) == 0 {
				*step++
				if err = world.Barrier(); err == nil {
					err = ck.Point(ctx)
				}
			}
			return errors.Join(err, ck.Close())
		})
		if err != nil {
			t.Fatal(err)
		}
		files, err := os.ReadDir(filepath.Join(opt.Global, events.DirName, fmt.Sprintf("run-%06d", run+1)))
		if err != nil || len(files) != nodes {
			t.Errorf("run %d: got %d files, %v, want %d", run+1, len(files), err, nodes)
		}
	}
	logs, problems, err := events.ReadDir(t.Context(), opt.Global, 0)
	if err != nil || len(problems) > 0 || len(logs) != 2*ranks {
		t.Fatalf("got %d logs, problems %v, %v, want %d logs", len(logs), problems, err, 2*ranks)
	}
	for i, l := range logs {
		if l.Rank != i%ranks || l.Header.Node != fmt.Sprint("n", l.Rank%nodes) {
			t.Errorf("log %d is of rank %d on %s", i, l.Rank, l.Header.Node)
		}
		if l.Bad != 0 || l.Torn || l.Lost != 0 || l.Events[len(l.Events)-1].Name != events.Close {
			t.Errorf("run %d, rank %d: the log is not whole", l.Header.Run, l.Rank)
		}
		for _, name := range []string{events.Open, events.Sync, events.Restore, events.Park, events.Capture,
			events.Resume, events.Commit, events.Finish} {
			if count(l, name) == 0 {
				t.Errorf("run %d, rank %d: no %s", l.Header.Run, l.Rank, name)
			}
		}
	}
}

// checkLog wants certain events, and times that make sense.
func checkLog(t *testing.T, l events.RankLog, want []string) {
	t.Helper()
	if l.Bad != 0 || l.Torn || l.Lost != 0 || l.Events[len(l.Events)-1].Name != events.Close {
		t.Errorf("run %d, rank %d: the log is not whole", l.Header.Run, l.Rank)
	}
	for _, name := range want {
		if count(l, name) == 0 {
			t.Errorf("run %d, rank %d: no event %q", l.Header.Run, l.Rank, name)
		}
	}
	for _, e := range l.Events {
		if e.Mono < e.Dur || e.Wall < 1e18 || e.Text != "" {
			t.Errorf("run %d, rank %d: %+v", l.Header.Run, l.Rank, e)
		}
		switch e.Name {
		case events.Capture, events.Write, events.Flush:
			if !e.Begin && (e.Bytes == 0 || e.Epoch != 1) {
				t.Errorf("run %d, rank %d: no bytes or epoch in %+v", l.Header.Run, l.Rank, e)
			}
		case events.Restore:
			if want := uint64(l.Header.Run - 1); !e.Begin && e.Epoch != want {
				t.Errorf("run %d, rank %d: restored epoch %d, want %d", l.Header.Run, l.Rank, e.Epoch, want)
			}
		}
	}
}

// count counts ends and instants.
func count(l events.RankLog, name string) int {
	n := 0
	for _, e := range l.Events {
		if e.Name == name && !e.Begin {
			n++
		}
	}
	return n
}

// TestEventsOption: events are logged beside the checkpoints, or not at all. A job runs without a log that cannot be
// written.
func TestEventsOption(t *testing.T) {
	for set, want := range map[string]int{"off": 0, "on": 2, "": 0} {
		opt := jobtest.Options(t)
		opt.Events = set
		if dir := filepath.Join(opt.Global, events.DirName); set == "" {
			if err := os.WriteFile(dir, nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		p := ring{Steps: 2, Asker: -1}
		if err := mpitest.NewWorld(2, mpitest.Options{Seed: 1}).Run(p.Run(opt)); err != nil {
			t.Fatalf("events %q: %v", set, err)
		}
		logs, _, err := events.ReadDir(t.Context(), opt.Global, 0)
		if len(logs) != want || err != nil && want > 0 {
			t.Errorf("events %q: got %d logs, %v, want %d", set, len(logs), err, want)
		}
	}
}

// TestReleasesBounded: however often a rank is let go from Point to Point, its log
// says so a few times only, and counts the rest.
func TestReleasesBounded(t *testing.T) {
	opt := jobtest.Options(t)
	const steps = 300
	armed := make(chan struct{})
	phase := func(rank int, name string) {
		if rank == 1 && name == "armed" {
			close(armed)
		}
	}
	err := mpitest.NewWorld(2, mpitest.Options{Seed: 2}).Run(func(world *mpiwrap.Comm) error {
		ctx := connect.WithSeam(context.Background(), connect.Seam{Phase: phase})
		ck, err := coordinated.Open(ctx, world, opt)
		if err != nil {
			return err
		}
		if _, err := ck.Restore(ctx); err != nil {
			return err
		}
		if world.Rank() == 0 { // needs all that rank 1 sends, and has no Point before
			err = ck.Request(ctx)
			<-armed
			for i := 0; i < steps && err == nil; i++ {
				_, err = mpiwrap.Recv(world, []float64{0}, 1, i)
			}
			err = errors.Join(err, ck.Point(ctx))
		} else {
			for i := 0; i < steps && err == nil; i++ {
				if err = ck.Point(ctx); err == nil {
					err = mpiwrap.Ssend(world, []float64{1}, 0, i)
				}
			}
		}
		return errors.Join(err, ck.Close())
	})
	if err != nil {
		t.Fatal(err)
	}
	logs, _, err := events.ReadDir(t.Context(), opt.Global, 0)
	if err != nil || len(logs) != 2 {
		t.Fatalf("got %d logs, %v", len(logs), err)
	}
	told := 0
	for _, e := range logs[1].Events {
		told += e.Releases
	}
	if n := count(logs[1], events.Release); n != agent.MostReleases || told < 2*agent.MostReleases {
		t.Errorf("got %d releases logged and %d counted, want %d and many", n, told, agent.MostReleases)
	}
}

// TestMetrics: the first rank of a node writes what its checkpoints cost, while
// the job runs.
func TestMetrics(t *testing.T) {
	opt := jobtest.Options(t)
	opt.MetricsDir, opt.MetricsListen = t.TempDir(), "127.0.0.1:0"
	err := mpitest.NewWorld(3, mpitest.Options{Seed: 7}).Run(func(world *mpiwrap.Comm) error {
		var parts connect.Inside
		ctx := connect.WithSeam(context.Background(), connect.Seam{Opened: func(p connect.Inside) { parts = p }})
		ck, _, err := jobtest.OpenStep(ctx, world, opt)
		if err != nil {
			return err
		}
		if world.Rank() == 1 {
			err = ck.RequestStop(ctx)
		}
		for err == nil {
			if err = world.Barrier(); err == nil {
				err = ck.Point(ctx)
			}
		}
		if errors.Is(err, coordinated.ErrStop) {
			err = nil
		}
		if err == nil && world.Rank() == 0 {
			err = watchMetrics(opt.MetricsDir)
		}
		if err == nil && parts.Metrics != (world.Rank() == 0) {
			err = fmt.Errorf("rank %d: metrics %v", world.Rank(), parts.Metrics)
		}
		return errors.Join(err, ck.Close())
	})
	if err != nil {
		t.Fatal(err)
	}
	if left, err := os.ReadDir(opt.MetricsDir); err != nil || len(left) > 0 {
		t.Errorf("after the job: %v, %v, want no file", left, err)
	}
}

// watchMetrics reads the file until it has the checkpoint.
func watchMetrics(dir string) error {
	names, err := filepath.Glob(filepath.Join(dir, "*.prom"))
	if err != nil || len(names) != 1 {
		return fmt.Errorf("files %v, %v, want one", names, err)
	}
	var b []byte
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(time.Minute); time.Now().Before(end); <-tick.C {
		if b, err = os.ReadFile(names[0]); err != nil {
			return err
		}
		text := string(b)
		if strings.Contains(text, `level="global"`) && strings.Contains(text, "holdfast_epochs_captured_total{") &&
			strings.Contains(text, "holdfast_flush_backlog_epochs") &&
			strings.Contains(text, `holdfast_step_seconds_total{job_name="test"`) {
			return nil
		}
	}
	return fmt.Errorf("the file never showed the checkpoint:\n%s", b)
}

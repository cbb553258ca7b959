package e2e

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	running "github.com/holdfast-hpc/holdfast/internal/job"
	"github.com/holdfast-hpc/holdfast/internal/report"
)

// TestStatusMetricsReport looks at a job in the three ways there are: while it
// runs, through its metrics, and after it was killed and has gone on.
func TestStatusMetricsReport(t *testing.T) {
	forEachMPI(t, func(t *testing.T, mpi int) {
		const ranks = 3
		d, metrics := newDirs(t), t.TempDir()
		args := []string{"-shape", "stencil", "-steps", "600", "-pace", "300us", "-result", d.result}
		env := d.env("HOLDFAST_METRICS=" + metrics)
		j := &job{mpi: mpi, ranks: ranks, args: append(args, "-hold", d.result+".go"), env: env}
		j.start(t)
		if !j.ready(t) {
			t.Fatalf("the job ended before it was ready:\n%s", j.output())
		}
		j.signal(1, syscall.SIGUSR1)
		if !j.until(t, func() bool { return len(j.committed("global")) > 0 }) {
			t.Fatalf("no checkpoint:\n%s", j.output())
		}
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		defer cancel()
		c, err := running.DialJob(ctx, d.global)
		if err != nil {
			t.Fatal(err)
		}
		st, err := c.Status(ctx)
		if err != nil || len(st.States) != ranks {
			t.Fatalf("status: got %+v, %v", st, err)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		for _, s := range st.States {
			if s.State != "running" && s.State != "blocked" && s.State != "polling" || s.Last != 1 || s.Level == "" ||
				s.Points == 0 {
				t.Errorf("status of rank %d: got %+v", s.Rank, s)
			}
		}
		showsEpoch := func() bool {
			names, err := filepath.Glob(filepath.Join(metrics, "*.prom"))
			if err != nil || len(names) != 1 {
				return false
			}
			b, err := os.ReadFile(names[0])
			return err == nil &&
				strings.Contains(string(b), `holdfast_epochs_committed_total{job_name="e2e",level="global"`)
		}
		if !j.until(t, showsEpoch) {
			t.Errorf("the metrics never showed the checkpoint:\n%s", j.output())
		}
		j.signal(2, syscall.SIGKILL)
		j.wait()
		j = &job{mpi: mpi, ranks: ranks, args: args, env: env}
		j.start(t)
		if code := j.wait(); code != 0 {
			t.Fatalf("restart: exit %d\n%s", code, j.output())
		}
		checkReport(t, d.global)
	})
}

// checkReport wants the account of a start that was killed after its first
// checkpoint, and one that continued from it to the end.
func checkReport(t *testing.T, dir string) {
	t.Helper()
	r, err := report.Load(time.Now().Add(time.Hour), 0, dir)
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Runs) != 2 || r.Runs[0].Ended != "killed" || r.Runs[1].Ended != "closed" || r.Runs[1].Restored != 1 ||
		r.Runs[0].Lost <= 0 || r.Runs[1].Lost != 0 {
		t.Errorf("starts: got %+v", r.Runs)
	}
	if len(r.Epochs) == 0 || r.Epochs[0].ByRank != 1 || !strings.HasPrefix(r.Epochs[0].By, "signal") ||
		len(r.Epochs[0].Durable) != 2 || r.Epochs[0].Blocked.Ranks != r.Size {
		t.Errorf("epochs: got %+v", r.Epochs)
	}
	tot := r.Totals
	sum := tot.Computing + tot.Lost + tot.Noticing + tot.Stopped + tot.Starting + tot.Ending + tot.Dead
	if sum < 0.99*tot.Wall || sum > 1.01*tot.Wall || tot.Dead <= 0 {
		t.Errorf("totals: got %+v", tot)
	}
	for _, n := range r.Notes {
		if strings.Contains(n, "damaged") || strings.Contains(n, "not logged") {
			t.Error(n)
		}
	}
}

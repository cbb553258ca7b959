package outside

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-hpc/holdfast/internal/config"
	"github.com/holdfast-hpc/holdfast/internal/job"
)

// TestReports plays a run from its first report to its last: what the supervisor asks is
// carried out, and the last report tells what has become of the run.
func TestReports(t *testing.T) {
	for _, c := range []struct {
		name string
		end  func(*Reporter)
		want func(job.Report) bool
	}{
		{"closed", func(r *Reporter) { r.ClosedWell(); r.End(nil) },
			func(rep job.Report) bool { return rep.Ended && rep.Lost == nil }},
		{"a rank is lost", func(r *Reporter) { r.End(&job.LostStatus{Rank: 3}); r.ClosedWell() },
			func(rep job.Report) bool { return !rep.Ended && rep.Lost != nil && rep.Lost.Rank == 3 }},
		{"nothing to restore", func(r *Reporter) {
			r.Unrestorable(Unrestorable{Why: "gone", Nodes: []string{"n1"}, Missing: true})
			r.End(nil)
		}, func(rep job.Report) bool {
			return rep.Unrestorable == "gone" && rep.Missing && len(rep.MissingNodes) == 1
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, err := job.Supervise("127.0.0.1")
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			asked, last := make(chan bool, 2), make(chan job.Report, 1)
			go func() {
				defer close(last)
				w, err := s.Accept(t.Context())
				if err != nil {
					return
				}
				defer w.Close()
				rep, err := w.Next(time.Minute)
				if err == nil && (rep.Job != "j" || len(rep.Nodes) != 2) {
					t.Errorf("the first report: got %+v", rep)
				}
				if err == nil {
					err = errors.Join(w.Request(false, 0), w.Request(true, time.Hour))
				}
				for told := false; err == nil; {
					var next job.Report
					if next, err = w.Next(time.Minute); err != nil {
						break
					}
					if rep = next; rep.Terminated && !told {
						told, err = true, w.Tell(time.Hour)
					}
				}
				last <- rep
			}()
			var background sync.WaitGroup
			ends := make(chan time.Duration, 1)
			r := StartReporter(t.Context(), ReporterOptions{
				Supervisor: s.Var(false, false)[len(config.SupervisorVar)+1:],
				First:      &job.Report{Job: "j", Nodes: []string{"n0", "n1"}}, Log: slog.New(slog.DiscardHandler),
				Go: background.Go, Fill: func(rep *job.Report) { rep.Points = 1 },
				Changed: func() <-chan struct{} { return nil }, Ends: func(d time.Duration) { ends <- d },
				Request: func(stop bool) { asked <- stop }})
			if r == nil {
				t.Fatal("no supervisor")
			}
			if a, b, d := <-asked, <-asked, <-ends; a || !b || d != time.Hour {
				t.Errorf("asked for final ones %t, %t, with %v left", a, b, d)
			}
			if end := r.KillTime(t.Context(), time.Hour); !end.IsZero() {
				t.Errorf("before TERM: got %v", end)
			}
			r.Terminated()
			if left := time.Until(r.KillTime(t.Context(), time.Minute)); left < 50*time.Minute || left > time.Hour {
				t.Errorf("after TERM %v are left, want an hour", left)
			}
			c.end(r)
			if rep := <-last; !c.want(rep) {
				t.Errorf("the last report: got %+v", rep)
			}
			background.Wait()
		})
	}
}

// TestFailed: the supervisor hears why a run did not begin.
func TestFailed(t *testing.T) {
	s, err := job.Supervise("127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	got := make(chan string, 1)
	go func() {
		defer close(got)
		w, err := s.Accept(t.Context())
		if err != nil {
			return
		}
		defer w.Close()
		if rep, err := w.Next(time.Minute); err == nil {
			got <- rep.Failed
		}
	}()
	ReportFailed(t.Context(), s.Var(false, false)[len(config.SupervisorVar)+1:], job.Report{Failed: "no directory"})
	if why := <-got; why != "no directory" {
		t.Errorf("got %q", why)
	}
}

// TestNobody: without a supervisor, or with one that cannot be reached, a job runs as well.
func TestNobody(t *testing.T) {
	var r *Reporter
	r.Terminated()
	r.ClosedWell()
	r.Unrestorable(Unrestorable{Why: "gone"})
	r.End(nil)
	if end := r.KillTime(t.Context(), time.Hour); !end.IsZero() {
		t.Errorf("got %v, want nobody to know", end)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	ReportFailed(ctx, "nobody", job.Report{})
	if r := StartReporter(ctx, ReporterOptions{Supervisor: "nobody", Log: slog.New(slog.DiscardHandler)}); r != nil {
		t.Error("it reports to nobody")
	}
}

// TestLastReportLate: a rank on a busy machine tells all the same that the program has ended well.
func TestLastReportLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ours, theirs := net.Pipe()
		var busy atomic.Bool
		r := &Reporter{conn: ours, now: make(chan chan struct{}), last: make(chan struct{}), done: make(chan struct{}),
			opt: ReporterOptions{First: &job.Report{}, Changed: func() <-chan struct{} { return nil },
				Fill: func(*job.Report) {
					if busy.Swap(false) {
						time.Sleep(2 * time.Second) // no core
					}
				}}}
		go r.run()
		last := make(chan job.Report)
		go func() {
			var rep job.Report
			for in := json.NewDecoder(theirs); ; {
				var next job.Report
				if in.Decode(&next) != nil {
					break
				}
				rep = next
			}
			last <- rep
		}()
		busy.Store(true)
		r.ClosedWell()
		r.End(nil)
		if rep := <-last; !rep.Ended {
			t.Errorf("the last report: got %+v", rep)
		}
		<-r.done
	})
}

// TestReporterEndsOnce: a rank that is lost, an abort and a Close may end the reports at one
// moment.
func TestReporterEndsOnce(t *testing.T) {
	for range 100_000 {
		r := &Reporter{last: make(chan struct{}), done: make(chan struct{})}
		close(r.done)
		start := make(chan struct{})
		var enders sync.WaitGroup
		for range 4 {
			enders.Go(func() { <-start; r.End(nil) })
		}
		close(start)
		enders.Wait()
	}
}

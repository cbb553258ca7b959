package coordinated

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-hpc/holdfast/internal/job"
	"github.com/holdfast-hpc/holdfast/storage"
)

// TestCopyTime: the time for a copy is that of the newest earlier epoch, in
// proportion to the bytes.
func TestCopyTime(t *testing.T) {
	var s statistics
	at := func(e storage.Epoch, bytes int64, local, global time.Duration) {
		s.add(EpochStats{Epoch: e, Bytes: bytes})
		s.durable(e, "local", local)
		if global > 0 {
			s.durable(e, "global", global)
		}
	}
	if d := s.copyTime(1, "local", "global"); d != 0 {
		t.Errorf("nothing measured: got %v, want 0", d)
	}
	at(1, 100, time.Second, 5*time.Second)
	at(2, 100, time.Second, 3*time.Second)
	at(3, 100, time.Second, 0)
	at(4, 200, time.Second, 0)
	if d := s.copyTime(4, "local", "global"); d != 4*time.Second {
		t.Errorf("twice the bytes of an epoch that took 2s: got %v, want 4s", d)
	}
}

// TestReportsCopied: what a checkpoint took is reported while later ones, as under
// a short interval, are still on their way to global.
func TestReportsCopied(t *testing.T) {
	c := &Checkpointer{off: true, levels: levels{use: []string{storage.LevelLocal, storage.LevelGlobal}}}
	for e := range storage.Epoch(4) {
		c.stats.add(EpochStats{Epoch: e + 1})
		c.stats.durable(e+1, storage.LevelLocal, time.Second)
	}
	c.stats.durable(1, storage.LevelGlobal, 2*time.Second)
	c.stats.durable(2, storage.LevelGlobal, 3*time.Second)
	var rep job.Report
	if c.report(&rep); rep.Newest == nil || rep.Newest.Epoch != 2 ||
		rep.Newest.DurableSeconds[storage.LevelGlobal] != 3 {
		t.Errorf("got %+v, want epoch 2 after 3 s", rep.Newest)
	}
}

// TestWaitForSkipped: Wait says that an epoch is not due at a level.
func TestWaitForSkipped(t *testing.T) {
	c := &Checkpointer{levels: levels{use: []string{"local", "global"}}, life: life{ctx: t.Context()}}
	c.opt.GlobalEvery = Every{Epochs: 4}
	c.stats.durable(1, "local", 1)
	c.stats.skipped(1, "global", 0)
	if err := c.Wait(t.Context(), "global"); !errors.Is(err, ErrNotDue) ||
		!strings.Contains(err.Error(), "every 4 epochs") {
		t.Errorf("not due: got %v", err)
	}
	c.stats.skipped(1, "global", 2)
	c.stats.durable(2, "global", 1)
	if err := c.Wait(t.Context(), "global"); err != nil {
		t.Errorf("a newer one is there: got %v", err)
	}
}

// TestNodeLossText: what the loss of a node costs, by the settings and by what has happened.
func TestNodeLossText(t *testing.T) {
	o := Options{Local: "/l", Global: "/g", Redundancy: "partner:1", GlobalEvery: Every{Epochs: 4},
		MTBF: time.Hour}
	got := o.NodeLoss()
	want := "1 node(s): up to one interval between checkpoints and one copy to partner; " +
		"any nodes: up to 4 intervals between checkpoints and one copy to global"
	if got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	o.MTBF = 0
	if got := o.NodeLoss(); !strings.Contains(got, "up to all since the last checkpoint that was asked for") {
		t.Errorf("no interval: got %s", got)
	}
	begun := time.Unix(100, 0)
	c := &Checkpointer{levels: levels{use: []string{"local", "partner", "global"}}, begun: begun}
	after := func(s int) time.Time { return begun.Add(time.Duration(s) * time.Second) }
	if l := c.nodeLoss(&Stats{}, after(5)); l.Epoch != 0 || l.Seconds != 5 {
		t.Errorf("at first: got %+v", l)
	}
	c.stats.add(EpochStats{Epoch: 7, cut: after(10)})
	c.stats.durable(7, "local", 1)
	c.stats.durable(7, "partner", 1)
	c.stats.add(EpochStats{Epoch: 8, cut: after(20)})
	c.stats.durable(8, "local", 1)
	if l := c.nodeLoss(&c.stats.s, after(25)); l.Epoch != 7 || l.Level != "partner" || l.Seconds != 15 {
		t.Errorf("8 is on one node only: got %+v", l)
	}
}

func TestStopwatch(t *testing.T) {
	start := time.Now()
	at := func(d time.Duration) time.Time { return start.Add(d) }
	l := newStopwatch(start)
	l.until(at(3), "a")
	l.until(at(2), "nothing") // before the last call
	l.until(time.Time{}, "never")
	l.until(at(7), "b")
	l.until(at(8), "a") // a second epoch was tried
	if got, want := l.String(), "a 0s, nothing 0s, never 0s, b 0s"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	for i, want := range []time.Duration{4, 0, 0, 4} {
		if got := l.parts[i].Took; got != want {
			t.Errorf("%s: got %d, want %d", l.parts[i].Name, got, want)
		}
	}
}

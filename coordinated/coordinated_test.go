package coordinated

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-hpc/holdfast/coordinated/internal/agent"
	"github.com/holdfast-hpc/holdfast/coordinated/internal/connect"
	"github.com/holdfast-hpc/holdfast/coordinated/internal/connect/connecttest"
	"github.com/holdfast-hpc/holdfast/coordinated/internal/vote"
	"github.com/holdfast-hpc/holdfast/internal/job"
	"github.com/holdfast-hpc/holdfast/storage"
	"github.com/holdfast-hpc/holdfast/test/crashfs"
)

// TestCopyTime: the time for a copy is that of the newest earlier epoch, in
// proportion to the bytes.
func TestCopyTime(t *testing.T) {
	var s statistics
	at := func(e storage.Epoch, bytes int64, local, global time.Duration) {
		s.add(EpochStats{Epoch: e, Bytes: bytes})
		s.durable(e, "local", local, 0)
		if global > 0 {
			s.durable(e, "global", global, 0)
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
		c.stats.durable(e+1, storage.LevelLocal, time.Second, 0)
	}
	c.stats.durable(1, storage.LevelGlobal, 2*time.Second, 0)
	c.stats.durable(2, storage.LevelGlobal, 3*time.Second, 0)
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
	c.stats.durable(1, "local", 1, 0)
	c.stats.skipped(1, "global", 0)
	if err := c.Wait(t.Context(), "global"); !errors.Is(err, ErrNotDue) ||
		!strings.Contains(err.Error(), "every 4 epochs") {
		t.Errorf("not due: got %v", err)
	}
	c.stats.skipped(1, "global", 2)
	c.stats.durable(2, "global", 1, 0)
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
	c := &Checkpointer{levels: levels{use: []string{"local", "partner", "global"}}, opened: begun}
	after := func(s int) time.Time { return begun.Add(time.Duration(s) * time.Second) }
	if l := c.nodeLoss(&Stats{}, after(5)); l.Epoch != 0 || l.Seconds != 5 {
		t.Errorf("at first: got %+v", l)
	}
	c.stats.add(EpochStats{Epoch: 7, cut: after(10)})
	c.stats.durable(7, "local", 1, 0)
	c.stats.durable(7, "partner", 1, 0)
	c.stats.add(EpochStats{Epoch: 8, cut: after(20)})
	c.stats.durable(8, "local", 1, 0)
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

// TestLostInRestore: where ranks are in Restore, it is not said that the newest epoch
// comes next: it may be the one that they died of.
func TestLostInRestore(t *testing.T) {
	for _, in := range []bool{false, true} {
		e := &LostError{Rank: 1, Node: "n1", Observed: agent.Aborted(ErrClosed), InRestore: in}
		if got := strings.Contains(e.Error(), "newest committed epoch"); got == in {
			t.Errorf("in Restore %v: %v", in, e)
		}
	}
}

// TestLostWithoutEpoch: a restart is promised an epoch to continue from only where there may be one.
func TestLostWithoutEpoch(t *testing.T) {
	at := &statistics{}
	at.s.Epochs = []EpochStats{{Epoch: 1, Err: ErrClosed}}
	committed := &statistics{}
	committed.s.Epochs = []EpochStats{{Epoch: 1, Durable: map[string]time.Duration{"local": 1}}, {Epoch: 2,
		Err: ErrClosed}}
	restored := &statistics{}
	restored.s.Restore.Epoch = 7
	for _, tc := range []struct {
		name  string
		stats *statistics
		want  bool
	}{
		{"every epoch failed", at, false},
		{"one committed", committed, true},
		{"restored", restored, true},
		{"another daemon's", &statistics{restoreSkipped: true}, true},
	} {
		c := &Checkpointer{topo: &connect.Topology{Nodes: []string{"n0", "n1"}}}
		c.stats.s, c.stats.restoreSkipped = tc.stats.s, tc.stats.restoreSkipped
		c.main.Restored.Store(true)
		e := c.lost(agent.Loss{Rank: 1, Observed: "it ended"})
		if got := strings.Contains(e.Error(), "continues from the newest committed epoch"); got != tc.want ||
			got == strings.Contains(e.Error(), "no epoch was committed") {
			t.Errorf("%s: %v", tc.name, e)
		}
	}
}

func TestNoCommon(t *testing.T) {
	var nc *NoCommonEpochError
	if err := noCommon([][]vote.Candidate{{{Epoch: 5}}, nil}, nil, nil); !errors.As(err, &nc) ||
		!strings.Contains(err.Error(), "rank(s) 1 find none") {
		t.Errorf("got %v", err)
	}
}

// passDown has what rank 0 found go down the tree of n ranks; ended: those whose program has gone.
func passDown(t *testing.T, n, fanout int, first *overviews, ended map[int]bool) (heard []*overviews, errs []error) {
	t.Helper()
	net, nodes := connecttest.NewNet(n), make([]string, n)
	for r := range nodes {
		nodes[r] = fmt.Sprint("node", r/2)
	}
	heard, errs = make([]*overviews, n), make([]error, n)
	var all sync.WaitGroup
	for r := range n {
		all.Go(func() {
			plane, topo, o := net.Plane(r), connect.Place(r, nodes, fanout), first
			if r > 0 {
				ctx, cancel := context.WithCancelCause(t.Context())
				defer cancel(nil)
				if ended[r] {
					cancel(errEnded)
				}
				if o, errs[r] = receiveOverviews(ctx, plane, topo); o == nil {
					o = &overviews{}
				}
			}
			heard[r] = o
			errs[r] = errors.Join(errs[r], o.send(plane, topo))
		})
	}
	all.Wait()
	for r := range n {
		_ = net.Plane(r).Close() // one of a test
	}
	return heard, errs
}

var errEnded = errors.New("the program has ended")

// TestOverviewReachesAll: every rank hears what is common and its own part, in one message or in
// many, however the tree is.
func TestOverviewReachesAll(t *testing.T) {
	const n = 11
	for _, common := range []int{0, 5, 2*overviewPiece + 1} {
		for _, fanout := range []int{1, 2, 16} {
			if common > overviewPiece && fanout != 2 {
				continue // pieces are passed on by every tree alike
			}
			first := &overviews{found: true, common: bytes.Repeat([]byte{7}, common), own: map[int][]byte{}}
			for r := 1; r < n; r++ {
				first.own[r] = []byte(strings.Repeat(fmt.Sprint(r), r%3)) // that of rank 3 is empty
			}
			heard, errs := passDown(t, n, fanout, first, nil)
			for r := 1; r < n; r++ {
				if errs[r] != nil || !heard[r].found || !bytes.Equal(heard[r].common, first.common) ||
					!bytes.Equal(heard[r].own[r], first.own[r]) {
					t.Errorf("fanout %d: rank %d has %d bytes and %q of its own (%v), want %d and %q", fanout, r,
						len(heard[r].common), heard[r].own[r], errs[r], common, first.own[r])
				}
			}
		}
	}
}

// TestOverviewOfNothing: no rank waits for ever if rank 0 could not look, or if one above
// has gone; no rank takes that for an empty directory.
func TestOverviewOfNothing(t *testing.T) {
	heard, errs := passDown(t, 7, 2, &overviews{}, nil)
	for r := range heard {
		if errs[r] != nil || heard[r].found {
			t.Errorf("rank %d: found %t, error %v, want neither", r, heard[r].found, errs[r])
		}
	}
}

// TestOverviewOfTheEnded: the ranks below one that has gone find nothing.
func TestOverviewOfTheEnded(t *testing.T) {
	first := &overviews{found: true, own: map[int][]byte{}}
	const gone = 2 // the first of its node: rank 3 is below it, and ranks 4 and 5 of the next node
	heard, errs := passDown(t, 6, 1, first, map[int]bool{gone: true})
	// It may have been told before it saw that its program is gone.
	for r := gone; r < 6; r++ {
		if told := errs[gone] == nil; heard[r].found != told || r > gone && errs[r] != nil {
			t.Errorf("rank %d: found %t, error %v; rank %d has %v", r, heard[r].found, errs[r], gone, errs[gone])
		}
	}
	if errs[gone] != nil && !errors.Is(errs[gone], errEnded) {
		t.Errorf("rank %d fails with %v, want %v", gone, errs[gone], errEnded)
	}
}

// TestOverviewTruncated refuses bytes that end too early.
func TestOverviewTruncated(t *testing.T) {
	o := &overviews{found: true, common: []byte("common"), own: map[int][]byte{1: []byte("one"), 2: []byte("two")}}
	b := o.encode([]int{1, 2})[8:]
	whole := map[int]bool{1 + 1 + 6: true, 1 + 1 + 6 + 1 + 1 + 3: true, len(b): true} // between two parts
	for n := range len(b) + 1 {
		if got, err := decodeOverviews(b[:n]); (err == nil) != whole[n] {
			t.Errorf("%d of %d bytes: %v, %v", n, len(b), got, err)
		}
	}
}

func TestPlaceLevels(t *testing.T) {
	empty, old := crashfs.New(), crashfs.New()
	for _, f := range []*crashfs.FS{empty, old} {
		f.MkdirAll("/l")
	}
	old.MkdirAll("/l/partner")
	for _, c := range []struct {
		redundancy, nodes string
		files             *crashfs.FS
		use, open, say    string
	}{
		{"parity:2+1", "a b c", empty, "local parity global", "local parity global", ""},
		{"parity:2+1", "a b c", old, "local parity global", "local parity partner global", ""},
		{"parity:2+1", "a a b", empty, "local partner global", "local parity partner global", "1 copies"},
		{"parity:4+2", "a b", empty, "local partner global", "local parity partner global", "1 copies"},
		{"parity:1+2", "a a b c", empty, "local partner global", "local parity partner global", "2 copies"},
		{"parity:2+1", "a a a", empty, "local global", "local parity global", "no epoch will be at parity"},
		{"partner:2", "a b a", empty, "local global", "local partner global", "no epoch will be at partner"},
		{"", "a", empty, "local global", "local global", ""},
	} {
		t.Run(c.redundancy+" on "+c.nodes, func(t *testing.T) {
			o := Options{Local: "/l", Global: "/g", Keep: 3, Redundancy: c.redundancy}
			levels, err := o.levelConfigs()
			if err != nil {
				t.Fatal(err)
			}
			p := placeLevels(levels, strings.Fields(c.nodes), c.files)
			var open []string
			for _, l := range p.open {
				open = append(open, l.Name)
				if l.Name == storage.LevelPartner && (l.Dir != "/l/partner" || l.Keep != 3) {
					t.Errorf("copies are kept as %+v", l)
				}
			}
			if got := strings.Join(p.use, " "); got != c.use {
				t.Errorf("got levels %s in use, want %s", got, c.use)
			}
			if got := strings.Join(open, " "); got != c.open {
				t.Errorf("got levels %s open, want %s", got, c.open)
			}
			if (p.say == "") != (c.say == "") || !strings.Contains(p.say, c.say) || (p.why == nil) != (c.say == "") {
				t.Errorf("it says %q, %v, want %q", p.say, p.why, c.say)
			}
			for _, l := range p.open {
				if err := l.Fits(strings.Fields(c.nodes)); err != nil && strings.Contains(fmt.Sprint(p.use), l.Name) {
					t.Errorf("%s is in use: %v", l.Name, err)
				}
			}
		})
	}
}

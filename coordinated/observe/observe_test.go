package observe

import (
	"strings"
	"testing"
	"time"

	"github.com/holdfast-hpc/holdfast/internal/endpoint"
)

// page is what a test has a program say.
type page struct {
	act            endpoint.Activity
	polls          uint64
	sent, received uint64
	over           bool
	asked          int
	met            map[string]uint64
}

func (p *page) Activity() endpoint.Activity      { return p.act }
func (p *page) Polling() (endpoint.Wait, uint64) { return endpoint.Wait{Comm: "world"}, p.polls }
func (p *page) Collectives() []endpoint.Collective {
	return []endpoint.Collective{{Comm: "world", Size: 3}}
}
func (p *page) Concurrent() bool                  { return false }
func (p *page) Messages() (sent, received uint64) { return p.sent, p.received }
func (p *page) Over() (finalized, elsewhere bool) { return p.over, false }
func (p *page) Refused() map[string]uint64        { return nil }
func (p *page) Ask() bool                         { p.asked++; return true }
func (p *page) Answered() (uint64, map[string]uint64, bool) {
	return uint64(2 * p.asked), p.met, p.asked > 0
}

// receives returns a call that waits for a message of a rank.
func receives(from int) endpoint.Activity {
	return endpoint.Activity{Seq: 1, Blocked: true, Op: "MPI_Recv", Comm: "world",
		Waits: []endpoint.Wait{{Comm: "world", Source: from, Tag: 7}}}
}

// world is a job of three ranks, which are looked at together.
type world struct {
	*Job
	pages []*page
	eyes  []*Eye
	now   time.Time
}

func newWorld() *world {
	w := &world{Job: New(30 * time.Second), now: time.Now()}
	for r := range 3 {
		p := &page{}
		w.pages, w.eyes = append(w.pages, p), append(w.eyes, NewEye(p, r, 3, "app", "n1", 7))
	}
	return w
}

// pass has so much time pass, and returns what is said meanwhile.
func (w *world) pass(d time.Duration) (said []string) {
	for end := w.now.Add(d); w.now.Before(end); w.now = w.now.Add(250 * time.Millisecond) {
		var ranks []Rank
		for _, e := range w.eyes {
			ranks = append(ranks, e.Look(w.now, false))
		}
		w.Take(ranks)
		if text := w.Look(w.now); text != "" {
			said = append(said, text)
		}
	}
	return said
}

// TestCircle: a circle is named once, with what each rank is in, and no more when it goes on.
func TestCircle(t *testing.T) {
	w := newWorld()
	for r, p := range w.pages {
		p.act = receives((r + 2) % 3)
	}
	said := w.pass(time.Minute)
	if len(said) != 1 || !strings.Contains(said[0], "3 rank(s) wait for each other in a circle: rank 0 in MPI_Recv on "+
		"communicator world from rank 2 tag 7 -> rank 2 in") || !strings.HasSuffix(said[0], "-> rank 0") {
		t.Errorf("got %q", said)
	}
	st := w.Status()
	if st.Deadlock != said[0] || st.Job != "app" || w.Ranks()[1].Waits != "from rank 0 tag 7" {
		t.Errorf("status: got %+v, %+v", st, w.Ranks())
	}
	if s := w.Summary(); s.Deadlock != said[0] || !strings.Contains(s.String(), "was deadlocked at its end") {
		t.Errorf("summary: got %+v", s)
	}
	for _, p := range w.pages {
		p.act = endpoint.Activity{Seq: 2}
	}
	if said := w.pass(time.Minute); len(said) != 0 || w.Status().Deadlock != "" {
		t.Errorf("when it goes on: got %q, %q", said, w.Status().Deadlock)
	}
}

// TestNoCircle: ranks that wait for one that computes, for the end of a send or for a message in flight are not
// deadlocked.
func TestNoCircle(t *testing.T) {
	for name, change := range map[string]func(w *world){
		"one computes": func(w *world) { w.pages[2].act = endpoint.Activity{Seq: 9} },
		"a send may end": func(w *world) {
			w.pages[1].act = endpoint.Activity{Seq: 1, Blocked: true, Op: "MPI_Waitany", More: true}
		},
		"in flight": func(w *world) { w.pages[1].sent = 1 },
	} {
		w := newWorld()
		for r, p := range w.pages {
			p.act = receives((r + 2) % 3)
		}
		change(w)
		if said := w.pass(20 * time.Second); len(said) > 0 {
			t.Errorf("%s: got %q", name, said)
		}
		if name == "in flight" { // for ever: another tag
			said := w.pass(time.Minute)
			if len(said) != 1 || !strings.Contains(said[0], "1 message(s) have been sent and") {
				t.Errorf("%s: got %q", name, said)
			}
		}
	}
}

// TestLeaver names the rank that has come to its end.
func TestLeaver(t *testing.T) {
	w := newWorld()
	w.pages[0].over = true
	w.pages[1].act = receives(0)
	said := w.pass(time.Minute)
	if len(said) != 1 || !strings.Contains(said[0], "wait for one that has ended: rank 1 is in MPI_Recv on "+
		"communicator world from rank 0 tag 7; rank 0 is beyond MPI_Finalize") {
		t.Errorf("got %q", said)
	}
}

// TestSummary counts what a checkpoint would have met.
func TestSummary(t *testing.T) {
	w := newWorld()
	if s := w.Summary().String(); !strings.Contains(s, "no rank was watched") {
		t.Errorf("before the first: got %q", s)
	}
	w.pages[1].met = map[string]uint64{"MPI_Ibarrier on world: the collective is pending": 1}
	w.pages[1].sent = 4
	w.pass(4500 * time.Millisecond)
	s := w.Summary()
	if s.Ranks != 3 || s.Watched != 3 || s.InFlight != 4 || s.Most != 4 || s.Moments != 15 || s.Bad != 5 ||
		s.Receives != 10 {
		t.Errorf("got %+v", s)
	}
	if got := s.String(); !strings.Contains(got, "refused at 5 of 15 moments:\n  MPI_Ibarrier on world: the "+
		"collective is pending (at 5)") {
		t.Errorf("got %q", got)
	}
}

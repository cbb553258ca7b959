package supervise

import (
	"bytes"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-hpc/holdfast/slurm"
)

// TestPeek: a node that dies before it has announced the program is found by connecting to
// it, soon; those that have announced it are left alone, and so is a program whose nodes
// nobody knows to be late.
func TestPeek(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := l.Addr().(*net.TCPAddr).Port
	if err := l.Close(); err != nil { // refuses, as a node without slurmd does
		t.Fatal(err)
	}
	for _, c := range []struct {
		name   string
		before []string
		said   []string
		want   string
	}{
		{"all are late", []string{"holdfast", "start-rank"}, nil, "node n1 runs no slurmd"},
		{"one is late", []string{"holdfast", "start-rank"}, []string{"n1"}, "node n2 runs no slurmd"},
		{"none is late", []string{"holdfast", "start-rank"}, []string{"n1", "n2"}, ""},
		{"nobody knows", nil, nil, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := &runner{cmd: &command{kind: launchSrun, before: c.before}, job: &slurm.Job{ID: "5"},
				stderr: &bytes.Buffer{}, starts: 2,
				opening: 10 * time.Second, nodes: []string{"n1", "n2"}, addrs: map[string]string{"n1": "127.0.0.1",
					"n2": "127.0.0.1"}}
			r.conf.SlurmdPort = port
			begin := time.Now()
			a := &attempt{r: r, nodes: r.nodes, startedAt: begin}
			for _, n := range c.said {
				a.procs.begun(n)
			}
			if why := a.starting(t.Context(), begin.Add(peekEvery-1)); why != "" || a.peek.done != nil {
				t.Errorf("before a peek is due: got %q", why)
			}
			why := a.starting(t.Context(), begin.Add(peekEvery))
			if why == "" && a.peek.done != nil {
				<-a.peek.done
				why = a.starting(t.Context(), begin.Add(peekEvery+1))
			}
			if c.want == "" && why != "" || !strings.HasSuffix(why, c.want) {
				t.Errorf("got %q, want %q", why, c.want)
			}
			if c.want != "" && (a.noticedAt.IsZero() || len(a.suspects) != 1) {
				t.Errorf("nobody is suspected: %v", a.suspects)
			}
		})
	}
}

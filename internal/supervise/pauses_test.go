package supervise

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-hpc/holdfast/internal/job"
	"github.com/holdfast-hpc/holdfast/internal/pause"
)

// aRank is a process as its library speaks for it.
type aRank struct {
	node string
	rank int
	turn sync.Mutex // held by who is spoken to

	mu    sync.Mutex
	state string // running, quiet, saved, paused
	kept  bool
	gpus  []string // UUIDs of those that it sees; it uses the first
	hear  func(line string)
	hook  func(r *aRank, word string) (answer string) // what it says to a word, if not what it should
	conn  net.Conn
}

// steps are the words, the states in which they are allowed and those after them, and the answers; "": none.
var steps = map[string][3]string{"prepare": {"running", "running", "prepared"},
	"quiet": {"running", "quiet", "quiet 1 1"}, "save": {"quiet", "saved", "saved"},
	"stop": {"saved", "paused", "stopped"}, "keep": {"paused", "paused", ""},
	"open": {"quiet saved", "running", "running"}, "resume": {"paused", "running", "running"},
	"forget": {"running", "running", "forgotten"}}

func (r *aRank) says(word string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.hook != nil {
		if a := r.hook(r, word); a != "" {
			return a
		}
	}
	if word == "state" {
		gpus := "-"
		if len(r.gpus) > 0 {
			gpus = r.gpus[0] + "+," + strings.Join(r.gpus[1:], ",")
		}
		return fmt.Sprintf("state %s 1048576 0 %s 0.000", r.state, gpus)
	}
	if word == "hold" {
		return "refused its GPUs do not reach each other"
	}
	s := steps[word]
	if !strings.Contains(s[0], r.state) || s[0] == "" {
		return "error not now"
	}
	r.state = s[1]
	r.kept = word == "keep" || r.kept && word != "stop"
	return s[2]
}

// serve speaks to one who asks after the other, as the library does.
func (r *aRank) serve(c net.Conn) {
	r.turn.Lock()
	defer r.turn.Unlock()
	r.mu.Lock()
	r.conn = c
	r.mu.Unlock()
	fmt.Fprintln(c, pause.Version)
	for lines := bufio.NewScanner(c); lines.Scan(); {
		word, _, _ := strings.Cut(lines.Text(), " ")
		if r.hear != nil {
			r.hear(lines.Text())
		}
		if answer := r.says(word); answer != "" {
			fmt.Fprintln(c, answer)
		}
	}
	_ = c.Close()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.state != "paused" || !r.kept {
		r.state = "running"
	}
	r.conn = nil
}

// is waits until the process is spoken to no more, and returns its state.
func (r *aRank) is() string {
	for {
		r.mu.Lock()
		free, state := r.conn == nil, r.state
		r.mu.Unlock()
		if free {
			return state
		}
		time.Sleep(time.Millisecond)
	}
}

// nodesOf are the hands of nodes with two ranks each, which never end by themselves.
type nodesOf struct {
	*pauses
	dir   string
	ranks []*aRank
	other []int // processes of OpenCL on each node
	hands map[string]*job.Caller
	wg    sync.WaitGroup
}

func newNodes(t *testing.T) *nodesOf {
	t.Helper()
	sup, err := job.Supervise("127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	n := &nodesOf{dir: t.TempDir(), hands: map[string]*job.Caller{}}
	s := &setup{opt: Options{CUDA: true}, log: &log{w: io.Discard}}
	s.prog.Global = n.dir
	r := &run{setup: s, sup: sup}
	stop := r.startPauses(t.Context(), false)
	n.pauses = r.pauses
	n.begins([]string{"n1", "n2"})
	for i := range 4 {
		n.ranks = append(n.ranks, &aRank{node: fmt.Sprint("n", i/2+1), rank: i, state: "running"})
	}
	for _, node := range []string{"n1", "n2"} {
		n.join(t, node)
	}
	t.Cleanup(func() {
		for _, c := range n.hands {
			_ = c.Close()
		}
		stop()
		_ = sup.Close()
		n.wg.Wait()
	})
	return n
}

// join has a node's hands call.
func (n *nodesOf) join(t *testing.T, node string) {
	t.Helper()
	value := n.run.supervisorValue()
	c, err := job.CallHands(t.Context(), value, node)
	if err != nil {
		t.Fatal(err)
	}
	n.hands[node] = c
	n.wg.Go(func() {
		for {
			var v pause.Visit
			if c.Await(&v) != nil {
				return
			}
			h := pause.Heard{Visit: v.Visit, Machine: pause.Machine{Free: 1 << 40, GPUs: []string{uuid(0), uuid(1)}},
				OpenCL: n.other}
			for _, r := range n.ranks {
				if r.node != node {
					continue
				}
				d, err := job.CallDoor(context.Background(), value, node, v.Visit,
					job.Process{PID: 100 + r.rank, Program: "app", Rank: r.rank})
				if err != nil {
					return
				}
				h.Doors++
				n.wg.Go(func() { r.serve(d) })
			}
			if c.Say(h) != nil {
				return
			}
		}
	})
	for joined := false; !joined; time.Sleep(time.Millisecond) {
		n.mu.Lock()
		for c := range n.pauses.hands {
			joined = joined || c.Node == node
		}
		n.mu.Unlock()
	}
}

// command asks as the verbs do.
func (n *nodesOf) command(ctx context.Context, t *testing.T, do string) (a pause.Answer, err error) {
	t.Helper()
	return n.ask(ctx, t, pause.Ask{Do: do, Wait: 5})
}

func (n *nodesOf) ask(ctx context.Context, t *testing.T, ask pause.Ask) (a pause.Answer, err error) {
	t.Helper()
	c, err := job.DialRun(ctx, n.dir)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	return a, c.Ask(ctx, ask, &a)
}

func (n *nodesOf) states() (states []string) {
	for _, r := range n.ranks {
		states = append(states, r.is())
	}
	return slices.Compact(states)
}

// TestPauseNodes: the ranks of two nodes are paused and resumed together, and a state names each.
func TestPauseNodes(t *testing.T) {
	n := newNodes(t)
	for _, c := range []struct{ do, state, wrong string }{
		{"resume", "running", "rank 0 on n1, process 100 (app) is not paused"},
		{"pause", "paused", ""},
		{"pause", "paused", "rank 0 on n1, process 100 (app) is paused already; holdfast resume has it go on"},
		{"state", "paused", ""},
		{"resume", "running", ""},
	} {
		a, err := n.command(t.Context(), t, c.do)
		if err != nil || a.Error != c.wrong || !slices.Equal(n.states(), []string{c.state}) {
			t.Errorf("%s: %v, got %q, %q, want %q, %s", c.do, err, a.Error, n.states(), c.wrong, c.state)
		}
		if c.do == "state" && (len(a.Programs) != 4 || *a.Programs[3].Rank != 3 || a.Programs[3].Node != "n2") {
			t.Errorf("got %+v", a.Programs)
		}
	}
	n.other = []int{107}
	for do, wrong := range map[string]string{"pause": "process 107 on n", "migrate": "process 107 on n", "state": ""} {
		if a, err := n.command(t.Context(), t, do); err != nil || !strings.HasPrefix(a.Error, wrong) ||
			(a.Error != "") != (wrong != "") {
			t.Errorf("%s beside a program of OpenCL: %v, got %q", do, err, a.Error)
		}
	}
	_ = n.states()                                     // until no command speaks to them
	n.ranks[2].state, n.ranks[2].kept = "paused", true // as if a command had been killed while it kept them
	if a, err := n.command(t.Context(), t, "resume"); err != nil || a.Error != "" ||
		!slices.Equal(n.states(), []string{"running"}) {
		t.Errorf("%v, %q, %q", err, a.Error, n.states())
	}
}

// TestPauseNodesFails: at each step a rank refuses, a rank dies, a node dies, or the command is killed. The ranks that
// live go on all, or are paused all, and the answer names node, rank and reason.
func TestPauseNodesFails(t *testing.T) {
	for _, step := range []string{"state", "prepare", "quiet", "save", "stop", "paused"} {
		for fault, want := range map[string]string{
			"refuses": "rank 3 on n2, process 103 (app): ",
			"dies":    "rank 3 on n2, process 103 (app) has ended, or its node has",
			"node":    "rank 3 on n2, process 103 (app) ", "killed": "",
		} {
			t.Run(step+"/"+fault, func(t *testing.T) {
				t.Parallel()
				n := newNodes(t)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				n.ranks[3].hook = func(r *aRank, word string) string {
					if word != step && !(step == "paused" && r.state == step && word == "state") { // the last vote
						return ""
					}
					r.hook = nil
					switch fault {
					case "refuses":
						return "error no room"
					case "killed":
						cancel()
						time.Sleep(20 * time.Millisecond) // the run mostly notices before it has the answer
						return ""
					case "node":
						_ = n.hands["n2"].Close()
						return "moved 1 2" // and no more
					}
					_ = r.conn.Close()
					return "gone"
				}
				a, err := n.command(ctx, t, "pause")
				if (err != nil) != (fault == "killed") || !strings.Contains(a.Error, want) {
					t.Errorf("%v, got %q, want %q", err, a.Error, want)
				}
				n.busy <- struct{}{} // the run has noticed that the command has ended
				<-n.busy
				got := n.states()
				if slices.Equal(got, []string{"paused"}) && fault == "killed" {
					return // it was over when the run noticed
				}
				if !slices.Equal(got, []string{"running"}) {
					t.Errorf("got %q, want running", got)
				}
			})
		}
	}
}

// TestPauseNodesKeepLost: a node daemon dies when all ranks have given up their GPUs, and its ranks do not learn that
// they are to keep it so. They go on, and so do the others once that is asked for, though the daemon is gone.
func TestPauseNodesKeepLost(t *testing.T) {
	n := newNodes(t)
	for _, r := range n.ranks[2:] {
		r.hook = func(r *aRank, word string) string {
			if word != "keep" {
				return ""
			}
			r.hook = nil
			_ = r.conn.Close()
			return "gone"
		}
	}
	if a, err := n.command(t.Context(), t, "pause"); err != nil || a.Error != "" ||
		!slices.Equal(n.states(), []string{"paused", "running"}) {
		t.Fatalf("%v, %q, got %q", err, a.Error, n.states())
	}
	_ = n.hands["n2"].Close()
	const want = "ranks on n2 cannot be reached: no holdfast node of this run answers there: there, holdfast resume PID"
	for n.states(); ; {
		a, err := n.command(t.Context(), t, "resume")
		if err == nil && a.Error == want && slices.Equal(n.states(), []string{"running"}) {
			return
		}
		if err != nil || a.Error != "" && !strings.Contains(a.Error, "n2") {
			t.Fatalf("%v, %q, got %q", err, a.Error, n.states())
		}
	}
}

// TestStopping: a program that is to end goes on when it is paused, and when it is about to be: a program can neither
// write a checkpoint nor act on a signal while it waits for its GPU.
func TestStopping(t *testing.T) {
	n := newNodes(t)
	n.stopping() // no program is paused
	if a, err := n.command(t.Context(), t, "pause"); err != nil || a.Error != "" {
		t.Fatal(err, a.Error)
	}
	n.stopping()
	for !slices.Equal(n.states(), []string{"running"}) {
		time.Sleep(time.Millisecond)
	}
	n.ranks[3].hook = func(r *aRank, word string) string {
		if word != "quiet" {
			return ""
		}
		n.stopping()
		return "busy it computes"
	}
	if a, err := n.command(t.Context(), t, "pause"); err != nil || !strings.Contains(a.Error, "context canceled") {
		t.Errorf("%v, got %q", err, a.Error)
	}
	if got := n.states(); !slices.Equal(got, []string{"running"}) {
		t.Errorf("got %q, want running", got)
	}
}

// TestMigrateNodes: the ranks of two nodes change their GPUs, each node's by its own numbers, or all go back.
func TestMigrateNodes(t *testing.T) {
	n := newNodes(t)
	for _, r := range n.ranks {
		r.gpus = []string{uuid(r.rank % 2), uuid(1 - r.rank%2)} // one sees them in another order
	}
	for _, c := range []struct{ to, fault, wrong string }{{"0=1,1=0", "", ""}, {"0=1,1=0", "resume", "no room"},
		{"0=9", "", "there is no GPU 9"}} {
		var said []string
		var mu sync.Mutex
		for i, r := range n.ranks {
			r.hear = func(line string) {
				mu.Lock()
				defer mu.Unlock()
				if strings.HasPrefix(line, "resume") {
					said = append(said, line)
				}
			}
			if r.hook = nil; i == 3 && c.fault != "" {
				r.hook = func(r *aRank, word string) string {
					if word != c.fault {
						return ""
					}
					r.hook = nil
					return "error no room"
				}
			}
		}
		a, err := n.ask(t.Context(), t, pause.Ask{Do: "migrate", Wait: 5, To: c.to})
		if err != nil || (a.Error != "") != (c.wrong != "") || !strings.Contains(a.Error, c.wrong) {
			t.Errorf("%+v: %v, got %q", c, err, a.Error)
		}
		if got := n.states(); !slices.Equal(got, []string{"running"}) {
			t.Errorf("%+v: got %q, want running", c, got)
		}
		slices.Sort(said)
		swap, other := uuid(0)+"="+uuid(1), uuid(1)+"="+uuid(0)
		want := []string{"resume " + swap + "," + other, "resume " + swap + "," + other, "resume " + other + "," + swap,
			"resume " + other + "," + swap}
		if c.wrong == "" && !slices.Equal(said, want) || c.fault == "" && c.wrong != "" && len(said) > 0 {
			t.Errorf("%+v: ranks have heard\n%s", c, strings.Join(said, "\n"))
		}
	}
}

// uuid returns the uuid of a node's GPU.
func uuid(n int) string { return fmt.Sprintf("%032x", n+1) }

// TestResumeNodesFails: of a paused run a rank is refused its GPU, or dies while it takes it. The others go on, the
// answer names it, and it is resumed later if it lives.
func TestResumeNodesFails(t *testing.T) {
	for fault, want := range map[string]string{"refuses": "rank 3 on n2, process 103 (app): no room",
		"dies": "rank 3 on n2, process 103 (app) has ended, or its node has"} {
		n := newNodes(t)
		if a, err := n.command(t.Context(), t, "pause"); err != nil || a.Error != "" {
			t.Fatal(err, a.Error)
		}
		_ = n.states() // until they have heard all of it
		n.ranks[3].hook = func(r *aRank, word string) string {
			if word != "resume" {
				return ""
			}
			r.hook = nil
			if fault == "dies" {
				_ = r.conn.Close()
			}
			return "error no room"
		}
		if a, err := n.command(t.Context(), t, "resume"); err != nil || a.Error != want ||
			!slices.Equal(n.states(), []string{"running", "paused"}) {
			t.Errorf("%s: %v, got %q, %q, want %q", fault, err, a.Error, n.states(), want)
		}
		if a, err := n.command(t.Context(), t, "resume"); err != nil || a.Error != "" ||
			!slices.Equal(n.states(), []string{"running"}) {
			t.Errorf("%s, again: %v, got %q, %q", fault, err, a.Error, n.states())
		}
	}
}

// TestPauseNodesMissing: a node whose daemon is gone is named before anything is held, and one that comes back serves.
func TestPauseNodesMissing(t *testing.T) {
	n := newNodes(t)
	_ = n.hands["n2"].Close()
	const want = "ranks on n2 cannot be reached: no holdfast node of this run answers there; nothing was done"
	for gone := false; !gone; {
		a, err := n.command(t.Context(), t, "pause")
		if gone = a.Error == want; err != nil || !gone && !strings.Contains(a.Error, "n2") {
			t.Fatalf("%v, got %q, want %q", err, a.Error, want)
		}
	}
	n.join(t, "n2")
	if a, err := n.command(t.Context(), t, "pause"); err != nil || a.Error != "" {
		t.Errorf("%v, %q", err, a.Error)
	}
}

// TestSuspended: the ranks give up their GPUs when a node notices that Slurm suspends the job, and take them again.
// Ranks that were paused before stay so.
func TestSuspended(t *testing.T) {
	n := newNodes(t)
	says := func(suspend bool, want string) {
		t.Helper()
		for _, c := range n.hands {
			if err := c.Say(pause.Heard{Suspend: &suspend}); err != nil {
				t.Fatal(err)
			}
		}
		end := time.Now().Add(time.Minute)
		for ; !slices.Equal(n.states(), []string{want}); time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("got %q, want %s", n.states(), want)
			}
		}
	}
	says(true, "paused")
	says(false, "running")
	if a, err := n.command(t.Context(), t, "pause"); err != nil || a.Error != "" {
		t.Fatal(err, a.Error)
	}
	says(true, "paused")
	says(false, "paused")
	n.ranks[1].hook = func(r *aRank, word string) string { // its GPU is another job's for now
		if word != "resume" {
			return ""
		}
		r.hook = nil
		return "error no room"
	}
	if a, err := n.command(t.Context(), t, "resume"); err != nil || !strings.Contains(a.Error, "rank 1 on n1") {
		t.Fatal(err, a.Error)
	}
	if a, err := n.command(t.Context(), t, "resume"); err != nil || a.Error != "" {
		t.Fatal(err, a.Error)
	}
}

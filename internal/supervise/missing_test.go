package supervise

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-hpc/holdfast/coordinated"
	"github.com/holdfast-hpc/holdfast/slurm"
	"github.com/holdfast-hpc/holdfast/storage"
)

// missing is a job whose newest start found checkpoints and could restore none; all its
// ranks have closed in order, and its launcher has ended with a code.
func missing(r *runner, code int) *attempt {
	a := &attempt{r: r, code: code, nodes: []string{"a", "c"}, opened: true, examined: make(chan struct{}),
		last: coordinated.Report{Ended: true, Unrestorable: "rank(s) 1 find none", Missing: true}}
	close(a.examined)
	return a
}

func restless(t *testing.T) (*runner, *lockedBuffer) {
	errs := &lockedBuffer{}
	return &runner{cmd: &command{}, stderr: errs, starts: 2, signals: make(chan os.Signal, 4),
		nodes: []string{"a", "b", "c"}, width: 2,
		homes: []string{"a", "b"}, used: []string{"a", "c"}, dead: map[string]string{}, deaths: map[storage.Epoch]int{},
		flags: Options{MaxRestarts: 9, WaitNodes: time.Minute}}, errs
}

// TestMissingNodeBack: a start that misses the disk of a node is not a program that ended in
// order. The node is back by then, and the next start is on it and not on its spare.
func TestMissingNodeBack(t *testing.T) {
	r, errs := restless(t)
	code, over := r.judge(t.Context(), missing(r, 1))
	nodes, err := r.choose()
	if over || err != nil || strings.Join(nodes, "") != "ab" {
		t.Errorf("got code %d, over %t, then nodes %v, %v\n%s", code, over, nodes, err, errs)
	}
}

// TestMissingNodeWaited: it is dead at first and is waited for.
func TestMissingNodeWaited(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	r, errs := restless(t)
	r.job, r.conf.SlurmdPort = &slurm.Job{ID: "5"}, l.Addr().(*net.TCPAddr).Port
	r.addrs = map[string]string{"a": "127.0.0.1", "b": "127.0.0.1", "c": "127.0.0.1"}
	r.dead["b"] = "does not answer"
	commands(t, map[string]string{
		"scontrol": `echo JobState=RUNNING Restarts=0 NodeList=a,b,c`,
		"sinfo":    `for n in a b c; do echo "$n|allocated|none"; done`,
		"srun":     `exit 0`,
	})
	code, over := r.judge(t.Context(), missing(r, 1))
	nodes, err := r.choose()
	if over || err != nil || strings.Join(nodes, "") != "ab" ||
		!strings.Contains(errs.String(), "waiting up to 1m0s for b to come back") {
		t.Errorf("got code %d, over %t, then nodes %v, %v\n%s", code, over, nodes, err, errs)
	}
}

// TestMissingForGood: what is on nobody's disk is not waited for. The job ends and says what
// is missing. With --begin-anew one of which nothing was ever at global begins anew, if it
// loses no more than that.
func TestMissingForGood(t *testing.T) {
	const gaveUp = "giving up: rank(s) 1 find none"
	for _, c := range []struct {
		name        string
		anew        time.Duration
		began, safe bool
		ago         time.Duration
		missing     bool
		over        bool
		says        string
	}{
		{"a first epoch", 0, true, false, time.Second, true, true, "--begin-anew 1h0m0s lets such a job"},
		{"it may", time.Hour, true, false, time.Second, true, false, "starting from the beginning, as --begin-anew " +
			"1h0m0s allows; at most 1s of work are lost"},
		{"hours of work", time.Hour, true, false, 3 * time.Hour, true, true, "--begin-anew 4h0m0s lets"},
		{"it had one at global", time.Hour, true, true, time.Second, true, true, gaveUp},
		{"another job's checkpoints", time.Hour, false, false, time.Second, true, true, gaveUp},
		{"the program has changed", time.Hour, true, false, time.Second, false, true, gaveUp},
	} {
		t.Run(c.name, func(t *testing.T) {
			r, errs := restless(t)
			r.homes = nil
			r.flags.BeginAnew = c.anew
			r.began, r.safe, r.begunAt = c.began, c.safe, time.Now().Add(-c.ago)
			a := missing(r, 0) // programs that end with 0 after a failed Restore are no better
			a.last.Missing = c.missing
			code, over := r.judge(t.Context(), a)
			if over != c.over || (code == exitBad) != c.over || r.fresh == c.over ||
				!strings.Contains(errs.String(), c.says) {
				t.Errorf("got code %d, over %t, fresh %t\n%s", code, over, r.fresh, errs)
			}
			if strings.Contains(errs.String(), gaveUp) != c.over {
				t.Errorf("giving up must be said when it does, and only then:\n%s", errs)
			}
		})
	}
}

// TestMemory: what a run knows of the job's checkpoints is there after a requeue, for the
// same job only.
func TestMemory(t *testing.T) {
	dir := t.TempDir()
	run := func(job string) *runner {
		r := &runner{job: &slurm.Job{ID: job}, opt: coordinated.Options{Global: dir}}
		r.recall()
		return r
	}
	r := run("5")
	r.began, r.begunAt = true, time.Now()
	r.remember()
	if r = run("5"); !r.virgin() || time.Since(r.begunAt) > time.Minute {
		t.Errorf("after a requeue: got %+v", r.mem)
	}
	if r = run("6"); r.virgin() {
		t.Errorf("another job: got %+v", r.mem)
	}
	r = run("5")
	r.kept()
	if r = run("5"); r.virgin() || !r.began {
		t.Errorf("at global: got %+v", r.mem)
	}
	if err := os.WriteFile(filepath.Join(dir, "holdfast.run.json"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if r = run("5"); r.began {
		t.Errorf("a damaged file: got %+v", r.mem)
	}
}

// TestDeathCounts: the time of an interruption counts from the first death, however many
// starts fail after it.
func TestDeathCounts(t *testing.T) {
	r, _ := restless(t)
	first := time.Now().Add(-time.Minute)
	for i, a := range []*attempt{{computing: true, diedAt: first, noticedAt: first},
		{diedAt: time.Now(), noticedAt: time.Now()}} {
		a.r, a.opened, a.examined, a.nodeDied = r, true, make(chan struct{}), true
		close(a.examined)
		if _, over := r.again(t.Context(), a); over || !r.death.at.Equal(first) {
			t.Errorf("start %d: the death counts from %v, want %v", i, r.death.at, first)
		}
	}
}

// TestProbePatient: a machine whose link is down for longer than TCP takes to try again is
// not dead.
func TestProbePatient(t *testing.T) {
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Close(fd)
	if err := errors.Join(syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}),
		syscall.Listen(fd, 0)); err != nil {
		t.Fatal(err)
	}
	at, err := syscall.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	port := at.(*syscall.SockaddrInet4).Port
	// its queue: what comes now is dropped
	full, err := net.Dial("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil {
		t.Fatal(err)
	}
	defer full.Close()
	healed := time.AfterFunc(1300*time.Millisecond, func() {
		if c, _, err := syscall.Accept(fd); err == nil {
			_ = syscall.Close(c)
		}
	})
	defer healed.Stop()
	r := &runner{job: &slurm.Job{}, addrs: map[string]string{"x": "127.0.0.1"}}
	r.conf.SlurmdPort = port
	if why := r.probe(t.Context(), "x", false, afterDeath); why != "" {
		t.Errorf("got %q", why)
	}
}

// TestOpenFailed: a node on which Open fails gives way to a spare one; where there is none, or
// it fails on all, the reason is told and not that MPI may not fit.
func TestOpenFailed(t *testing.T) {
	const why = "open checkpoint directories failed on 1 rank(s); rank 1: read-only file system"
	for _, c := range []struct {
		unfit []string
		width int
		nodes string
		over  bool
	}{{[]string{"b"}, 2, "ac", false}, {[]string{"b"}, 3, "", true}, {nil, 2, "", true}} {
		r, errs := restless(t)
		r.width, r.starts, r.used = c.width, 1, []string{"a", "b", "c"}[:c.width]
		a := &attempt{r: r, code: 1, nodes: r.used, examined: make(chan struct{})}
		close(a.examined)
		a.hear(heard{rep: coordinated.Report{Failed: why, FailedNodes: c.unfit, Nodes: r.used}})
		a.hear(heard{err: net.ErrClosed})
		code, over := r.judge(t.Context(), a)
		if over != c.over || over != (code == exitBad) || !strings.Contains(errs.String(), why) ||
			strings.Contains(errs.String(), "MPI") || strings.Contains(errs.String(), "rank 0") {
			t.Errorf("%+v: got code %d, over %t\n%s", c, code, over, errs)
		}
		if nodes, err := r.choose(); !over && (err != nil || strings.Join(nodes, "") != c.nodes) {
			t.Errorf("%+v: the next start is on %v, %v", c, nodes, err)
		}
	}
}

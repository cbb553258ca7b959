package supervise

import (
	"errors"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-hpc/holdfast/coordinated/control"
	"github.com/holdfast-hpc/holdfast/internal/supervise/decide"
	"github.com/holdfast-hpc/holdfast/slurm"
)

// bound returns a socket whose port is its own, and refuses connections until the socket listens.
func bound(t *testing.T) (fd, port int) {
	t.Helper()
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Close(fd) })
	err = syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}})
	at, nameErr := syscall.Getsockname(fd)
	if err := errors.Join(err, nameErr); err != nil {
		t.Fatal(err)
	}
	return fd, at.(*syscall.SockaddrInet4).Port
}

// TestProbe: a connection tells a machine that is up from one that is not.
func TestProbe(t *testing.T) {
	fd, port := bound(t)
	s := &setup{addrs: map[string]string{"x": "127.0.0.1"}}
	if why := s.probe(t.Context(), "x", true, limitsOf(&decide.Config{}, false)); why != "" {
		t.Errorf("a machine that answers: got %q", why)
	}
	s.cfg.Job = &slurm.Job{}
	s.conf.SlurmdPort = port
	if why := s.probe(t.Context(), "x", false, limitsOf(&decide.Config{}, false)); why != "runs no slurmd" {
		t.Errorf("a node without slurmd: got %q", why)
	}
	if err := syscall.Listen(fd, 1); err != nil {
		t.Fatal(err)
	}
	if why := s.probe(t.Context(), "x", false, limitsOf(&decide.Config{}, false)); why != "" {
		t.Errorf("a node with slurmd: got %q", why)
	}
}

// TestProbePatient: a machine whose link is down for longer than TCP takes to try again is
// not dead.
func TestProbePatient(t *testing.T) {
	fd, port := bound(t)
	if err := syscall.Listen(fd, 0); err != nil {
		t.Fatal(err)
	}
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
	s := &setup{cfg: decide.Config{Job: &slurm.Job{}}, addrs: map[string]string{"x": "127.0.0.1"}}
	s.conf.SlurmdPort = port
	lim := limitsOf(&decide.Config{PeerTimeout: control.DefaultPeerTimeout}, false)
	if why := s.probe(t.Context(), "x", false, lim); why != "" {
		t.Errorf("got %q", why)
	}
}

// TestBlameNone: where Slurm starts nothing on a node that lives either, no other is
// blamed.
func TestBlameNone(t *testing.T) {
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	hangs, fails, well := "exec sleep 100", "exit 1", "exit 0"
	blame := startsNothing + " within 1s"
	for _, c := range []struct {
		name, srun string
		nodes, why []string
		blamed     bool
	}{
		{"Slurm does not answer", hangs, []string{host, "x"}, []string{"", blame}, false},
		{"Slurm refuses", fails, []string{"x", host}, []string{startsNothing + ": no", ""}, false},
		{"this node starts a step", well, []string{host, "x"}, []string{"", blame}, true},
		{"another node does", well, []string{"x", "y"}, []string{blame, ""}, true},
		{"another node does not", fails, []string{"x", "y"}, []string{blame, ""}, false},
		{"no node is left to compare with", well, []string{"x", "y"}, []string{blame, blame}, false},
		{"it does not even answer", fails, []string{host, "x"}, []string{"", "does not answer"}, true},
	} {
		commands(t, map[string]string{"srun": c.srun})
		lim := limits{time.Minute, time.Minute} // for a command that ends
		if c.srun == hangs {
			lim.step = time.Second
		}
		s := &setup{log: &log{w: io.Discard}, cfg: decide.Config{Nodes: c.nodes}}
		faults := map[string]string{c.nodes[0]: c.why[0], c.nodes[1]: c.why[1]}
		s.blameNone(t.Context(), faults, nil, lim)
		if blamed := faults[c.nodes[0]]+faults[c.nodes[1]] != ""; blamed != c.blamed {
			t.Errorf("%s: a node is blamed: %t, want %t", c.name, blamed, c.blamed)
		}
	}
}

// TestExamine: what is wrong with a node is found out by Slurm, by a connection or by a step, and
// a node that fell silent is asked by Slurm only.
func TestExamine(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0") // the slurmd of every node but that of refuses
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	commands(t, map[string]string{
		"scontrol": `echo JobState=RUNNING Restarts=0 NodeList=well,down,away,stuck,frozen,refuses`,
		"sinfo": `for n in well left stuck frozen refuses; do echo "$n|allocated|none"; done
echo "down|down|broken"; echo "away|allocated*|none"`,
		"srun": `case "$*" in *"-w well "*) exit 0;; esac; exit 1`,
	})
	s := &setup{log: &log{w: io.Discard}, addrs: map[string]string{"refuses": "127.0.0.2"},
		cfg: decide.Config{Job: &slurm.Job{ID: "5"}, Nodes: []string{"well", "left", "down", "away", "stuck", "frozen",
			"refuses"}}}
	s.conf.SlurmdPort = l.Addr().(*net.TCPAddr).Port
	for _, n := range []string{"well", "stuck", "frozen"} {
		s.addrs[n] = "127.0.0.1"
	}
	got := s.examine(t.Context(), decide.Examine{Closely: []string{"well", "stuck", "frozen"},
		Silent: []string{"frozen"}})
	for n, want := range map[string]string{"well": "", "left": "is no longer part of the job", "down": "is down broken",
		"away": "does not answer Slurm", "stuck": startsNothing, "frozen": "has fallen silent",
		"refuses": "runs no slurmd"} {
		if why := got[n]; !strings.HasPrefix(why, want) || want == "" && why != "" {
			t.Errorf("node %s: got %q, want %q", n, why, want)
		}
	}
}

// TestLimits: a node is tried three times, for 3 s each where nothing is set; the ranks' patience
// with the network makes it more or less.
func TestLimits(t *testing.T) {
	for bear, want := range map[time.Duration]limits{
		control.DefaultPeerTimeout: {9 * time.Second, 9 * time.Second},
		1500 * time.Millisecond:    {3 * time.Second, 3 * time.Second},
		time.Minute:                {36 * time.Second, 36 * time.Second},
	} {
		if got := limitsOf(&decide.Config{PeerTimeout: bear}, false); got != want {
			t.Errorf("%v: got %v, want %v", bear, got, want)
		}
	}
	if got := limitsOf(&decide.Config{}, true).step; got != 6*time.Second {
		t.Errorf("patiently: got %v", got)
	}
}

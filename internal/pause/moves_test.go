package pause

import (
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/holdfast-hpc/holdfast/internal/child"
)

// id returns the UUID of GPU n.
func id(n string) string { return strings.Repeat("0", 31) + n }

// TestMoves: each device of the node gets a place, and no place is taken twice.
func TestMoves(t *testing.T) {
	see := func(text string) (d []device) {
		for _, f := range strings.Fields(text) {
			n, used := strings.CutSuffix(f, "+")
			d = append(d, device{id(n), used})
		}
		return d
	}
	for _, c := range []struct{ moves, sees, node, want, wrong string }{
		{"=1", "0+", "0 1 2", "0=1 1=0 2=2;0=1", ""},
		{"=1", "0+ 1", "0 1", "0=1 1=0", ""},
		{"=0", "0+", "0 1", "0=0 1=1;0=0", ""},
		{"=5", "0+", "", "0=5", ""},
		{"0=1,1=0", "0+", "0 1", "0=1 1=0;0=1", ""},
		{"0=1,1=2", "0+ 1+ 2", "0 1 2", "0=1 1=2 2=0", "two of its GPUs"},
		{"0=2,1=2", "0+ 1+", "0 1 2", "", "two of its GPUs"},
		{"=1", "0+ 1+", "0 1", "", "it uses 2 GPUs"},
		{"=1", "0 1", "0 1", "", "it uses 0 GPUs"},
		{"3=1", "0+", "0 1", "0=0 1=1;0=0", ""},
	} {
		m := &Moves{to: map[string]string{}}
		for _, n := range strings.Fields(c.node) {
			m.machine = append(m.machine, id(n))
		}
		for pair := range strings.SplitSeq(c.moves, ",") {
			from, to, _ := strings.Cut(pair, "=")
			if from != "" {
				from = id(from)
			}
			m.to[from] = id(to)
		}
		lines, err := m.lines(see(c.sees))
		if c.wrong != "" && err != nil && strings.Contains(err.Error(), c.wrong) {
			continue
		}
		var got []string
		for _, l := range lines {
			got = append(got, strings.NewReplacer(strings.Repeat("0", 31), "", "resume ", "", ",", " ").Replace(l))
		}
		if err != nil || !slices.Equal(got, strings.Split(c.want, ";")) {
			t.Errorf("%s of %s on %s: got %q, %v, want %q %s", c.moves, c.sees, c.node, got, err, c.want, c.wrong)
		}
	}
	if lines, err := (*Moves)(nil).lines(see("0+")); err != nil || !slices.Equal(lines, []string{"resume"}) {
		t.Errorf("no move: got %q, %v", lines, err)
	}
}

// TestParseMoves reads what people write.
func TestParseMoves(t *testing.T) {
	const a, b = "GPU-1013152F-037f-bacd-b14e-60566545b299", "GPU-43e2c0df-dabc-cf59-c9af-9b59c62a57e5"
	m, err := ParseMoves(t.Context(), a+"="+b)
	if err != nil || m.to["1013152f037fbacdb14e60566545b299"] != "43e2c0dfdabccf59c9af9b59c62a57e5" {
		t.Errorf("got %v, %v", m, err)
	}
	for _, wrong := range []string{"", "x", "-1", "GPU-12", a + "=", "=" + a + "x",
		a + "=" + b + "," + a + "=" + a, "99"} {
		if m, err := ParseMoves(t.Context(), wrong); err == nil {
			t.Errorf("%q: got %v", wrong, m)
		}
	}
}

// TestFind: a process without the library is no CUDA program.
func TestFind(t *testing.T) {
	if found, err := Find([]int{1 << 30}); err == nil || !strings.Contains(err.Error(), "there is no process") {
		t.Errorf("got %v, %v", found, err)
	}
	if _, err := open(t.Context(), 1); err == nil || !strings.Contains(err.Error(), "run --cuda") {
		t.Errorf("got %v", err)
	}
}

// TestNamespaces: processes of one number in several PID namespaces are kept apart, and found by the numbers that this
// process has for them.
func TestNamespaces(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root makes PID namespaces")
	}
	const prefix = "@holdfast-test-namespaces-"
	var pids []int
	for range 2 {
		c := exec.CommandContext(t.Context(), "sleep", "60")
		c.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID} // it has the number 1 there
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		pids = append(pids, c.Process.Pid)
	}
	own := child.NameHere(os.Getpid())
	if child.Name(os.Getpid()) != own || child.Name(pids[0]) == child.Name(pids[1]) {
		t.Errorf("this process is %s and %s, others %s and %s", own, child.Name(os.Getpid()), child.Name(pids[0]),
			child.Name(pids[1]))
	}
	_, number, _ := strings.Cut(own, "-")
	for _, name := range []string{child.Name(pids[0]), own, "1-1", "1-" + number} { // the last two are not seen here
		l, err := net.Listen("unix", prefix+name)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
	}
	found, err := listening(prefix)
	want := []int{os.Getpid(), pids[0]}
	slices.Sort(want)
	if err != nil || !slices.Equal(found, want) {
		t.Errorf("found %v, %v, want %v", found, err, want)
	}
	if found, err := FindAt(prefix, errNoDoor, pids[1:]); err == nil {
		t.Errorf("found %v for %v", found, pids[1:])
	}
}

package child

import (
	"bytes"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

func start(t *testing.T, script string) *Process {
	t.Helper()
	p, err := Start(exec.Command("/bin/sh", "-c", script))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestCode checks the exit statuses, and that a command that cannot be started is an error.
func TestCode(t *testing.T) {
	for script, want := range map[string]int{"exit 0": 0, "exit 3": 3, "kill -9 $$": 137, "sleep 9 & exit 0": 0} {
		cmd := exec.Command("/bin/sh", "-c", script)
		cmd.Stdout, cmd.WaitDelay = &bytes.Buffer{}, time.Second/10
		p, err := Start(cmd)
		if err != nil {
			t.Fatal(err)
		}
		if got := p.Code(); got != want {
			t.Errorf("%s: got %d, want %d", script, got, want)
		}
		p.Signal(syscall.SIGKILL)
	}
	if _, err := Start(exec.Command("/nowhere")); err == nil {
		t.Error("a command that is not there starts")
	}
}

// TestEnd checks that a child and what it has started are ended, even if they ignore SIGTERM.
func TestEnd(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	cmd := exec.Command("/bin/sh", "-c", "trap '' TERM; sleep 600 & echo; wait")
	cmd.Stdout = w
	p, err := Start(cmd)
	if err != nil {
		t.Fatal(err)
	}
	_ = w.Close()
	b := make([]byte, 2)
	if n, err := r.Read(b); n != 1 || err != nil {
		t.Fatalf("got %d bytes, %v", n, err)
	}
	p.End(100 * time.Millisecond)
	if code := p.Code(); code != 137 {
		t.Errorf("got %d, want the end by SIGKILL", code)
	}
	if n, _ := r.Read(b); n != 0 { // its end: no process has the pipe
		t.Errorf("got %d bytes after the end", n)
	}
}

// TestGroup checks that a child is in a group of its own, or in a session if it asks for one.
func TestGroup(t *testing.T) {
	p := start(t, "sleep 600")
	defer p.End(time.Second)
	if group, err := syscall.Getpgid(p.PID()); group != p.PID() || err != nil {
		t.Errorf("got group %d, %v, want %d", group, err, p.PID())
	}
	cmd := exec.Command("sleep", "600")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	s, err := Start(cmd)
	if err != nil {
		t.Fatal(err)
	}
	defer s.End(time.Second)
	if stat, err := os.ReadFile("/proc/" + strconv.Itoa(s.PID()) + "/stat"); err != nil ||
		strings.Fields(string(stat))[5] != strconv.Itoa(s.PID()) {
		t.Errorf("no session of its own: %s, %v", stat, err)
	}
}

// TestParentDies checks that a child with a Pdeathsig outlives the call that starts it, and not its parent.
func TestParentDies(t *testing.T) {
	const role = "HOLDFAST_TEST_PARENT"
	if os.Getenv(role) != "" {
		cmd := exec.Command("sleep", "600")
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		p, err := Start(cmd)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(100 * time.Millisecond)
		select {
		case <-p.Ended:
			t.Fatal("the child has ended before its parent")
		default:
		}
		_, _ = os.Stdout.WriteString("child " + strconv.Itoa(p.PID()) + "\n")
		time.Sleep(time.Minute)
	}
	pid := make(chan int, 1)
	cmd := exec.Command(os.Args[0], "-test.run=^TestParentDies$")
	cmd.Env = append(os.Environ(), role+"=1")
	cmd.Stdout = &Lines{Each: func(line []byte) {
		if text, ok := strings.CutPrefix(string(line), "child "); ok {
			n, _ := strconv.Atoi(text)
			pid <- n
		}
	}}
	p, err := Start(cmd)
	if err != nil {
		t.Fatal(err)
	}
	defer p.End(0)
	select {
	case <-p.Ended:
		t.Fatal("the parent has ended: ", p.Wait())
	case grandchild := <-pid:
		_ = p.Cmd.Process.Kill()
		for end := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
			stat, err := os.ReadFile("/proc/" + strconv.Itoa(grandchild) + "/stat")
			if err != nil || strings.Contains(string(stat), ") Z ") {
				return
			}
			if time.Now().After(end) {
				t.Fatal("the child has outlived its parent")
			}
		}
	}
}

// failing is a file that takes nothing.
type failing struct{}

func (failing) Write([]byte) (int, error) { return 0, syscall.ENOSPC }

// TestLines checks that what is written goes through, and that lines are found however the text comes in pieces.
func TestLines(t *testing.T) {
	text := "one\n\n" + strings.Repeat("x", 3*LongestLine) + "\nlast\nno end"
	for size := 1; size < len(text); size = 3*size + 1 {
		var out bytes.Buffer
		var lines []string
		l := &Lines{To: &out, Each: func(line []byte) { lines = append(lines, string(line)) }}
		for rest := text; rest != ""; {
			n := min(size, len(rest))
			if _, err := l.Write([]byte(rest[:n])); err != nil {
				t.Fatal(err)
			}
			rest = rest[n:]
		}
		if out.String() != text || len(lines) != 4 || lines[0] != "one" || lines[1] != "" || lines[3] != "last" {
			t.Errorf("pieces of %d: got %q", size, lines)
		}
	}
	full := &Lines{To: failing{}, Each: func([]byte) {}} // the disk of the log is full
	if n, err := full.Write([]byte(text)); n != len(text) || err != nil {
		t.Errorf("on a full disk: got %d, %v", n, err)
	}
}

// TestCapped checks that what a child prints is passed on to its bound, and never stops it.
func TestCapped(t *testing.T) {
	var got bytes.Buffer
	for _, to := range []*Capped{{To: &got, Left: 10, More: " and more"}, {To: failing{}, Left: 10}} {
		for range 5 {
			if n, err := to.Write([]byte("1234")); n != 4 || err != nil {
				t.Errorf("got %d, %v", n, err)
			}
		}
	}
	if text := got.String(); text != "1234123412 and more" {
		t.Errorf("got %q", text)
	}
}

// TestReady checks that a caller of StartReady learns that the child is ready, why it is not, and that it ended first.
func TestReady(t *testing.T) {
	for script, want := range map[string]string{
		"echo ready >&4; exec 4>&-; exec sleep 100":        "",
		"echo 'no device'  >&4; exec 4>&-; exec sleep 100": "no device",
		"exit 3": "sh -c ended before it was ready: exit status 3",
		"exit 0": "sh -c ended before it was ready",
		"[ $(ps -o sid= $$) = $$ ] && read x <&3 && echo \"$x\" >&4": "of the caller",
	} {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		_, _ = w.WriteString("of the caller\n")
		cmd := exec.Command("sh", "-c", script)
		cmd.ExtraFiles = []*os.File{r}
		err = StartReady(cmd, 4)
		got := ""
		if err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%s: got %v, want %q", script, err, want)
		}
		if cmd.Process != nil {
			_ = cmd.Process.Kill()
		}
		_, _ = r.Close(), w.Close()
	}
}

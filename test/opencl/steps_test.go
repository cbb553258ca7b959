package opencl

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// step is where a process is killed: before the n-th time that it makes a call of the system, of those that have the
// path as an argument. strace knows the calls and sends the signal. Some runs make fewer calls than a step with a
// large n needs: nothing is killed then.
type step struct {
	name   string
	victim string // command, helper, guard, CRIU; or the one is killed while CRIU is there
	call   string
	n      int
	path   string // PID is the program's, EPOCH that of the image
	args   string // of the command besides
	goesOn bool   // the program must; else it may have ended, and is restored
}

const inCRIU = " in CRIU"

// takeSteps are those of an image: the program is stopped, dumped, goes on, the image is written and committed.
var takeSteps = []step{
	{"makes its folder", "command", "mkdirat", 1, "IMAGES/criu.part", "", true},
	{"asks for a stop", "command", "connect", 1, "", "", true},
	{"has it stopped", "command", "recvmsg", 1, "", "", true},
	{"looks at it", "command", "openat", 1, "/proc/PID/maps", "", true},
	{"begins", "CRIU", "openat", 1, "", "", true},
	{"has threads", "CRIU", "openat", 1, "task", "", true},
	{"has threads", "command" + inCRIU, "openat", 1, "task", "", true},
	{"has threads", "helper" + inCRIU, "openat", 1, "task", "", false},
	{"writes shared memory", "CRIU", "openat", 1, "pages-1.img", "", true},
	{"has the program make a call", "CRIU", "ptrace", 75, "", "", false},
	{"is in the program", "CRIU", "openat", 1, "pagemap-PID.img", "", false},
	{"is in the program", "command" + inCRIU, "openat", 1, "pagemap-PID.img", "", true},
	{"is in the program", "helper" + inCRIU, "openat", 1, "pagemap-PID.img", "", false},
	{"ends", "CRIU", "openat", 1, "stats-dump", "", true},
	{"ends", "command" + inCRIU, "openat", 1, "stats-dump", "", true},
	{"saves", "helper", "memfd_create", 1, "", "", false},
	{"stops it", "helper", "kill", 1, "", "", false},
	{"has it go on", "helper", "ppoll", 1, "", "", false},
	{"makes the epoch", "command", "mkdirat", 1, "IMAGES/EPOCH", "", true},
	{"puts the shard", "command", "renameat", 1, "IMAGES/EPOCH/rank-000000.shard", "", true},
	{"commits", "command", "renameat", 1, "IMAGES/EPOCH/manifest", "", true},
	{"notes that", "command", "renameat", 1, "IMAGES/epochs-000000", "", true},
	{"ends it", "command", "ppoll", 1, "", "--kill", false},
	{"cleans up", "command", "unlinkat", 1, "IMAGES/holdfast.run", "--kill", false},
}

// restoreSteps are those of a start from an image: it is unpacked, CRIU makes the process, a helper attaches.
var restoreSteps = []step{
	{"makes its folder", "command", "mkdirat", 1, "", "", false},
	{"has its folder", "command", "flock", 1, "", "", false},
	{"has unpacked", "command", "socketpair", 1, "", "", false},
	{"begins", "CRIU", "openat", 1, "", "", false},
	{"begins", "guard" + inCRIU, "openat", 1, "", "", false},
	{"is to make it", "CRIU", "openat", 1, "core-PID.img", "", false},
	{"is to make it", "command" + inCRIU, "openat", 1, "core-PID.img", "", false},
	{"is to make it", "guard" + inCRIU, "openat", 1, "core-PID.img", "", false},
	{"has begun it", "CRIU", "openat", 1, "loginuid", "", false},
	{"has made its threads", "CRIU", "futex", 6, "", "", false},
	{"has made its threads", "command" + inCRIU, "futex", 6, "", "", false},
	{"has made its threads", "guard" + inCRIU, "futex", 6, "", "", false},
	{"leaves it", "CRIU", "ptrace", 50, "", "", false},
	{"ends", "CRIU", "openat", 1, "stats-restore", "", false},
	{"ends", "command" + inCRIU, "openat", 1, "stats-restore", "", false},
	{"ends", "guard" + inCRIU, "openat", 1, "stats-restore", "", false},
	{"has it made", "guard", "pidfd_open", 1, "", "", false},
	{"has it run", "guard", "pidfd_send_signal", 1, "", "", false},
	{"has it made", "command", "openat", 1, "/proc/PID/maps", "", false},
	{"is to attach", "command", "pidfd_getfd", 1, "", "", false},
	{"attaches", "helper", "execve", 1, "/proc/self/exe", "", false},
	{"cleans up", "command", "unlinkat", 1, "", "", false},
}

// under has strace send a signal at the step. What it has seen is in a file.
func (s *step) under(p *imaged, signal, saw string) []string {
	args := []string{"strace", "-D", "-qq", "-o", saw, "-e", "trace=" + s.call, "-e",
		fmt.Sprintf("inject=%s:signal=%s:when=%d", s.call, signal, s.n)}
	if s.path == "" {
		return args
	}
	return append(args, "-P", strings.NewReplacer("PID", strconv.Itoa(p.pid), "IMAGES", p.dir, "EPOCH",
		fmt.Sprintf("epoch-%010d", p.newest()+1)).Replace(s.path))
}

// newest returns the newest epoch of the images, which may not be committed.
func (p *imaged) newest() (e int) {
	list, _ := filepath.Glob(filepath.Join(p.dir, "epoch-*"))
	for _, dir := range list {
		n, _ := strconv.Atoi(strings.TrimPrefix(filepath.Base(dir), "epoch-"))
		e = max(e, n)
	}
	return e
}

// kill has a command reach the step, where the victim is killed. It returns what the command says, and whether the step
// was reached.
func (p *imaged) kill(s *step, env []byte, args ...string) (text string, killed bool) {
	t := p.l.t
	t.Helper()
	args = append([]string{"image", "--dir", p.dir, "--criu", p.criu}, append(args, strings.Fields(s.args)...)...)
	saw := filepath.Join(p.l.dir, "saw")
	_ = os.Remove(saw) // that of the step before
	victim, there := strings.CutSuffix(s.victim, inCRIU)
	signal := "SIGKILL"
	if there {
		signal = "SIGSTOP"
	}
	program := []string{filepath.Join(built.dir, "holdfast")}
	var helper *exec.Cmd // strace of it
	switch {
	case there || victim == "CRIU" || victim == "guard":
		begin := "exec " + strings.Join(s.under(p, signal, saw), " ")
		if victim == "guard" && !there { // all its threads are traced before CRIU begins
			u := s.under(p, signal, saw)
			begin = "(" + u[0] + " " + strings.Join(u[2:], " ") + " -f -p $PPID >strace-said 2>&1 &)\n" +
				"while grep -q 'TracerPid:.0$' /proc/$PPID/task/*/status; do :; done\nexec"
		}
		p.l.executable("criu", fmt.Sprintf("#!/bin/sh\n[ $1 != --version ] || exec %s $1\necho $$ >criu-pid\n"+
			"%s %s \"$@\"\n", p.criu, begin, p.criu))
		args[4] = filepath.Join(p.l.dir, "criu")
	case victim == "command" || s.call == "execve":
		program = append(append(s.under(p, signal, saw), "-f", "-b", "execve"), program...)
	default:
		u := s.under(p, signal, saw)
		helper = p.l.command(nil, u[0], append(u[2:], "-f", "-p", strconv.Itoa(p.helper(env)))...)
		if err := helper.Start(); err != nil {
			t.Fatal(err)
		}
		p.await("strace does not begin", func() bool { return traced(p.helper(env)) })
	}
	c := p.l.command(nil, program[0], append(program[1:], args...)...)
	var said strings.Builder
	c.Stdout, c.Stderr = &said, &said
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	waited := make(chan struct{})
	go func() {
		_ = c.Wait() // its state tells
		close(waited)
	}()
	ended := func() bool {
		select {
		case <-waited:
			return find(t, env, "strace") == 0
		default:
			return false
		}
	}
	reached := func(text string) (yes bool) {
		t.Helper()
		p.await("the step is not reached", func() bool {
			over := s.n > 1 && ended()
			b, _ := os.ReadFile(saw) // strace may not have begun
			yes = strings.Contains(string(b), text)
			return yes || over
		})
		return yes
	}
	if there && !reached("stopped by SIGSTOP") {
		return said.String(), false
	}
	if there {
		who := c.Process.Pid
		switch victim {
		case "helper":
			who = p.helper(env)
		case "guard":
			who = find(t, env, "\x00image-guard\x00")
		}
		_ = syscall.Kill(who, syscall.SIGKILL)
		b, err := os.ReadFile(filepath.Join(p.l.dir, "criu-pid"))
		criu, _ := strconv.Atoi(strings.TrimSpace(string(b)))
		if err != nil || criu == 0 {
			t.Fatal(err)
		}
		_ = syscall.Kill(criu, syscall.SIGCONT) // that of a guard that was killed has ended
	}
	<-waited
	if !there && !reached("killed by SIGKILL") {
		return said.String(), false
	}
	if helper != nil {
		_ = helper.Wait() // it ends as the helper does
	}
	if killed := strings.Contains(c.ProcessState.String(), "killed"); killed != (victim == "command") {
		t.Fatalf("the command: %v: %s", c.ProcessState, said.String())
	}
	return said.String(), true
}

// traced reports whether all threads of a process are.
func traced(pid int) bool {
	list, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", pid))
	for _, file := range list {
		b, _ := os.ReadFile(file) // its thread may have ended
		if strings.Contains(string(b), "TracerPid:\t0\n") {
			return false
		}
	}
	return len(list) > 0
}

// executable makes a script in the lab.
func (l *lab) executable(name, text string) {
	l.t.Helper()
	if err := os.WriteFile(filepath.Join(l.dir, name), []byte(text), 0o700); err != nil {
		l.t.Fatal(err)
	}
}

// kill9 kills the program.
func (p *imaged) kill9() {
	p.l.t.Helper()
	_ = syscall.Kill(p.pid, syscall.SIGKILL)
	p.await("it does not end", func() bool { return !p.there() })
}

func (p *imaged) helper(env []byte) int {
	p.l.t.Helper()
	pid := find(p.l.t, env, "\x00opencl\x00")
	if pid == 0 {
		p.l.t.Fatal("no process serves the program")
	}
	return pid
}

// TestKilledInImage: a command, its CRIU or the program's helper is killed at each step of an image and of a restore.
// The program goes on, or an image restores. No process, stopped program or folder is left.
func TestKilledInImage(t *testing.T) {
	criu := criuForTests(t)
	if _, err := exec.LookPath("strace"); err != nil {
		t.Skip(err)
	}
	l := newPoCLLab(t)
	if err := os.Mkdir(l.dir+"/tmp", 0o700); err != nil {
		t.Fatal(err)
	}
	l.env = append(l.env, "TMPDIR="+l.dir+"/tmp")
	env := []byte(strings.Join(l.env, "\x00") + "\x00")
	p := l.startCounting(criu, "held")
	p.mustImage(p.take()...) // the one before
	settled := func() {
		t.Helper()
		for _, text := range []string{"criu", "image-guard", "strace"} {
			p.await(text+" does not end", func() bool { return find(t, env, text) == 0 })
		}
		before := len(p.text())
		p.await("it does not go on", func() bool { return len(p.text()) > before || !p.there() })
	}
	restore := func() { p.mustImage("--restore", "--truncate", "--device", platform) }
	for _, s := range takeSteps {
		t.Run("image/"+s.victim+" "+s.name, func(t *testing.T) {
			l.t = t
			said, reached := p.kill(&s, env, p.take()...)
			settled()
			t.Log(reached, p.there(), said)
			if !p.there() {
				if s.goesOn {
					t.Errorf("it has ended: %s\n%s", said, p.said())
				}
				restore()
			}
		})
	}
	for _, s := range restoreSteps {
		t.Run("restore/"+s.victim+" "+s.name, func(t *testing.T) {
			l.t = t
			if p.there() {
				p.kill9()
			}
			said, reached := p.kill(&s, env, "--restore", "--truncate", "--device", platform)
			settled()
			t.Log(reached, p.there(), said)
			if reached && p.there() && s.victim != "command" {
				t.Errorf("it was not restored, and runs: %s", said)
			}
		})
	}
	l.t = t
	if p.there() {
		p.kill9()
	}
	restore()
	p.mustImage(p.take()...)
	left, err := filepath.Glob(filepath.Join(l.dir, "tmp", "holdfast*"))
	more, e := filepath.Glob(filepath.Join(p.dir, "*.part"))
	if left = append(left, more...); err != nil || e != nil || len(left) > 0 {
		t.Errorf("%q is left", left)
	}
	p.checkCount(p.end())
}

package cuda

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-hpc/holdfast/internal/image"
	"github.com/holdfast-hpc/holdfast/internal/pause"
	"github.com/holdfast-hpc/holdfast/test/criu"
	"github.com/holdfast-hpc/holdfast/test/launch"
	"golang.org/x/sys/unix"
)

// imaged is a program whose output is in a file, so that it can go on there.
type imaged struct {
	running
	dir   string
	criu  image.CRIU
	ended chan syscall.WaitStatus // the ends of its processes
}

func (w way) startImaged(t *testing.T, program string, args ...string) *imaged {
	t.Helper()
	dir := t.TempDir()
	p := &imaged{running{cmd: exec.Command(inBuilt(program), args...), usage: filepath.Join(dir, "usage"),
		end: filepath.Join(dir, "end")}, dir, criu.Find(t), make(chan syscall.WaitStatus, 8)}
	out, err := os.Create(filepath.Join(dir, "out"))
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	p.cmd.Env = append(os.Environ(), w.with("FAKE_USAGE="+p.usage, "UNTIL="+p.end)...)
	p.cmd.Stdout, p.cmd.Stderr = out, out
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil { // restored, it is this process's child
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0) })
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	go func() { // its number is free once it is collected
		for ; ctx.Err() == nil; time.Sleep(5 * time.Millisecond) {
			var ws syscall.WaitStatus
			if n, _ := syscall.Wait4(p.pid(), &ws, syscall.WNOHANG, nil); n > 0 {
				p.ended <- ws
			}
		}
	}()
	t.Cleanup(func() {
		if t.Failed() {
			_ = syscall.Kill(p.pid(), syscall.SIGKILL) // it may have ended
		}
	})
	for st, err := os.Stat(p.usage); err != nil || st.Size() == 0; st, err = os.Stat(p.usage) {
		time.Sleep(time.Millisecond)
	}
	p.launches(t, 1)
	return p
}

// tool returns the command holdfast.
var tool = sync.OnceValues(func() (string, error) {
	path := filepath.Join(built.dir, "holdfast")
	return path, run([]string{"go", "build", "-o", path, "../../cmd/holdfast"})
})

// take takes an image.
func (p *imaged) take(t *testing.T, kill bool) error {
	t.Helper()
	holdfast, err := tool()
	if err == nil {
		_, err = image.Take(t.Context(), p.pid(), image.Options{Dir: filepath.Join(p.dir, "images"), Keep: 2,
			Kill: kill, Wait: patience, CRIU: p.criu, Self: holdfast})
	}
	return err
}

// killed has the command take an image, and kills it before or after CRIU does its part. The next command waits for
// the end of that CRIU, and finds the program as it was.
func (p *imaged) killed(t *testing.T, holdfast, when string) {
	t.Helper()
	inDir := func(name string) string { return filepath.Join(p.dir, name+"-"+when) }
	await := "echo >" + inDir("reached") + "; until [ -e " + inDir("over") + " ]; do sleep 0.01; done\n"
	dump := p.criu.Path + " \"$@\"\n"
	script := map[string]string{"before": await + "exec " + dump, "after": dump + await}[when]
	if err := os.WriteFile(inDir("criu"), []byte("#!/bin/sh\n[ $1 = dump ] || exec "+dump+script), 0o700); err != nil {
		t.Fatal(err)
	}
	c := exec.Command(holdfast, "image", strconv.Itoa(p.pid()), "--dir", filepath.Join(p.dir, "images"), "--criu",
		inDir("criu"))
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	for _, err := os.Stat(inDir("reached")); err != nil; _, err = os.Stat(inDir("reached")) {
		time.Sleep(time.Millisecond)
	}
	_ = c.Process.Kill()
	_ = c.Wait()
	next := make(chan error, 1)
	go func() { next <- p.take(t, false) }()
	for !hasOpen(t, "criu.lock") {
		time.Sleep(time.Millisecond)
	}
	if p.used(t, 0) != 0 {
		t.Errorf("%s: it goes on while CRIU has it", when)
	}
	if err := os.WriteFile(inDir("over"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := <-next; err != nil {
		t.Error(err)
	}
}

// hasOpen reports whether this process has a file of that name open.
func hasOpen(t *testing.T, name string) bool {
	t.Helper()
	list, err := filepath.Glob("/proc/self/fd/*")
	if err != nil {
		t.Fatal(err)
	}
	return slices.ContainsFunc(list, func(fd string) bool {
		to, _ := os.Readlink(fd) // it may be closed
		return filepath.Base(to) == name
	})
}

// kill ends the program.
func (p *imaged) kill(t *testing.T) {
	t.Helper()
	if err := syscall.Kill(p.pid(), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	p.gone(t)
}

// itsEnd waits for the end of one of its processes, a minute at most.
func (p *imaged) itsEnd(t *testing.T) (ws syscall.WaitStatus) {
	t.Helper()
	select {
	case ws = <-p.ended:
	case <-time.After(time.Minute):
		t.Fatal("it does not end, or does not run")
	}
	return ws
}

// gone waits until the program has ended by SIGKILL. What it had of its GPUs is free then.
func (p *imaged) gone(t *testing.T) {
	t.Helper()
	if ws := p.itsEnd(t); ws.Signal() != syscall.SIGKILL {
		t.Errorf("it ended with %#x", ws)
	}
	f, err := os.OpenFile(p.usage, os.O_WRONLY, 0)
	if err == nil {
		_, err = f.WriteAt(make([]byte, 8*8), 0)
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		t.Error(err)
	}
}

// restore starts it from its newest image, by the command, and that by another one with arguments of its own.
func (p *imaged) restore(holdfast string, args ...string) error {
	return p.restoreBy([]string{holdfast}, args...)
}

func (p *imaged) restoreBy(line []string, args ...string) error {
	line = append(append(line, "image", "--restore", "--truncate", "--criu", p.criu.Path, "--dir",
		filepath.Join(p.dir, "images")), args...)
	out, err := exec.Command(line[0], line[1:]...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	return nil
}

// ends waits for the program, which must compute what it does without the library.
func (p *imaged) ends(t *testing.T, want ran) {
	t.Helper()
	p.mayEnd(t)
	if ws := p.itsEnd(t); ws != 0 {
		t.Errorf("it ended with %#x", ws)
	}
	out, err := os.ReadFile(filepath.Join(p.dir, "out"))
	if err != nil {
		t.Fatal(err)
	}
	ran{string(out), ""}.same(t, ran{want.out + want.said, ""})
}

// TestImage: a program goes on after an image, and is started again from it after its death, on its own GPU or another
// one. One that is paused stays so.
func TestImage(t *testing.T) {
	holdfast, err := tool()
	if err != nil {
		t.Fatal(err)
	}
	want := alone().run(t, linked, longProgram...)
	for _, arena := range []string{"on", "off"} {
		t.Run("arena "+arena, func(t *testing.T) {
			p := twoGPUs(t).with("HOLDFAST_CUDA_ARENA="+arena).startImaged(t, linked, longProgram...)
			for n, when := range []string{"before", "after"} {
				if arena == "off" && n == 0 {
					continue // the other way is the same
				}
				p.killed(t, holdfast, when)
				p.launches(t, p.used(t, 8)+1) // it goes on
				p.kill(t)
				var on []string
				if n == 1 {
					on = []string{"--gpu", "GPU-fafafafa-fafa-fafa-fafa-fafafafafa01"}
				}
				if err := p.restore(holdfast, on...); err != nil {
					t.Fatal(err)
				}
				if p.used(t, n) == 0 || p.used(t, 1-n) != 0 {
					t.Errorf("of the GPUs %d and %d bytes are in use", p.used(t, 0), p.used(t, 1))
				}
			}
			p.ends(t, want)
		})
	}
	t.Run("paused", func(t *testing.T) { // a script with a locked file, which goes on, too
		script := `exec 9>$LOCKED; flock 9; "$0" "$@"; flock -n $LOCKED echo not locked; echo and more`
		p := twoGPUs(t).with("LOCKED="+filepath.Join(t.TempDir(), "locked")).startImaged(t, "/bin/sh",
			append([]string{"-c", script, inBuilt(linked)}, longProgram...)...)
		pid := strconv.Itoa(p.pid())
		below, err := pause.Find([]int{p.pid()})
		if err != nil || len(below) != 1 {
			t.Fatal(below, err)
		}
		for _, line := range [][]string{{"pause", pid}, {"image", pid, "--kill", "--dir",
			filepath.Join(p.dir, "images"), "--criu", p.criu.Path}} {
			if err := run(append([]string{holdfast}, line...)); err != nil {
				t.Fatal(err)
			}
		}
		p.gone(t)
		_, _ = syscall.Wait4(below[0], nil, 0, nil) // it is this process's child, unless the script has outlived it
		if err := p.restore(holdfast); err != nil || p.used(t, 0) != 0 {
			t.Fatalf("%v, %d bytes of the GPU are in use", err, p.used(t, 0))
		}
		if err := run([]string{holdfast, "resume", pid}); err != nil {
			t.Error(err)
		}
		p.ends(t, ran{want.out, want.said + "and more\n"})
	})
	t.Run("resumed", func(t *testing.T) { // by another command, before or after CRIU does its part
		p := twoGPUs(t).startImaged(t, linked, longProgram...)
		real := p.criu.Path
		p.criu.Path = filepath.Join(p.dir, "criu")
		verb := func(v string) string { return holdfast + " " + v + " " + strconv.Itoa(p.pid()) + "; " }
		for _, c := range []struct{ first, before, after string }{{"", verb("resume"), ""},
			{verb("pause"), verb("resume"), ""}, {verb("pause"), "", verb("resume") + verb("pause")}} {
			criu := real + " \"$@\""
			script := "#!/bin/sh\n[ $1 = dump ] || exec " + criu + "\n" + c.before + criu + " && { " + c.after +
				":; }\n"
			if err := errors.Join(os.WriteFile(p.criu.Path, []byte(script), 0o700),
				run([]string{"sh", "-c", c.first + ":"})); err != nil {
				t.Fatal(err)
			}
			err := p.take(t, true)
			if err == nil || !strings.Contains(err.Error(), "another command has had process") {
				t.Errorf("%+v: got %v", c, err)
			}
			_ = run([]string{"sh", "-c", verb("resume")}) // it may run
		}
		p.ends(t, want)
	})
	t.Run("refused", func(t *testing.T) { // a GPU that is not there ends it; managed memory leaves it as it is
		p := twoGPUs(t).startImaged(t, linked, longProgram...)
		if err := p.take(t, true); err != nil {
			t.Fatal(err)
		}
		p.gone(t)
		before, err := os.ReadFile(filepath.Join(p.dir, "out"))
		before = append(before, "what somebody has written since"...)
		if err := errors.Join(err, os.WriteFile(filepath.Join(p.dir, "out"), before, 0o600)); err != nil {
			t.Fatal(err)
		}
		err = p.restore(holdfast, "--gpu", "GPU-fafafafa-fafa-fafa-fafa-fafafafafa09")
		if err == nil || !strings.Contains(err.Error(), "it was ended, as it cannot have its GPU") {
			t.Errorf("got %v", err)
		}
		p.gone(t)
		if after, err := os.ReadFile(filepath.Join(p.dir, "out")); err != nil || !bytes.Equal(after, before) {
			t.Errorf("the program's output is cut: %q, want %q, %v", after, before, err)
		}
		if _, err := exec.LookPath("strace"); err == nil { // a command that is killed before it resumes the program
			err = p.restoreBy([]string{"strace", "-D", "-qq", "-f", "-b", "execve", "-e", "trace=connect", "-e",
				"inject=connect:signal=SIGKILL:when=1", holdfast})
			if err == nil || !strings.HasPrefix(err.Error(), "signal: killed") {
				t.Errorf("got %v", err)
			}
		} else if err := p.restore(holdfast); err != nil {
			t.Fatal(err)
		}
		p.ends(t, want)
		managed := twoGPUs(t).startImaged(t, linked, "20")
		if err := managed.take(t, false); err == nil || !strings.Contains(err.Error(), "it uses managed memory") {
			t.Errorf("got %v", err)
		}
		managed.ends(t, alone().run(t, linked, "20"))
	})
}

// TestRunImage: holdfast run takes images of a program, and starts it from the newest when it has died.
func TestRunImage(t *testing.T) {
	c := criu.Find(t)
	dir := t.TempDir()
	usage := filepath.Join(dir, "usage")
	if err := launch.Build(dir); err != nil {
		t.Fatal(err)
	}
	out, err := os.Create(filepath.Join(dir, "out"))
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	args := append([]string{"run", "--cuda", "--image", "--dir", filepath.Join(dir, "images"), "--criu", c.Path, "--",
		filepath.Join(built.dir, linked)}, longProgram...)
	run := exec.CommandContext(t.Context(), filepath.Join(dir, "holdfast"), args...)
	r := &running{cmd: run, usage: usage, end: filepath.Join(dir, "end")}
	run.Env = append(os.Environ(), alone().with("FAKE_USAGE="+usage, "UNTIL="+r.end)...)
	run.Stdout, run.Dir = out, dir
	said, err := run.StderrPipe()
	if err == nil {
		err = run.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	for st, err := os.Stat(usage); err != nil || st.Size() == 0; st, err = os.Stat(usage) {
		time.Sleep(time.Millisecond)
	}
	r.launches(t, 1)
	if err := run.Process.Signal(syscall.SIGUSR1); err != nil {
		t.Fatal(err)
	}
	var all strings.Builder
	killed := false
	for lines := bufio.NewScanner(said); lines.Scan(); {
		fmt.Fprintln(&all, lines.Text())
		if !killed && strings.Contains(lines.Text(), "image 1: ") {
			killed = true
			found, err := pause.Find([]int{run.Process.Pid})
			if err != nil || len(found) != 1 || syscall.Kill(found[0], syscall.SIGKILL) != nil {
				t.Error(found, err)
			}
			r.mayEnd(t)
		}
	}
	err = run.Wait()
	got, rerr := os.ReadFile(out.Name())
	if err != nil || rerr != nil || !killed || !strings.Contains(all.String(), "epoch 1 from global") {
		t.Errorf("%v, %v\n%s", err, rerr, all.String())
	}
	want := alone().run(t, linked, longProgram...)
	ran{string(got), ""}.same(t, ran{want.out, ""})
}

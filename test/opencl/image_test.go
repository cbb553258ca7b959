package opencl

import (
	"bytes"
	"flag"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-hpc/holdfast/internal/child"
	"github.com/holdfast-hpc/holdfast/internal/opencl"
	"github.com/holdfast-hpc/holdfast/test/criu"
	"github.com/holdfast-hpc/holdfast/test/schema"
	"golang.org/x/sys/unix"
)

var imageCount = flag.Int("images", 1, "images of each program at random moments")

// criuForTests is criu.Find's path.
func criuForTests(t *testing.T) string {
	t.Helper()
	return criu.Find(t).Path
}

// imaged is a program whose output is in a file, so that it can go on there.
type imaged struct {
	l              *lab
	criu           string
	pid            int
	out, errs, dir string
	reaped         chan struct{}
}

// startImaged starts a program and returns when it has printed a text.
func (l *lab) startImaged(criu, text, name string, args ...string) *imaged {
	l.t.Helper()
	p := &imaged{l, criu, 0, filepath.Join(l.dir, "out"), filepath.Join(l.dir, "errs"), filepath.Join(l.dir, "images"),
		make(chan struct{})}
	c := l.command(through(platform), name, args...)
	c.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	out, err := os.Create(p.out)
	if err == nil {
		c.Stdout = out
		c.Stderr, err = os.Create(p.errs)
	}
	if in := filepath.Join(l.dir, "in"); err == nil {
		if err = os.WriteFile(in, nil, 0o600); err == nil {
			c.Stdin, err = os.Open(in)
		}
	}
	if err == nil {
		err = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) // its number is free once it has ended
	}
	l.t.Cleanup(func() { _ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0) }) // other tests' orphans are init's
	if err == nil {
		err = c.Start()
	}
	if err != nil {
		l.t.Fatal(err)
	}
	p.pid = c.Process.Pid
	ctx := l.t.Context()
	go func() {
		_ = c.Wait() // it may be killed
		close(p.reaped)
		for ctx.Err() == nil { // restored, it is a child of this process once its guard has ended
			_, _ = syscall.Wait4(p.pid, nil, syscall.WNOHANG, nil)
			time.Sleep(5 * time.Millisecond)
		}
	}()
	l.t.Cleanup(func() {
		if p.there() {
			_ = syscall.Kill(p.pid, syscall.SIGKILL)
		}
	})
	p.await("it did not begin", func() bool { return strings.Contains(p.text(), text) })
	return p
}

// startCounting starts a program that counts rounds until its file is there.
func (l *lab) startCounting(criu, name string) *imaged {
	l.t.Helper()
	return l.startImaged(criu, "round 0", name, "1000000000", filepath.Join(l.dir, "enough"))
}

// there reports whether the program runs, or is stopped.
func (p *imaged) there() bool {
	exe, err := os.Readlink("/proc/" + strconv.Itoa(p.pid) + "/exe") // that of a zombie is not there
	return err == nil && strings.HasPrefix(exe, built.dir)
}

func (p *imaged) await(what string, done func() bool) {
	p.l.t.Helper()
	for end := time.Now().Add(deadline); !done(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			p.l.t.Fatalf("%s\n%s", what, p.said())
		}
	}
}

// text returns what the program has written.
func (p *imaged) text() string {
	b, _ := os.ReadFile(p.out) // it is there
	return string(b)
}

func (p *imaged) said() string {
	b, _ := os.ReadFile(p.errs) // it is there
	return last(p.text()) + string(b)
}

// image runs holdfast image on the directory of its images.
func (p *imaged) image(args ...string) (string, error) {
	p.l.t.Helper()
	return p.l.try(append([]string{"image", "--dir", p.dir, "--criu", p.criu}, args...)...)
}

func (p *imaged) mustImage(args ...string) {
	p.l.t.Helper()
	out, err := p.image(append(args, "--json")...)
	if err == nil {
		err = schema.Check("image", out)
	}
	if err != nil {
		p.l.t.Fatalf("image %q: %v\n%s%s", args, err, out, p.said())
	}
}

func (p *imaged) take(args ...string) []string { return append([]string{strconv.Itoa(p.pid)}, args...) }

// end has the program end, and returns what it has written from the beginning.
func (p *imaged) end() string {
	p.l.t.Helper()
	p.l.file("enough", "")
	p.await("it does not end", func() bool { return !p.there() })
	return p.text()
}

// checkCount fails unless a program that checks itself has counted on.
func (p *imaged) checkCount(got string) {
	p.l.t.Helper()
	rounds := 0
	for line := range strings.Lines(got) {
		n, found := strings.CutPrefix(strings.TrimSpace(line), "round ")
		if found && n != strconv.Itoa(rounds) {
			p.l.t.Fatalf("%q follows round %d\n%s", line, rounds-5, p.said())
		}
		rounds += 5
	}
	if !strings.Contains(got, "\ncounted ") {
		p.l.t.Fatalf("it has not counted to the end\n%s", p.said())
	}
}

// TestImaged: programs with all kinds of objects, user events that are not set, threads that wait, call-backs and
// mappings are imaged at random moments, killed, and restored on either platform. They compute what they do
// undisturbed. Soaks set -images and -pause-seed.
func TestImaged(t *testing.T) {
	criu := criuForTests(t)
	commandLimit = max(commandLimit, time.Duration(*imageCount)*20*time.Second)
	r := rand.New(rand.NewPCG(*pauseSeed, 37))
	for _, program := range []string{"held", "moves"} {
		l := newLab(t)
		p := l.startCounting(criu, program)
		for n := range *imageCount {
			time.Sleep(time.Duration(r.IntN(100)) * time.Millisecond)
			p.mustImage(p.take()...) // it goes on
			time.Sleep(time.Duration(r.IntN(100)) * time.Millisecond)
			p.mustImage(p.take("--kill")...)
			if p.there() {
				t.Fatalf("%s, seed %d, image %d: it has not ended", program, *pauseSeed, n)
			}
			place := []string{another, platform}[n%2]
			p.mustImage("--restore", "--device", place)
		}
		time.Sleep(50 * time.Millisecond) // it computes
		got := p.end()
		if program == "held" {
			p.checkCount(got)
			continue
		}
		rounds := strings.Count(got, "round")
		if want := l.run(without, program, strconv.Itoa(rounds), filepath.Join(l.dir, "never")); got != want {
			t.Errorf("%s, seed %d: the output differs: got\n%s\nwant\n%s", program, *pauseSeed, last(got), last(want))
		}
	}
}

// TestImagedAmongCalls: programs whose threads call all the time are imaged while requests, large writes and new areas
// are on the way. They check all results. killed uses all ways to the helper, and ends when that is killed, with each
// call over.
func TestImagedAmongCalls(t *testing.T) {
	criu := criuForTests(t)
	commandLimit = max(commandLimit, time.Duration(*imageCount)*20*time.Second)
	r := rand.New(rand.NewPCG(*pauseSeed, 40))
	for _, program := range []string{"killed", "maps"} {
		l := newPoCLLab(t)
		argument := filepath.Join(l.dir, "enough")
		if program == "killed" {
			argument = strconv.Itoa(r.IntN(1 << 20))
		}
		p := l.startImaged(criu, "going", program, argument)
		for range *imageCount {
			time.Sleep(time.Duration(r.IntN(60)) * time.Millisecond)
			p.mustImage(p.take()...)
			time.Sleep(time.Duration(r.IntN(60)) * time.Millisecond)
			p.mustImage(p.take("--kill")...)
			p.mustImage("--restore", "--device", platform)
		}
		time.Sleep(50 * time.Millisecond) // it computes
		if program == "killed" {
			helper := find(t, []byte(strings.Join(l.env, "\x00")+"\x00"), "\x00opencl\x00")
			if helper == 0 {
				t.Fatalf("no process serves it\n%s", p.said())
			}
			_ = syscall.Kill(helper, syscall.SIGKILL)
		}
		if got := p.end(); !strings.HasSuffix(got, "over\n") {
			t.Errorf("%s, seed %d: %s", program, *pauseSeed, p.said())
		}
	}
}

// TestImageRefusals: a program that was imaged goes on; what cannot be restored is refused by name, and nothing is
// started.
func TestImageRefusals(t *testing.T) {
	l := newLab(t)
	p := l.startCounting(criuForTests(t), "held")
	p.mustImage(p.take()...)
	before := len(p.text())
	p.await("it does not go on", func() bool { return len(p.text()) > before })
	refused := func(want string, args ...string) {
		t.Helper()
		if out, err := p.image(args...); err == nil || !strings.Contains(out, want) {
			t.Errorf("holdfast image %q: got %v, %s, want %q", args, err, out, want)
		}
	}
	refused("has the process ID", "--restore")
	if out, err := l.try("verify", p.dir); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	if out, err := l.try("ls", p.dir); err != nil || !strings.Contains(out, "no: image") {
		t.Errorf("%v\n%s", err, out)
	}
	what := fmt.Sprintf("Epoch 1 is an image of process %d (held) of user ", p.pid)
	if out, err := l.try("show", p.dir); err != nil || !strings.Contains(out, what) {
		t.Errorf("%v, want %q\n%s", err, what, out)
	}
	_ = syscall.Kill(p.pid, syscall.SIGKILL)
	<-p.reaped
	const input = "more of what the program only reads"
	l.file("in", input)
	refused("has grown since", "--restore")
	long := p.text()
	door, err := net.Listen("unix", opencl.DoorPrefix+child.NameHere(p.pid)) // as the helper that has not yet noticed
	if err != nil {
		t.Fatal(err)
	}
	noticed := time.AfterFunc(2*time.Second, func() { _ = door.Close() })
	p.mustImage("--restore", "--append", "--device", platform)
	if noticed.Stop() {
		t.Error("it was restored where its old helper would answer for it")
	}
	p.await("it does not write behind what is there", func() bool {
		return strings.HasPrefix(p.text(), long+"round ")
	})
	_ = syscall.Kill(p.pid, syscall.SIGKILL)
	p.await("it does not end", func() bool { return !p.there() })
	refused("has no image 7", "--restore", "--epoch", "7")
	long = p.text()
	refused("no device", "--restore", "--truncate", "--device", "platform-that-is-not-there")
	shards, err := filepath.Glob(filepath.Join(p.dir, "epoch-*", "*.shard"))
	if err != nil || len(shards) != 1 {
		t.Fatal(shards, err)
	}
	flip := func() { // a bit of what the devices had
		b, err := os.ReadFile(shards[0])
		at := bytes.Index(b, []byte(`{"Program":"held"`)) - 1
		if err == nil && at > 0 {
			b[at] ^= 4
			err = os.WriteFile(shards[0], b, 0o600)
		}
		if err != nil || at <= 0 {
			t.Fatal(at, err)
		}
	}
	flip()
	refused("image 1: ", "--restore", "--truncate", "--device", platform)
	flip()
	if p.text() != long {
		t.Error("a restore that failed has cut the program's output")
	}
	if p.there() {
		t.Error("a program is left that has no device, or has lost its bytes")
	}
	if err := os.Chmod(p.dir, 0o777); err != nil {
		t.Fatal(err)
	}
	refused("can be written to by other users", "--restore", "--truncate")
	if err := os.Chmod(p.dir, 0o700); err != nil {
		t.Fatal(err)
	}
	p.mustImage("--restore", "--truncate", "--device", another)
	p.checkCount(p.end())
	if b, err := os.ReadFile(filepath.Join(l.dir, "in")); err != nil || string(b) != input {
		t.Errorf("of the file that the program reads %q is left, %v", b, err)
	}
}

// TestImageOfChangingTree: an image is refused by name if a process of the program has started another one, or has
// ended, when CRIU saves them. The program goes on.
func TestImageOfChangingTree(t *testing.T) {
	criu := criuForTests(t)
	l := newPoCLLab(t)
	held := filepath.Join(built.dir, "held") + " 1000000000 never"
	p := l.startImaged(criu, "round 0", "sh", "-c", "trap 'sleep 600 & echo $! >more' USR1; "+
		"sleep 600 & echo $! >child; "+held+" & "+held+" >other & while :; do wait; done")
	t.Cleanup(func() { _ = syscall.Kill(-p.pid, syscall.SIGKILL) })
	other := &imaged{l: l, out: filepath.Join(l.dir, "other"), errs: p.errs}
	other.await("the other one did not begin", func() bool { return strings.Contains(other.text(), "round 0") })
	for _, c := range []struct{ change, want string }{
		{fmt.Sprintf("kill -USR1 %d; while [ ! -s more ]; do :; done", p.pid), "it has started processes meanwhile"},
		{"read n <child; kill -9 $n; while kill -0 $n 2>&-; do :; done", " has ended meanwhile"},
	} {
		l.executable("criu", "#!/bin/sh\n[ $1 = --version ] || { "+c.change+"; } >&-\nexec "+criu+" \"$@\"\n")
		p.criu = filepath.Join(l.dir, "criu")
		before := len(other.text())
		if out, err := p.image(p.take()...); err == nil || !strings.Contains(out, c.want) {
			t.Errorf("got %v, %s, want %q", err, out, c.want)
		}
		p.await("it does not go on", func() bool { return len(other.text()) > before })
	}
	if b, err := os.ReadFile(filepath.Join(p.dir, "holdfast.job")); err == nil {
		t.Errorf("without an image the directory is for those of one program: %s", b)
	}
	p.criu = criu
	p.mustImage(p.take()...)
	other.pid, other.dir, other.criu = child.Children(p.pid)[1], p.dir, criu
	if out, err := other.image(other.take()...); err == nil ||
		!strings.Contains(out, "is for images of another program (sh)") {
		t.Errorf("got %v, %s", err, out)
	}
}

// TestImageOfItself: a command that one of the processes has started cannot save these.
func TestImageOfItself(t *testing.T) {
	criu := criuForTests(t)
	l := newPoCLLab(t)
	p := l.startImaged(criu, "among what it has started", "sh", "-c", filepath.Join(built.dir, "held")+
		" 1000000000 never >rounds & until grep -q 'round 0' rounds; do :; done; "+
		filepath.Join(built.dir, "holdfast")+" image $$ --dir images --criu "+criu+" 2>&1")
	t.Cleanup(func() { _ = syscall.Kill(-p.pid, syscall.SIGKILL) })
	<-p.reaped
}

// TestPausedInNamespaces: of two programs with one number in PID namespaces of their own, the one that is named is
// paused.
func TestPausedInNamespaces(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root makes PID namespaces")
	}
	var all []*imaged
	for range 2 {
		l := newPoCLLab(t)
		all = append(all, l.startImaged("", "round 0", "unshare", "--pid", "--fork", "--kill-child", "--mount-proc",
			filepath.Join(built.dir, "held"), "1000000000", "never"))
	}
	for i, p := range all {
		other := all[1-i]
		t.Cleanup(func() { _ = syscall.Kill(p.pid, syscall.SIGKILL) })
		if out, err := p.l.try("pause", strconv.Itoa(p.pid)); err != nil {
			t.Fatalf("%v\n%s%s", err, out, p.said())
		}
		long, before := len(p.text()), len(other.text())
		other.await("the other one does not go on", func() bool { return len(other.text()) > before })
		if len(p.text()) > long {
			t.Error("it was not paused")
		}
		if out, err := p.l.try("resume", strconv.Itoa(p.pid)); err != nil {
			t.Fatalf("%v\n%s%s", err, out, p.said())
		}
		p.await("it does not go on", func() bool { return len(p.text()) > long })
	}
}

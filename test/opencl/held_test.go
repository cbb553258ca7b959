package opencl

import (
	"bytes"
	"flag"
	"math/rand/v2"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-hpc/holdfast/test/schema"
)

var (
	pauseCount = flag.Int("pauses", 3, "pauses of each program at random moments")
	pauseSeed  = flag.Uint64("pause-seed", 35, "seed of the moments and of the places")
)

// pausedProgram is a program whose output is collected while it is paused and resumed.
type pausedProgram struct {
	*running
	lines chan string
	ended chan error
}

func (l *lab) startPaused(device, name string, args ...string) *pausedProgram {
	l.t.Helper()
	p := &pausedProgram{l.startUntil("round 0", through(device), name, args...), make(chan string, 1),
		make(chan error, 1)}
	go func() {
		rest, err := p.rest()
		p.lines <- rest
		p.ended <- err
	}()
	return p
}

// pid returns the program's process as an argument.
func (p *pausedProgram) pid() string { return strconv.Itoa(p.Process.Pid) }

// try runs a command of the user's.
func (l *lab) try(args ...string) (string, error) {
	out, err := l.command(nil, "holdfast", args...).CombinedOutput()
	return string(out), err
}

// TestPausedAtRandom: programs with all kinds of objects, user events that are not set, threads that wait, call-backs
// and mappings are paused at random moments and resumed on either platform, in the command's process and at a server,
// and compute what they do undisturbed. Soaks set -pauses and -pause-seed.
func TestPausedAtRandom(t *testing.T) {
	commandLimit += time.Duration(*pauseCount) * 10 * time.Second
	r := rand.New(rand.NewPCG(*pauseSeed, 35))
	for _, program := range []string{"held", "moves"} {
		l := newLab(t)
		l.serve()
		places := []string{platform, another, "remote=" + l.socket() + "," + platform}
		file := filepath.Join(l.dir, "enough")
		p := l.startPaused(platform, program, "1000000000", file)
		for n := range *pauseCount {
			time.Sleep(time.Duration(r.IntN(80)) * time.Millisecond)
			if out, err := l.try("pause", p.pid()); err != nil {
				t.Fatalf("%s, seed %d, pause %d: %v\n%s%s", program, *pauseSeed, n, err, out, p.errs.Bytes())
			}
			place := places[r.IntN(len(places))]
			if out, err := l.try("resume", p.pid(), "--device", place); err != nil {
				t.Fatalf("%s, seed %d, resume %d on %s: %v\n%s%s", program, *pauseSeed, n, place, err, out,
					p.errs.Bytes())
			}
		}
		l.file("enough", "")
		got, err := p.before+<-p.lines, <-p.ended
		if err != nil {
			t.Fatalf("%s, seed %d: %v\n%s%s", program, *pauseSeed, err, last(got), p.errs.Bytes())
		}
		rounds := strings.Count(got, "round")
		t.Logf("%s: %d rounds", program, rounds)
		if program == "held" {
			continue // it checks itself
		}
		if want := l.run(without, program, strconv.Itoa(rounds), filepath.Join(l.dir, "never")); got != want {
			t.Errorf("%s, seed %d: the output differs: got\n%s\nwant\n%s", program, *pauseSeed, last(got), last(want))
		}
	}
}

// last returns the end of a text.
func last(text string) string { return text[max(0, len(text)-400):] }

// TestPausedFindsAForgottenArgument: the program that is paused notices when a kernel has another argument.
func TestPausedFindsAForgottenArgument(t *testing.T) {
	l := newPoCLLab(t)
	out, err := l.command(through(platform), filepath.Join(built.dir, "held"), "100", filepath.Join(l.dir, "never"),
		"forget").Output()
	if err == nil || !bytes.Contains(out, []byte("wrong: the count in round 7")) {
		t.Errorf("got %v\n%s", err, out)
	}
}

// TestPauseRefusals: what cannot be done is said, and the program goes on, or stays paused.
func TestPauseRefusals(t *testing.T) {
	l := newPoCLLab(t)
	p := l.startPaused(platform, "held", "1000000000", filepath.Join(l.dir, "enough"))
	expect := func(want string, args ...string) {
		t.Helper()
		if out, err := l.try(args...); err == nil || !strings.Contains(out, want) {
			t.Errorf("holdfast %q: got %v, %s, want %q", args, err, out, want)
		}
	}
	expect("it is not paused", "resume", p.pid())
	for _, verb := range []string{"pause", "resume", "pause"} {
		out, err := l.try(verb, p.pid(), "--json")
		state := map[string]string{"pause": `"state":"paused"`, "resume": `"state":"running"`}[verb]
		if err != nil || !strings.Contains(out, state) {
			t.Fatalf("%s: got %v, %s", verb, err, out)
		}
		if err := schema.Check(verb, out); err != nil {
			t.Error(err)
		}
	}
	expect("it is paused", "pause", p.pid())
	if out, err := l.try("status", p.pid()); err != nil ||
		!regexp.MustCompile(`held +OpenCL +paused +\d+\.\d s +\S+ \S+ in host memory +\w`).MatchString(out) {
		t.Errorf("got %v, %s", err, out)
	}
	if out, err := l.try("status", "--json", p.pid()); err != nil || schema.Check("status", out) != nil {
		t.Errorf("got %v, %s: %v", err, out, schema.Check("status", out))
	}
	expect("no device", "resume", p.pid(), "--device", "platform-that-is-not-there")
	if out, err := l.try("resume", p.pid()); err != nil || !strings.Contains(out, "is running") {
		t.Fatalf("got %v, %s", err, out)
	}
	l.file("enough", "")
	if got, err := <-p.lines, <-p.ended; err != nil {
		t.Errorf("%v\n%s%s", err, last(got), p.errs.Bytes())
	}
	e := l.startUntil("launched", through(platform), "endless")
	expect("its commands do not end", "pause", strconv.Itoa(e.Process.Pid), "--wait", "1s")
	_ = e.Process.Kill()
	_ = e.Wait() // it was killed
}

// TestKilledInPause: a command that is killed at some moment of a pause or of a resume leaves a program that goes on,
// stays paused, or gets CL_DEVICE_NOT_AVAILABLE. None computes anything wrong.
func TestKilledInPause(t *testing.T) {
	r := rand.New(rand.NewPCG(*pauseSeed, 36))
	for n := range 2 * *pauseCount {
		l := newPoCLLab(t)
		p := l.startPaused(platform, "held", "1000000000", filepath.Join(l.dir, "enough"))
		verb := []string{"pause", "resume"}[n%2]
		if verb == "resume" {
			if out, err := l.try("pause", p.pid()); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
		}
		c := l.command(nil, "holdfast", verb, p.pid())
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Duration(r.IntN(120)) * time.Millisecond)
		victim := "the verb"
		if r.IntN(2) == 0 {
			_ = c.Process.Kill()
		} else {
			victim = "the command"
			_ = syscall.Kill(serverOf(t, p.Process.Pid), syscall.SIGKILL) // it may just have ended
		}
		err := c.Wait()
		out, again := l.try("resume", p.pid())
		l.file("enough", "")
		got, ended := <-p.lines, <-p.ended
		lost := strings.Contains(p.errs.String(), ": -2\n") || strings.Contains(got, ": -2\n")
		if ended != nil && (victim == "the verb" || strings.Contains(got, "wrong") || !lost) {
			t.Errorf("seed %d, %d: %s killed in %s (%v; resume: %v, %s): %v\n%s%s", *pauseSeed, n, victim, verb, err,
				again, out, ended, last(got), p.errs.Bytes())
		}
	}
}

// TestKilledWhilePaused: nothing is left of a program that is killed while it is paused.
func TestKilledWhilePaused(t *testing.T) {
	l := newPoCLLab(t)
	p := l.startPaused(platform, "held", "1000000000", filepath.Join(l.dir, "enough"))
	if out, err := l.try("pause", p.pid()); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	server := serverOf(t, p.Process.Pid)
	_ = p.Process.Kill()
	<-p.ended
	for end := time.Now().Add(deadline); exists("/proc/" + strconv.Itoa(server)); {
		time.Sleep(10 * time.Millisecond)
		if time.Now().After(end) {
			t.Fatalf("process %d, which has the objects of the program, is still there", server)
		}
	}
}

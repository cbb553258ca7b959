package cuda

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-hpc/holdfast/internal/child"
	"github.com/holdfast-hpc/holdfast/internal/pause"
)

// twoGPUs returns the library in front, for programs that move between two GPUs.
func twoGPUs(t *testing.T) way {
	return pausable(filepath.Join(t.TempDir(), "usage")).with("FAKE_DEVICES=2")
}

// goes moves programs together, and reports whether their memory went from GPU to GPU.
func goes(t *testing.T, to string, programs ...*running) (direct bool, err error) {
	t.Helper()
	err = together(t, func(g *pause.Group) error {
		err := g.Move(t.Context(), patience, gpus(t, to))
		direct = g.Results()[0].Direct
		return err
	}, programs...)
	return direct, err
}

// counts starts a program that mostly waits, in the middle of whose launches faults are planted.
func (w way) counts(t *testing.T) *running {
	t.Helper()
	r := w.start(t, linked, "count")
	for r.used(t, 0) < 2<<20 { // until it launches
		time.Sleep(time.Millisecond)
	}
	return r
}

// TestMoveDirect: memory goes from GPU to GPU, back, and to its own; two programs change places.
func TestMoveDirect(t *testing.T) {
	want := alone().run(t, linked, longProgram...)
	w := twoGPUs(t)
	a := w.start(t, linked, longProgram...)
	a.launches(t, 1)
	for _, to := range []int{1, 0, 0, 1} {
		if direct, err := goes(t, fmt.Sprint(to), a); err != nil || !direct {
			t.Fatal(to, direct, err)
		}
		if a.used(t, to) == 0 || a.used(t, 1-to) != 0 {
			t.Errorf("on GPU %d: %d and %d bytes are in use", to, a.used(t, 0), a.used(t, 1))
		}
		if h := a.holders(); len(h) != 0 {
			t.Errorf("processes %d hold its memory still", h)
		}
	}
	b := w.start(t, resolved, longProgram...)
	for b.used(t, 0) == 0 { // it has a context, and no memory yet
		time.Sleep(time.Millisecond)
	}
	if direct, err := goes(t, "0=1,1=0", a, b); err != nil || !direct {
		t.Error(direct, err)
	}
	if err := paused(t, a); err != nil {
		t.Fatal(err)
	}
	if a.used(t, 0) != 0 || a.used(t, 1) == 0 {
		t.Errorf("one program of two is paused: %d and %d bytes are in use", a.used(t, 0), a.used(t, 1))
	}
	if err := resumed(t, a); err != nil {
		t.Fatal(err)
	}
	a.ends(t, want)
	b.ends(t, want)
}

// TestMoveNotDirect: where GPUs do not reach each other, or one has no room for both copies, the way is through the
// host.
func TestMoveNotDirect(t *testing.T) {
	want := alone().run(t, linked, "count")
	for _, v := range []string{"FAKE_APART=1", "FAKE_MEMORY=20000000"} {
		r := twoGPUs(t).with(v).counts(t)
		if direct, err := goes(t, "1", r); err != nil || direct || r.used(t, 1) == 0 {
			t.Errorf("%s: %v, %v, %d bytes", v, direct, err, r.used(t, 1))
		}
		r.ends(t, want)
	}
}

// TestMoveFails plants faults in a move: memory that is not to be had at the other GPU, and a copy that is not made.
// The program is back on its GPU with its memory, and moves the next time.
func TestMoveFails(t *testing.T) {
	want := alone().run(t, linked, "count")
	for fault, says := range map[string]string{
		"create:2":   "are not to be had",
		"peer":       "a copy is not what it was made from",
		"byte":       "a copy is not what it was made from",
		"restore":    "the driver cannot restore it",
		"checkpoint": "the driver's checkpoint fails",
		"unmap":      "its device memory cannot be given up",
	} {
		t.Run(fault, func(t *testing.T) {
			t.Parallel()
			r := twoGPUs(t).with("FAKE_FAILS=" + fault).counts(t)
			_, err := goes(t, "1", r)
			if err == nil || !strings.Contains(err.Error(), says) {
				t.Errorf("got %v, want %q", err, says)
			}
			if r.used(t, 0) == 0 || r.used(t, 1) != 0 {
				t.Errorf("%d and %d bytes are in use", r.used(t, 0), r.used(t, 1))
			}
			if fault != "peer" && fault != "byte" { // each process that holds memory has the fault
				if direct, err := goes(t, "1", r); err != nil || !direct || r.used(t, 1) == 0 {
					t.Error(direct, err)
				}
			}
			r.ends(t, want)
		})
	}
}

// holders returns the processes beside a program that hold its memory. They are children of no process here.
func (r *running) holders() (pids []int) {
	all, _ := filepath.Glob("/proc/[0-9]*/environ") // the pattern is good
	for _, path := range all {
		n, err := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		b, _ := os.ReadFile(path) // it may have ended
		if err == nil && n != r.pid() && strings.Contains(string(b), "FAKE_USAGE="+r.usage+"\x00") && alive(n) {
			pids = append(pids, n)
		}
	}
	return pids
}

func alive(pid int) bool {
	p, err := child.Look(pid)
	return err == nil && !p.Ended
}

// TestMoveKilled ends the process that holds the memory, the program, or the tool, behind each step of a move. While
// the program has its memory still it goes on; else it ends with the reason, and leaves nothing behind.
func TestMoveKilled(t *testing.T) {
	want := alone().run(t, linked, "count")
	const uuid0, uuid1 = "fafafafafafafafafafafafafafafa00", "fafafafafafafafafafafafafafafa01"
	steps := append([]string{"hold " + uuid0 + "=" + uuid1, "holds"}, stops...)
	for n := 2; n <= len(steps); n += 2 {
		for _, who := range []string{"holder", "program", "tool"} {
			t.Run(strings.Fields(steps[n-2])[0]+"/"+who, func(t *testing.T) {
				t.Parallel()
				r := twoGPUs(t).counts(t)
				s := converse(t, r)
				s.says(t, steps[:n]...)
				lists, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", r.pid())) // the pattern is good
				for _, list := range lists {
					if b, _ := os.ReadFile(list); len(b) != 0 { // the thread may have ended
						t.Errorf("the program has children %s", b)
					}
				}
				h := r.holders()
				if len(h) != 1 {
					t.Fatalf("%d hold its memory", h)
				}
				switch who {
				case "holder":
					if err := syscall.Kill(h[0], syscall.SIGKILL); err != nil {
						t.Fatal(err)
					}
					for alive(h[0]) {
						time.Sleep(time.Millisecond)
					}
					if n == len(steps) {
						fmt.Fprintln(s, "resume "+uuid0+"="+uuid1+","+uuid1+"="+uuid0)
						var exit *exec.ExitError
						if err := r.cmd.Wait(); !errors.As(err, &exit) || !strings.Contains(r.said.String(),
							"the program cannot go on: the process that is to hold its memory has gone") {
							t.Errorf("%v\n%s", err, r.said.String())
						}
						return
					}
					if fmt.Fprintln(s, steps[n]); n >= 4 {
						if s.lines.Scan(); !strings.HasPrefix(s.lines.Text(), "error the process that is to hold") {
							t.Errorf("got %q", s.lines.Text())
						}
					}
				case "program":
					if err := r.cmd.Process.Kill(); err != nil {
						t.Fatal(err)
					}
					_ = r.cmd.Wait()
				}
				_ = s.Close()
				if who == "program" {
					for end := time.Now().Add(patience); alive(h[0]); time.Sleep(time.Millisecond) {
						if time.Now().After(end) {
							t.Fatal("its memory is held still")
						}
					}
					return
				}
				r.ends(t, want)
			})
		}
	}
}

// TestForksInAMove: children that a program gets while it moves have the descriptors that it has opened for them.
func TestForksInAMove(t *testing.T) {
	r := twoGPUs(t).start(t, linked, "descriptors")
	r.launches(t, 1)
	for n := range 100 {
		if direct, err := goes(t, fmt.Sprint((n+1)%2), r); err != nil || !direct {
			t.Fatal(direct, err)
		}
	}
	r.ends(t, alone().run(t, linked, "descriptors"))
}

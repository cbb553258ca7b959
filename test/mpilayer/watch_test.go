package mpilayer

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-hpc/holdfast/internal/job"
	"github.com/holdfast-hpc/holdfast/internal/mpirun"
	"github.com/holdfast-hpc/holdfast/test/schema"
)

// said is what a command writes, for a test that waits for it.
type said struct {
	mu  sync.Mutex
	all bytes.Buffer
}

func (s *said) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.all.Write(b)
}

func (s *said) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.all.String()
}

// watched starts a program under holdfast run --watch in a directory of its own, and ends it when the test does.
func watched(t *testing.T, l mpirun.Launcher, dir, program string, env []string, args ...string) (out *said,
	cmd *exec.Cmd) {
	t.Helper()
	j := under(l, dir, env, []string{"--watch"}, 3, append([]string{program}, args...)...)
	out, cmd = &said{}, exec.Command(j.Line[0], j.Line[1:]...)
	cmd.Env, cmd.Stdout, cmd.Stderr, cmd.Dir = mpirun.Environ(j.Env...), out, out, t.TempDir()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM) // it may have ended
		_ = cmd.Wait()
	})
	return out, cmd
}

// await waits until a text is there; false: for too long.
func (s *said) await(text string, limit time.Duration) bool {
	for end := time.Now().Add(limit); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if strings.Contains(s.String(), text) {
			return true
		}
	}
	return false
}

// deadlocks are the modes of watched.c that come to no end, and what is said of them.
var deadlocks = map[string][]string{
	"circle": {"DEADLOCK: 3 rank(s) wait for each other in a circle: rank 0 in MPI_Recv on communicator world from " +
		"rank 2 tag 7 -> rank 2 in MPI_Recv on communicator world from rank 1 tag 7 -> rank 1"},
	"tag":   {"DEADLOCK: 3 rank(s) wait for each other in a circle", "3 message(s) have been sent and not received"},
	"leave": {"DEADLOCK: 1 rank(s) wait for one that has ended", "rank 0 is beyond MPI_Finalize"},
	"send": {"DEADLOCK: 3 rank(s) wait for each other in a circle: rank 0 in MPI_Wait to rank 1 tag 7 -> " +
		"rank 1 in MPI_Wait to rank 2 tag 7 -> rank 2"},
	"sends": {"DEADLOCK: 3 rank(s) wait for each other in a circle: rank 0 in MPI_Waitall to rank 1 tag 7"},
	"persistent": {"DEADLOCK: 3 rank(s) wait for each other in a circle: rank 0 in MPI_Wait on communicator world to " +
		"rank 1 tag 7"},
}

// TestWatchNamesDeadlocks: a program that has no libholdfast is looked at, and a deadlock is named, in the log once and
// in the status.
func TestWatchNamesDeadlocks(t *testing.T) {
	dir := installed(t)
	for _, l := range mpirun.Launchers() {
		program := plain(t, l, "testdata/watched.c")
		for mode, want := range deadlocks {
			t.Run(l.Name+" "+mode, func(t *testing.T) {
				t.Parallel() // it waits
				out, cmd := watched(t, l, dir, program, []string{"HOLDFAST_WAIT_TIMEOUT=4s"}, mode)
				if !out.await("DEADLOCK", time.Minute) {
					t.Fatalf("no deadlock is named:\n%s", out)
				}
				for _, text := range want {
					if !strings.Contains(out.String(), text) {
						t.Errorf("want %q:\n%s", text, out)
					}
				}
				ask := exec.Command(filepath.Join(dir, "holdfast"), "status", "--json", "holdfast-watch")
				ask.Dir = cmd.Dir
				answer, err := ask.Output()
				var st job.Status
				if err != nil || json.Unmarshal(answer, &st) != nil || len(st.States) != 3 {
					t.Fatalf("holdfast status: %v: %s", err, answer)
				}
				call := "MPI_Recv"
				if _, of, ok := strings.Cut(want[0], "rank 0 in "); ok {
					call, _, _ = strings.Cut(of, " ")
				}
				if err := schema.Check("status", string(answer)); err != nil {
					t.Error(err)
				}
				if !st.Watched || !strings.Contains(want[0], st.Deadlock[:20]) || st.States[1].State != "blocked" ||
					st.States[1].Call != call || st.States[1].Waits == "" || st.States[1].Seconds < 1 {
					t.Errorf("holdfast status: got %s", answer)
				}
				time.Sleep(time.Second)
				if strings.Count(out.String(), "DEADLOCK") != 1 {
					t.Errorf("it is not named once:\n%s", out)
				}
			})
		}
	}
}

// TestCheckpointsNameDeadlocks: a program with libholdfast whose ranks all wait for their sends ends, and each receiver
// is named.
func TestCheckpointsNameDeadlocks(t *testing.T) {
	dir := installed(t)
	program := compile(t, dir, "testdata/watched.c", "-DCHECKPOINTS")
	for _, l := range mpirun.Launchers() {
		for mode, call := range map[string]string{"send": "MPI_Wait", "sends": "MPI_Waitall"} {
			t.Run(l.Name+" "+mode, func(t *testing.T) {
				t.Parallel() // it waits
				out, err := start(t, l, dir, t.TempDir(), 3, "env", "HOLDFAST_WAIT_TIMEOUT=1s", program[l.Name], mode)
				for _, to := range []string{"1", "2", "0"} {
					if want := " in " + call + " to rank " + to + " tag 7"; err == nil || !strings.Contains(out, want) {
						t.Errorf("%v, want %q:\n%s", err, want, out)
					}
				}
			})
		}
	}
}

// TestWatchHealthy: nothing is said of a program that computes, and at its end what a checkpoint would have met. Its
// daemon may die.
func TestWatchHealthy(t *testing.T) {
	dir := installed(t)
	for _, l := range mpirun.Launchers() {
		program := plain(t, l, "testdata/watched.c")
		for mode, want := range map[string]string{"late": "3 of 3 rank(s) were watched: 0 messages",
			"healthy": "MPI_Mprobe: a message that has been matched is not received (at ",
			"threads": "3 of 3 rank(s) were watched", "killed": ""} {
			t.Run(l.Name+" "+mode, func(t *testing.T) {
				t.Parallel() // it waits
				out, cmd := watched(t, l, dir, program, nil, mode, "8")
				if mode == "killed" {
					killDaemon(t, out)
				}
				if err := cmd.Wait(); err != nil || strings.Count(out.String(), "is done") != 3 {
					t.Fatalf("%v\n%s", err, out)
				}
				if strings.Contains(out.String(), "DEADLOCK") || !strings.Contains(out.String(), want) {
					t.Errorf("want %q:\n%s", want, out)
				}
			})
		}
	}
}

// killDaemon kills the node daemon of a run.
func killDaemon(t *testing.T, out *said) {
	t.Helper()
	const ready = ", process "
	if !out.await(ready, time.Minute) || !out.await("watching:", time.Minute) {
		t.Fatalf("no daemon:\n%s", out)
	}
	time.Sleep(3 * time.Second)
	_, number, _ := strings.Cut(out.String(), ready)
	number, _, _ = strings.Cut(number, "\n")
	if text, err := exec.Command("kill", "-9", number).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
}

// TestWatchFindsBug: a layer that says nothing of a receive names no deadlock.
func TestWatchFindsBug(t *testing.T) {
	broken, program := withBugs(t), plain(t, mpirun.MPICH, "testdata/watched.c")
	t.Parallel() // it waits
	out, _ := watched(t, mpirun.MPICH, broken, program, []string{"BUG=unsaid"}, "circle")
	if out.await("DEADLOCK", 15*time.Second) {
		t.Errorf("the bug is not found:\n%s", out)
	}
}

// TestWatchEndsLauncher: an mpirun that collects none of its ranks, all of which have ended, does not keep the run.
func TestWatchEndsLauncher(t *testing.T) {
	dir := installed(t)
	stuck := filepath.Join(t.TempDir(), "mpirun")
	if err := os.WriteFile(stuck, []byte("#!/bin/sh\ntrap '' TERM\ntrue &\nexec sleep 1000\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Parallel() // the script is closed: another's fork would keep it from being run
	holdfast := filepath.Join(dir, "holdfast")
	cmd := exec.CommandContext(t.Context(), holdfast, "run", "--watch", "--", stuck, "-np", "1", "true")
	cmd.Env, cmd.Dir = mpirun.Environ("HOLDFAST_BIN="+holdfast), t.TempDir()
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 137 ||
		!bytes.Contains(out, []byte("the launcher has not noticed")) {
		t.Errorf("%v\n%s", err, out)
	}
}

package child

import (
	"errors"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

const endsFirst = "FIRST_THREAD_ENDS"

func init() {
	if os.Getenv(endsFirst) != "" {
		runtime.LockOSThread() // the first one
	}
}

// TestMain is also a program whose first thread ends at once, and whose others end with its input.
func TestMain(m *testing.M) {
	if os.Getenv(endsFirst) == "" {
		os.Exit(m.Run())
	}
	reads := make(chan struct{})
	go func() {
		close(reads)
		var b [1]byte
		_, _ = os.Stdin.Read(b[:])
		os.Exit(0)
	}()
	<-reads
	_, _, _ = syscall.RawSyscall(syscall.SYS_EXIT, 0, 0, 0)
}

// TestEnded: a process has ended when its last thread has, not when its first one is a zombie.
func TestEnded(t *testing.T) {
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), endsFirst+"=1")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	pid := cmd.Process.Pid
	until := func(what string, come func(stat string, p State) bool) {
		t.Helper()
		for start := time.Now(); ; time.Sleep(time.Millisecond) {
			stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
			if err != nil {
				t.Fatal(err)
			}
			p, err := parseStat(stat)
			if err != nil || p.Parent != os.Getpid() || p.Started == 0 {
				t.Fatalf("%s: %+v, %v", stat, p, err)
			}
			if come(string(stat), p) {
				return
			}
			if time.Since(start) > time.Minute {
				t.Fatalf("%s: %s", what, stat)
			}
		}
	}
	until("its first thread lives", func(stat string, p State) bool {
		zombie := strings.Contains(stat, ") Z")
		if p.Ended {
			t.Fatalf("it has ended: %s", stat)
		}
		return zombie
	})
	if err := in.Close(); err != nil {
		t.Fatal(err)
	}
	until("it lives", func(_ string, p State) bool { return p.Ended })
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
	if _, err := Look(pid); !errors.Is(err, os.ErrNotExist) && !errors.Is(err, syscall.ESRCH) {
		t.Errorf("got %v of a process that has been collected", err)
	}
}

func TestLook(t *testing.T) {
	p, err := Look(os.Getpid())
	if err != nil || p.Ended || p.Parent != os.Getppid() || p.Started == 0 {
		t.Errorf("%+v, %v", p, err)
	}
	for _, stat := range []string{"", "1 (a) Z 1", "1 (b) R x" + strings.Repeat(" 1", 30)} {
		if _, err := parseStat([]byte(stat)); err == nil {
			t.Errorf("%q was read", stat)
		}
	}
	want := State{Ended: true, Parent: 7, Started: 9}
	if p, err := parseStat([]byte("5 (a) b) Z 7" + strings.Repeat(" 0", 15) + " 1 0 9 0")); err != nil || p != want {
		t.Errorf("%+v, %v", p, err)
	}
}

// TestHasEnded: a process has ended for sure if it ran on this machine, and is not there any more.
func TestHasEnded(t *testing.T) {
	cmd := exec.Command("sleep", "600")
	if err := cmd.Start(); err != nil {
		t.Skipf("no process to look at: %v", err)
	}
	here, pid := Machine(), cmd.Process.Pid
	sleep, err := Look(pid)
	if err != nil {
		t.Fatal(err)
	}
	if here == "" || HasEnded(here, pid, sleep.Started) {
		t.Errorf("a live process of %q has ended", here)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // it was killed
	if !HasEnded(here, pid, sleep.Started) {
		t.Error("a dead process has not ended")
	}
	if HasEnded("another", pid, sleep.Started) {
		t.Error("a process of another machine is known to have ended")
	}
}

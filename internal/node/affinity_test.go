package node

import (
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"
)

// bind binds all threads of this process.
func bind(t *testing.T, to *unix.CPUSet) {
	t.Helper()
	tasks, err := os.ReadDir("/proc/self/task")
	if err != nil {
		t.Fatal(err)
	}
	for _, task := range tasks {
		if tid, err := strconv.Atoi(task.Name()); err == nil {
			_ = unix.SchedSetaffinity(tid, to) // it may have ended
		}
	}
	runtime.SetDefaultGOMAXPROCS()
}

// TestWiden: a daemon that was started by a rank on one processor runs on those of the other ranks, too.
func TestWiden(t *testing.T) {
	t.Setenv("GOMAXPROCS", "") // a value from outside would stay
	var all, first, second unix.CPUSet
	if err := unix.SchedGetaffinity(0, &all); err != nil || all.Count() < 2 {
		t.Skipf("%d processors (%v), want 2", all.Count(), err)
	}
	for cpu := 0; second.Count() == 0; cpu++ {
		if !all.IsSet(cpu) {
			continue
		}
		if first.Count() == 0 {
			first.Set(cpu)
		} else {
			second.Set(cpu)
		}
	}
	rank := exec.Command("sleep", "600")
	if err := rank.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = rank.Process.Kill() // that is how it ends
		_ = rank.Wait()
	}()
	defer bind(t, &all)
	if err := unix.SchedSetaffinity(rank.Process.Pid, &second); err != nil {
		t.Fatal(err)
	}
	bind(t, &first)
	widen(rank.Process.Pid)
	var now unix.CPUSet
	if err := unix.SchedGetaffinity(0, &now); err != nil || now.Count() != 2 || runtime.GOMAXPROCS(0) != 2 {
		t.Errorf("%d processors (%v), GOMAXPROCS %d; want 2", now.Count(), err, runtime.GOMAXPROCS(0))
	}
}

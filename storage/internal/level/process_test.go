package level

import (
	"os/exec"
	"testing"
)

func TestProcessEnded(t *testing.T) {
	cmd := exec.Command("sleep", "600")
	if err := cmd.Start(); err != nil {
		t.Skipf("no process to look at: %v", err)
	}
	p := ThisProcess()
	if p.Machine == "" || ended(&p) {
		t.Fatalf("this process is %+v, gone %v", p, ended(&p))
	}
	p.PID = cmd.Process.Pid
	started, err := startOf(p.PID)
	if err != nil {
		t.Fatal(err)
	}
	if p.Started = started; ended(&p) {
		t.Error("a live process is gone")
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // it was killed
	if !ended(&p) {
		t.Error("a dead process is not gone")
	}
	p.Machine = "another"
	if ended(&p) {
		t.Error("a process of another machine is known to be gone")
	}
}

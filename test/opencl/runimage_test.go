package opencl

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/holdfast-hpc/holdfast/internal/job"
	"github.com/holdfast-hpc/holdfast/internal/report"
	"github.com/holdfast-hpc/holdfast/test/schema"
)

// imagedRun is a holdfast run --image of a program.
type imagedRun struct {
	*imaged
	cmd *exec.Cmd
}

// runImaged starts the command of a program, whose output goes on in its file.
func (l *lab) runImaged(criu string, env []string, flags, program []string) *imagedRun {
	l.t.Helper()
	r := &imagedRun{&imaged{l: l, criu: criu, out: filepath.Join(l.dir, "out"), errs: filepath.Join(l.dir, "errs"),
		dir: filepath.Join(l.dir, "images")}, nil}
	args := append([]string{"run", "--image", "--dir", r.dir, "--criu", criu}, flags...)
	r.cmd = l.command(append(env, "OCL_ICD_VENDORS="+built.vendors, "HOLDFAST_DEVICE="+platform), "holdfast",
		append(append(args, "--"), program...)...)
	var files [2]*os.File
	for i, name := range []string{r.out, r.errs} {
		f, err := os.OpenFile(name, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
		if err != nil {
			l.t.Fatal(err)
		}
		defer f.Close()
		files[i] = f
	}
	r.cmd.Stdout, r.cmd.Stderr = files[0], files[1]
	if err := r.cmd.Start(); err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(func() {
		_ = r.cmd.Process.Kill() // it may have ended
		r.kill9()
	})
	return r
}

// program returns the process of the program, 0 for none.
func (r *imagedRun) program() int {
	links, _ := filepath.Glob("/proc/[0-9]*/exe")
	for _, link := range links {
		exe, err := os.Readlink(link)
		pid, _ := strconv.Atoi(strings.Split(link, "/")[2])
		env, _ := os.ReadFile(filepath.Join(filepath.Dir(link), "environ"))
		if err == nil && filepath.Dir(exe) == built.dir && filepath.Base(exe) != "holdfast" &&
			strings.Contains(string(env), r.l.dir) {
			return pid
		}
	}
	return 0
}

// kill9 kills all processes of the program.
func (r *imagedRun) kill9() {
	for pid := r.program(); pid != 0; pid = r.program() {
		_ = syscall.Kill(pid, syscall.SIGKILL) // it may have ended
	}
}

// says waits for a text in what the run says.
func (r *imagedRun) says(text string) {
	r.l.t.Helper()
	r.await("it does not say "+text, func() bool {
		b, _ := os.ReadFile(r.errs) // it is there
		return strings.Contains(string(b), text)
	})
}

// computes waits until the program has counted on.
func (r *imagedRun) computes() {
	r.l.t.Helper()
	before := len(r.text())
	r.await("it does not compute", func() bool { return len(r.text()) > before })
}

func (r *imagedRun) exits(code int) {
	r.l.t.Helper()
	_ = r.cmd.Wait() // its code tells
	if got := r.cmd.ProcessState.ExitCode(); got != code || r.program() != 0 {
		r.l.t.Fatalf("it ends with code %d, want %d; the program is process %d\n%s", got, code, r.program(), r.said())
	}
}

// status asks holdfast run what it does.
func (r *imagedRun) status(verb string, flags ...string) (s job.Status) {
	r.l.t.Helper()
	out, err := r.l.try(append(append([]string{verb, "--json"}, flags...), r.dir)...)
	if err == nil {
		err = errors.Join(schema.Check(verb, out), json.Unmarshal([]byte(out), &s))
	}
	if err != nil {
		r.l.t.Fatalf("%s: %v\n%s%s", verb, err, out, r.said())
	}
	return s
}

// reported fails unless the report has starts that ended so, with the images that they were restored from.
func (r *imagedRun) reported(want ...string) {
	r.l.t.Helper()
	out := r.l.run(nil, "holdfast", "report", "--json", r.dir)
	var rep report.Report
	if err := json.Unmarshal([]byte(out), &rep); err != nil {
		r.l.t.Fatal(err)
	}
	var got []string
	for _, s := range rep.Runs {
		got = append(got, fmt.Sprintf("%s %d", s.Ended, s.Restored))
	}
	if !slices.Equal(got, want) || len(rep.Epochs) < 4 || rep.Epochs[0].Blocked.Max <= 0 ||
		rep.Epochs[0].Durable["global"] < rep.Epochs[0].Blocked.Max || len(rep.Faults) > 1 {
		r.l.t.Errorf("report: got %q, want %q\n%s", got, want, out)
	}
}

// TestRunImages: holdfast run takes images of a script with two programs on a signal, by the clock and when it is to
// end, and the script goes on from the newest that is whole: after a kill, and when the same command is given again, on
// another platform too. Its exit code is that of the command. holdfast status, request and report know it.
func TestRunImages(t *testing.T) {
	criu := criuForTests(t)
	l := newLab(t)
	held := filepath.Join(built.dir, "held") + " 1000000000 " + filepath.Join(l.dir, "enough")
	program := []string{"sh", "-c", held + " >" + l.dir + "/other & " + held + "; code=$?; wait; exit $code"}
	r := l.runImaged(criu, []string{"HOLDFAST_INTERVAL=off", "HOLDFAST_KEEP_EVERY=2"}, nil, program)
	r.await("it did not begin", func() bool { return strings.Contains(r.text(), "round 0") })
	_ = r.cmd.Process.Signal(syscall.SIGUSR1)
	r.says("image 1: the program stood still")
	r.computes()
	r.kill9()
	r.says("epoch 1 from global")
	r.computes()
	_ = r.cmd.Process.Signal(syscall.SIGTERM)
	r.says("stopped after the final checkpoint, epoch 2")
	r.exits(75)

	shard := filepath.Join(r.dir, "epoch-0000000002", "rank-000000.shard")
	b, err := os.ReadFile(shard)
	if err == nil {
		b[len(b)/2] ^= 1
		err = os.WriteFile(shard, b, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	r = l.runImaged(criu, []string{"HOLDFAST_INTERVAL=1s"}, []string{"--device", another}, program)
	r.says("trying the one before")
	r.says("restored epoch 1 from global")
	r.says("image 3: the program stood still")
	r.computes()
	before := r.status("status")
	if n := len(before.Epochs); n == 0 || before.Epochs[n-1].BlockedSeconds <= 0 || before.Epochs[n-1].Bytes == 0 ||
		before.Next == nil || before.Next.By != "interval" || before.Next.Seconds > 1 || before.Loss.Epoch < 3 {
		t.Errorf("status: %+v, next %+v, loss %+v", before, before.Next, before.Loss)
	}
	if after := r.status("request", "--wait"); after.Loss.Epoch <= before.Loss.Epoch {
		t.Errorf("request: the newest image is %d, and was %d", after.Loss.Epoch, before.Loss.Epoch)
	}
	l.file("enough", "")
	r.exits(0)
	r.checkCount(r.text())
	other, err := os.ReadFile(filepath.Join(l.dir, "other"))
	if err != nil {
		t.Fatal(err)
	}
	r.checkCount(string(other))
	r.reported("killed 0", "stopped 1", "closed 1")
	for e, want := range map[int]bool{1: false, 2: true} { // the newest two and each second one stayed
		if got := exists(filepath.Join(r.dir, fmt.Sprintf("epoch-%010d", e))); got != want {
			t.Errorf("image %d is there: %v, want %v", e, got, want)
		}
	}
	wrong := l.runImaged(criu, nil, nil, []string{filepath.Join(built.dir, "held"), "5"})
	wrong.says("is of another command")
	wrong.exits(2)
}

package cuda

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-hpc/holdfast/internal/mpirun"
	"github.com/holdfast-hpc/holdfast/internal/pause"
)

// pageRuns runs the commands of docs/START.md for CUDA programs, with the holdfast of a folder, MPICH's mpirun and a
// nvidia-smi that names the fake driver's GPUs. The page's user waits until the ranks compute, and so does the script.
func pageRuns(t *testing.T, holdfast string) {
	if err := mpirun.MPICH.Available(); err != nil {
		t.Skip(err)
	}
	page, err := os.ReadFile("../../docs/START.md")
	if err != nil {
		t.Fatal(err)
	}
	_, after, _ := strings.Cut(string(page), "## CUDA as it is")
	after, _, _ = strings.Cut(after, "\n## ")
	commands := regexp.MustCompile("(?m)^    .*\n").FindAllString(after, -1)
	if len(commands) != 4 || !strings.Contains(commands[0], " ./program &\n") || !strings.Contains(commands[3], " 3 ") {
		t.Fatalf("START.md has the commands %q", commands)
	}
	const ranks = 4
	longer := []string{"180", "plain"} // than it takes to type four commands on a busy machine
	dir, usage := t.TempDir(), filepath.Join(t.TempDir(), "usage")
	var gpus string
	for n := range 6 {
		gpus += fmt.Sprintf("GPU-fafafafa-fafa-fafa-fafa-fafafafafa0%d\\n", n)
	}
	smi := "#!/bin/sh\nprintf '" + gpus + "'\n"
	if err := os.WriteFile(filepath.Join(dir, "nvidia-smi"), []byte(smi), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, target := range map[string]string{"program": filepath.Join(built.dir, linked), "holdfast": holdfast,
		"mpirun": "mpirun.mpich", "hydra_pmi_proxy": "hydra_pmi_proxy"} { // mpirun looks for that one beside itself
		target, err := exec.LookPath(target)
		if err = errors.Join(err, os.Symlink(target, filepath.Join(dir, name))); err != nil {
			t.Fatal(err)
		}
	}
	first := strings.Replace(commands[0], "./program &", "./program "+strings.Join(longer, " ")+" >out &", 1)
	script := "set -e\n" + first + "pid=$!; echo $pid >pid; while [ ! -e computes ]; do sleep .02; done\n" +
		strings.Join(commands[1:], "") + "touch moved; while [ ! -e seen ]; do sleep .02; done\nwait $pid\n"
	r := &running{cmd: exec.CommandContext(t.Context(), "bash", "-c", script), usage: usage}
	r.cmd.Dir, r.cmd.Stdout, r.cmd.Stderr = dir, &r.out, &r.said
	r.cmd.Env = append(mpirun.Environ("PATH="+dir+":"+os.Getenv("PATH")), alone().with("FAKE_USAGE="+usage)...)
	if err := r.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- r.cmd.Wait() }()
	until := func(what string, is func() bool) {
		t.Helper()
		for end := time.Now().Add(time.Minute); !is(); time.Sleep(10 * time.Millisecond) {
			if time.Now().After(end) {
				_ = r.cmd.Cancel()
				t.Fatalf("waits for %s: %v\n%s%s", what, <-ended, r.out.String(), r.said.String())
			}
		}
	}
	touch := func(name string) {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	until("all ranks compute", func() bool {
		b, _ := os.ReadFile(filepath.Join(dir, "pid"))
		pid, err := strconv.Atoi(strings.TrimSpace(string(b)))
		if err != nil {
			return false
		}
		found, err := pause.Find([]int{pid})
		return err == nil && len(found) == ranks
	})
	touch("computes")
	until("the move", func() bool { _, err := os.Stat(filepath.Join(dir, "moved")); return err == nil })
	if r.used(t, 0) != 0 || r.used(t, 3) == 0 {
		t.Errorf("after migrate to GPU 3: %d bytes of GPU 0 are in use, %d of GPU 3", r.used(t, 0), r.used(t, 3))
	}
	touch("seen")
	if err := <-ended; err != nil {
		t.Fatalf("%v\n%s%s", err, r.out.String(), r.said.String())
	}
	for said, want := range map[string]int{" is paused: ": ranks, " is running: ": ranks} {
		if n := strings.Count(r.out.String(), said); n < want {
			t.Errorf("%d ranks say %q, want %d:\n%s", n, said, want, r.out.String())
		}
	}
	got, err := os.ReadFile(filepath.Join(dir, "out"))
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(got)), "\n")
	want := strings.Split(strings.TrimSpace(alone().run(t, linked, longer...).out), "\n")
	slices.Sort(lines)
	want = slices.Repeat(want, ranks)
	slices.Sort(want)
	if !slices.Equal(lines, want) {
		t.Errorf("%d ranks compute\n%s\nwant\n%s", ranks, strings.Join(lines, "\n"), strings.Join(want, "\n"))
	}
}

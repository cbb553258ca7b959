package opencl

import (
	"flag"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

var sanitize = flag.Bool("sanitize", false, "run threads with the library under the sanitizers")

// TestThreads: eight threads on shared contexts and queues get right results.
func TestThreads(t *testing.T) {
	l := newPoCLLab(t)
	if out := l.run(through(platform), "threads", "3"); out != "over\n" {
		t.Error(out)
	}
}

// TestThreadsSanitized: the sanitizers find nothing in the library, neither then, nor when its
// server is killed while threads wait. make soak-opencl runs it.
func TestThreadsSanitized(t *testing.T) {
	if !*sanitize {
		t.Skip("without -sanitize")
	}
	for _, sanitizer := range []string{"thread", "address,undefined"} {
		t.Run(sanitizer, func(t *testing.T) {
			l := newLab(t)
			env := l.sanitized(sanitizer, "threads", "waits", "killed")
			if out := l.run(env, filepath.Join(l.dir, "threads"), "3"); !strings.HasSuffix(out, "over\n") {
				t.Error(out)
			}
			for program, line := range map[string]string{"waits": "waiting", "killed": "going"} {
				p := l.startUntil(line, env, filepath.Join(l.dir, program), "7")
				if err := syscall.Kill(serverOf(t, p.Process.Pid), syscall.SIGKILL); err != nil {
					t.Fatal(err)
				}
				if out, err := p.rest(); err != nil || !strings.HasSuffix(out, "over\n") {
					t.Errorf("%s: %v\n%s%s", program, err, out, p.errs.Bytes())
				}
			}
		})
	}
}

// sanitized builds the library and programs with a sanitizer into the lab, and gives the variables
// of a program that runs on PoCL through that library.
func (l *lab) sanitized(sanitizer string, programs ...string) []string {
	l.t.Helper()
	sources, err := filepath.Glob("../../lib/opencl/*/*.c")
	if err != nil {
		l.t.Fatal(err)
	}
	common, err := filepath.Glob("../../lib/common/*.c")
	if err != nil {
		l.t.Fatal(err)
	}
	lib := filepath.Join(l.dir, "libholdfast-opencl.so")
	flags := []string{"-std=gnu11", "-g", "-O1", "-pthread", "-fsanitize=" + sanitizer, "-fno-sanitize-recover=all"}
	commands := [][]string{append(append(flags, "-fPIC", "-shared", "-fvisibility=hidden", "-o", lib),
		append(sources, common...)...)}
	for _, p := range programs {
		commands = append(commands, append(flags, "-o", filepath.Join(l.dir, p), "testdata/"+p+".c", "-lOpenCL"))
	}
	for _, c := range commands {
		if out, err := exec.Command("gcc", c...).CombinedOutput(); err != nil {
			l.t.Fatalf("gcc %s: %v\n%s", strings.Join(c, " "), err, out)
		}
	}
	l.file("sanitized.icd", lib+"\n")
	return []string{"OCL_ICD_VENDORS=" + l.dir, "HOLDFAST_DEVICE=" + platform, "TSAN_OPTIONS=exitcode=66",
		"ASAN_OPTIONS=detect_leaks=0"}
}

// TestCancelled: threads that are cancelled in the library's calls hold no lock of others.
// PoCL's own hang then.
func TestCancelled(t *testing.T) {
	l := newPoCLLab(t)
	if got, want := l.run(through(platform), "cancelled"), "sum 3540\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

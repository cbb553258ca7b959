package opencl

import (
	"bufio"
	"bytes"
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-hpc/holdfast/test/launch"
)

// built is what TestMain has built: the command, the library, the programs.
var built struct {
	dir, vendors string
	lacks        string // why nothing could be built
}

func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(buildAndRun(m))
}

const poclFile = "/etc/OpenCL/vendors/pocl.icd"

// Programs run on one platform, through the library and without it, and move to another. With HOLDFAST_TEST_GPU, which
// make test-gpu sets, those are NVIDIA's and PoCL, else PoCL and rusticl. Some are compared with PoCL in both cases:
// NVIDIA's lets a program set a user event twice, loads a binary that is none, and takes the bytes of a write that
// waits for a read before that fills them.
var (
	platform, another = "pocl", "rusticl"
	onPoCLItself      = []string{"OCL_ICD_VENDORS=" + poclFile}
	without           = onPoCLItself
	onGPU             = os.Getenv("HOLDFAST_TEST_GPU") != ""
)

// useGPU makes NVIDIA's platform the one that programs run on.
func useGPU(dir string) error {
	platform, another = "nvidia", "pocl"
	own, both := filepath.Join(dir, "nvidia"), filepath.Join(dir, "both")
	pocl, err := os.ReadFile(poclFile)
	if err != nil {
		return err
	}
	for _, f := range []struct{ dir, name, library string }{
		{own, "nvidia.icd", nvidiaLibrary}, {both, "nvidia.icd", nvidiaLibrary}, {both, "pocl.icd", string(pocl)},
	} {
		if err := os.MkdirAll(f.dir, 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(f.dir, f.name), []byte(f.library+"\n"), 0o644); err != nil {
			return err
		}
	}
	without = []string{"OCL_ICD_VENDORS=" + own}
	vendors = []string{"OCL_ICD_VENDORS=" + both, "HOLDFAST_OPENCL_VENDORS=" + both}
	return nil
}

const nvidiaLibrary = "libnvidia-opencl.so.1"

// vendors are variables of servers, and of commands that serve one program: the platforms that they find. Without them
// those are the machine's.
var vendors []string

// onPoCL skips a test of what PoCL does, where programs run on another platform.
func onPoCL(t *testing.T) {
	t.Helper()
	if onGPU {
		t.Skip("compares with PoCL")
	}
}

func buildAndRun(m *testing.M) int {
	dir, err := os.MkdirTemp("", "holdfast-opencl-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	built.dir, built.vendors = dir, filepath.Join(dir, "vendors")
	for _, file := range []string{poclFile, "/usr/include/CL/cl_icd.h"} {
		if _, err := os.Stat(file); err != nil {
			built.lacks = "no " + file + ": make setup installs it"
			return m.Run()
		}
	}
	if err := launch.Build(dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	var commands [][]string
	programs, err := filepath.Glob("testdata/*.c")
	for _, file := range programs {
		out := filepath.Join(dir, strings.TrimSuffix(filepath.Base(file), ".c"))
		commands = append(commands,
			[]string{"gcc", "-std=gnu11", "-Wall", "-Werror", "-O1", "-pthread", "-I../../lib", "-o", out, file,
				"-lOpenCL", "-L" + dir, "-Wl,--as-needed,-rpath," + dir, "-lholdfast"})
	}
	for _, c := range commands {
		if out, err := exec.Command(c[0], c[1:]...).CombinedOutput(); err != nil {
			fmt.Fprintf(os.Stderr, "%s: %v\n%s", strings.Join(c, " "), err, out)
			return 1
		}
	}
	if err == nil {
		err = os.Mkdir(built.vendors, 0o755)
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(built.vendors, "holdfast.icd"),
			[]byte(filepath.Join(dir, "libholdfast-opencl.so")+"\n"), 0o644)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	if onGPU {
		if err := useGPU(dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	return m.Run()
}

// lab is a user's world of its own: keys, a place for sockets, a temporary directory.
type lab struct {
	t   *testing.T
	dir string
	env []string

	servers []int // their processes
}

func newLab(t *testing.T) *lab {
	t.Helper()
	if built.lacks != "" {
		t.Skip(built.lacks)
	}
	l := &lab{t: t, dir: t.TempDir()}
	if err := os.Chmod(l.dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, e := range os.Environ() {
		if !strings.HasPrefix(e, "HOLDFAST_") && !strings.HasPrefix(e, "OCL_") {
			l.env = append(l.env, e)
		}
	}
	l.env = append(l.env, "XDG_RUNTIME_DIR="+l.dir, "XDG_CONFIG_HOME="+l.dir, "RUSTICL_ENABLE=llvmpipe",
		"HOLDFAST_BIN="+filepath.Join(built.dir, "holdfast"))
	l.env = append(l.env, vendors...)
	return l
}

// newPoCLLab is newLab where servers load PoCL alone, which takes a tenth of the time that rusticl beside it does.
func newPoCLLab(t *testing.T) *lab {
	t.Helper()
	l := newLab(t)
	if !onGPU {
		l.env = append(l.env, onPoCLItself...)
	}
	return l
}

// commandLimit ends what hangs.
var commandLimit = 10 * time.Minute

func (l *lab) socket() string { return "unix:" + filepath.Join(l.dir, "holdfast-gpud.sock") }

// command returns a program of the lab with its environment.
func (l *lab) command(env []string, name string, args ...string) *exec.Cmd {
	l.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), commandLimit)
	l.t.Cleanup(cancel)
	if !strings.Contains(name, "/") {
		if own := filepath.Join(built.dir, name); exists(own) {
			name = own
		}
	}
	c := exec.CommandContext(ctx, name, args...)
	c.Env, c.Dir = append(append([]string(nil), l.env...), env...), l.dir
	return c
}

func exists(file string) bool {
	_, err := os.Stat(file)
	return err == nil
}

// through returns the variables of a program that runs through the library on a device.
func through(device string) []string {
	env := []string{"OCL_ICD_VENDORS=" + built.vendors, "HOLDFAST_DEVICE=" + device}
	if device == "pocl" && !onGPU {
		env = append(env, "HOLDFAST_OPENCL_VENDORS="+poclFile)
	}
	return env
}

// run gives what a program printed; it must succeed.
func (l *lab) run(env []string, name string, args ...string) string {
	l.t.Helper()
	c := l.command(env, name, args...)
	var out, errs bytes.Buffer
	c.Stdout, c.Stderr = &out, &errs
	if err := c.Run(); err != nil {
		l.t.Fatalf("%s %q: %v\n%s%s", name, args, err, out.Bytes(), errs.Bytes())
	}
	return out.String()
}

// serve starts the user's server, or one with other options, and returns when it answers.
func (l *lab) serve(options ...string) {
	l.t.Helper()
	c := l.command(nil, "holdfast", append([]string{"gpud", "--trust-sources"}, options...)...)
	out, err := c.StdoutPipe()
	if err == nil {
		err = c.Start()
	}
	if err != nil {
		l.t.Fatal(err)
	}
	l.servers = append(l.servers, c.Process.Pid)
	l.t.Cleanup(func() {
		_ = c.Process.Signal(syscall.SIGTERM)
		_ = c.Wait()
	})
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		if strings.HasPrefix(lines.Text(), "gpud: listens") {
			return
		}
	}
	l.t.Fatal("holdfast gpud did not begin to listen")
}

// running is a program that stands still until it gets a line.
type running struct {
	*exec.Cmd
	lines  *bufio.Scanner
	before string // what it has printed
	errs   *bytes.Buffer
}

// startUntil starts a program and returns when it has printed a line that begins so.
func (l *lab) startUntil(line string, env []string, name string, args ...string) *running {
	l.t.Helper()
	r := &running{Cmd: l.command(env, name, args...), errs: &bytes.Buffer{}}
	r.Stderr = r.errs
	out, err := r.StdoutPipe()
	if err == nil {
		err = r.Start()
	}
	if err != nil {
		l.t.Fatal(err)
	}
	r.lines = bufio.NewScanner(out)
	for r.lines.Scan() {
		r.before += r.lines.Text() + "\n"
		if strings.HasPrefix(r.lines.Text(), line) {
			return r
		}
	}
	l.t.Fatalf("%s ended before it said %q: %v\n%s", name, line, r.Wait(), r.errs.Bytes())
	return nil
}

// rest returns what the program prints until it ends.
func (r *running) rest() (string, error) {
	var all []string
	for r.lines.Scan() {
		all = append(all, r.lines.Text()+"\n")
	}
	return strings.Join(all, ""), r.Wait()
}

// move moves a program of the user's server.
func (l *lab) move(program, to string) {
	l.t.Helper()
	l.t.Log(l.run(nil, "holdfast", "migrate", l.socket(), program, to))
}

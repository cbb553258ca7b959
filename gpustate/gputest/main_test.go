package gputest

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-hpc/holdfast/gpustate"
	"github.com/holdfast-hpc/holdfast/gpustate/gpud"
)

// Roles of a process that the suite starts, and how it answers.
const (
	roleEnv     = "HOLDFAST_GPUTEST_ROLE"
	platformEnv = "HOLDFAST_GPUTEST_PLATFORM"
	fileEnv     = "HOLDFAST_GPUTEST_FILE"
	dirEnv      = "HOLDFAST_GPUTEST_DIR"

	exitMissing = 3 // the machine lacks the platform
)

// childLimit is after how long a child that hangs shows the stacks of its goroutines,
// which it has childStacks for. A suite takes a minute or two; each random program that
// -programs asks for gets another one. Servers end when the test lets go of them.
const (
	childLimit  = 15 * time.Minute
	childStacks = time.Minute
)

func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == workerArg {
		if err := gpud.RunWorker(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	flag.Parse()
	role := os.Getenv(roleEnv)
	if role == "" || role == "suite" {
		os.Exit(m.Run())
	}
	if err := play(role); err != nil {
		fmt.Fprintln(os.Stderr, err)
		var missing *gpustate.NoDeviceError
		if errors.As(err, &missing) {
			os.Exit(exitMissing)
		}
		os.Exit(1)
	}
	os.Exit(0)
}

// play is what a child does instead of tests.
func play(role string) error {
	p, err := current()
	if err != nil {
		return err
	}
	file := os.Getenv(fileEnv)
	switch role {
	case "server":
		ctx, cancel := context.WithCancel(context.Background())
		go func() { // until the parent goes away
			_, _ = io.Copy(io.Discard, os.Stdin)
			cancel()
		}()
		return Serve(ctx, os.Getenv(dirEnv), p, func() { fmt.Println("ready") })
	case "probe":
		d, err := gpustate.Open(p.Select)
		if err != nil {
			return err
		}
		fmt.Println(d.Info())
		return d.Close()
	case "write":
		if err := Write(p.Select, file); err != nil {
			return err
		}
		fmt.Println("written")
		select {} // until the parent kills this process
	case "read into objects":
		return Read(p.Select, file, true)
	case "read into nothing":
		return Read(p.Select, file, false)
	case "build":
		d, err := gpustate.Open(p.Select)
		if err != nil {
			return err
		}
		// unique to this run, so that nothing is in a cache on disk
		src := Sources
		src.OpenCL += "// " + file
		src.CUDA += "// " + file
		_, err = d.Program("ops", src, "")
		return errors.Join(err, d.Close())
	}
	return fmt.Errorf("unknown role %q", role)
}

// current returns the platform that this process was started for.
func current() (Platform, error) {
	dir := os.Getenv(dirEnv)
	list, err := Platforms(dir)
	if err != nil {
		return Platform{}, err
	}
	for _, p := range append(list, Remote(dir, list)...) {
		if p.Name == os.Getenv(platformEnv) {
			return p, nil
		}
	}
	return Platform{}, fmt.Errorf("unknown platform %q", os.Getenv(platformEnv))
}

// child returns this binary in a role on a platform.
func child(t *testing.T, p Platform, dir, role, file string, args ...string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	if role != "server" {
		limited, cancel := context.WithTimeout(ctx, childLimit+time.Duration(*programs)*time.Minute)
		t.Cleanup(cancel)
		ctx = limited
	}
	c := exec.CommandContext(ctx, self, args...)
	if role != "server" {
		c.Cancel = func() error { return c.Process.Signal(syscall.SIGQUIT) }
		c.WaitDelay = childStacks
	}
	c.Env = append(append(os.Environ(), p.Env...), roleEnv+"="+role, platformEnv+"="+p.Name,
		fileEnv+"="+file, dirEnv+"="+dir)
	return c
}

// remotes returns the remote forms of platforms, with their servers started. They
// end with the test.
func remotes(t *testing.T, dir string, list []Platform) []Platform {
	t.Helper()
	for _, p := range Remote(dir, list) {
		startServer(t, p, dir)
	}
	return Remote(dir, list) // with the addresses that they got
}

func startServer(t *testing.T, p Platform, dir string) *exec.Cmd {
	t.Helper()
	c := child(t, p, dir, "server", "")
	c.Stderr = os.Stderr
	in, err := c.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = in.Close()
		if err := c.Wait(); err != nil && c.ProcessState.ExitCode() > 0 {
			t.Errorf("server of %s: %v", p.Name, err)
		}
	})
	if !bufio.NewScanner(out).Scan() {
		t.Fatalf("server of %s did not start", p.Name)
	}
	return c
}

// present returns the platforms of this machine, and logs the reason for leaving others out.
func present(t *testing.T, dir string) []Platform {
	t.Helper()
	all, err := Platforms(dir)
	if err != nil {
		t.Fatal(err)
	}
	var list []Platform
	for _, p := range all {
		out, err := child(t, p, dir, "probe", "").CombinedOutput()
		var exit *exec.ExitError
		switch {
		case err == nil:
			t.Logf("%-9s %s", p.Name, strings.TrimSpace(string(out)))
			list = append(list, p)
		case errors.As(err, &exit) && exit.ExitCode() == exitMissing:
			t.Logf("%-9s left out: not on this machine", p.Name)
		default:
			t.Errorf("%s: %v\n%s", p.Name, err, out)
		}
	}
	return list
}

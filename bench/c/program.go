package c

import (
	"bufio"
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/holdfast-hpc/holdfast/bench"
	"github.com/holdfast-hpc/holdfast/internal/node"
)

//go:embed driver/driver.c
var driverSource []byte

// startLimit bounds a start of the program.
const startLimit = 3 * time.Minute

// build compiles the program against the library in dir, or what belongs to this holdfast.
func build(ctx context.Context, lib, dir string) (program string, err error) {
	if lib, err = bench.Library(lib, "libholdfast.so"); err != nil {
		return "", err
	}
	// The header lies beside the library in the source tree, and in include once installed.
	program, err = bench.CompileC(ctx, dir, driverSource, "-I"+lib, "-I"+filepath.Join(lib, "../include"), "-L"+lib,
		"-lholdfast", "-Wl,-rpath,"+lib)
	if err != nil && !errors.Is(err, bench.ErrNoCompiler) {
		err = fmt.Errorf("compile the program: %w", err)
	}
	return program, err
}

// daemon serves the starts of the program.
type daemon struct {
	cmd  *exec.Cmd
	stay io.Closer
	env  []string
	said said
}

// said is what the daemon has written.
type said struct {
	mu sync.Mutex // guards b
	b  bytes.Buffer
}

func (s *said) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *said) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// startDaemon starts the node daemon of a job with the level local alone.
func startDaemon(ctx context.Context, dir string) (*daemon, error) {
	holdfast, err := bench.Holdfast()
	if err != nil {
		return nil, err
	}
	local := filepath.Join(dir, "local")
	if err := os.Mkdir(local, 0o700); err != nil {
		return nil, err
	}
	d := &daemon{cmd: exec.CommandContext(ctx, holdfast, "node", "--stay")}
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "HOLDFAST_") && !strings.HasPrefix(v, "SLURM_") && !strings.HasPrefix(v, "PMI") {
			d.env = append(d.env, v)
		}
	}
	d.env = append(d.env, fmt.Sprintf("%s=bench-%d", node.KeyVar, os.Getpid()), "HOLDFAST_LOCAL="+local, "PMI_RANK=0",
		"PMI_SIZE=1")
	d.cmd.Env, d.cmd.Dir, d.cmd.Stderr = d.env, dir, &d.said
	stay, err := d.cmd.StdinPipe()
	out, oerr := d.cmd.StdoutPipe()
	if err := errors.Join(err, oerr); err != nil {
		return nil, err
	}
	d.stay = stay
	if err := d.cmd.Start(); err != nil {
		return nil, err
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || !strings.HasPrefix(line, node.ReadyLine) {
		return nil, errors.Join(fmt.Errorf("the node daemon does not start: %s%s", line, d.said.String()), d.end())
	}
	return d, nil
}

// fromMemory is how often the program was restored from the memory of the daemon.
func (d *daemon) fromMemory() int { return strings.Count(d.said.String(), "level=memory bytes=") }

func (d *daemon) end() error {
	err := errors.Join(d.stay.Close(), d.cmd.Wait())
	if err != nil {
		err = fmt.Errorf("the node daemon: %w\n%s", err, d.said.String())
	}
	return err
}

// job is the program and what it works on.
type job struct {
	name, program, dir string
	mib                int
}

// result is what a start of the program prints: seconds.
type result struct {
	Memcpy, Raw, Blocked, Durable, Point, Restored bench.Samples
	Same                                           bool
}

// start runs the program until it kills itself.
func (j job) start(ctx context.Context, d *daemon, mode string, runs int) (*result, error) {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, j.program, mode, j.dir, fmt.Sprint(int64(j.mib)<<20), fmt.Sprint(runs))
	var text bytes.Buffer
	cmd.Env, cmd.Stderr = d.env, &text
	out, err := cmd.Output()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL || len(out) == 0 {
		return nil, fmt.Errorf("the program ended (%v): %s%s", err, text.String(), d.said.String())
	}
	var r result
	if err := json.Unmarshal(out, &r); err != nil {
		return nil, fmt.Errorf("the program printed %q: %w", out, err)
	}
	return &r, nil
}

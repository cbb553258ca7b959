package c

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/holdfast-hpc/holdfast/bench"
	"github.com/holdfast-hpc/holdfast/internal/config"
	"github.com/holdfast-hpc/holdfast/internal/node/wire"
)

//go:embed driver/driver.c
var driverSource []byte

// startLimit bounds a start of the program.
const startLimit = 3 * time.Minute

// build compiles the program against the library in dir, or the one that belongs to this holdfast.
func build(ctx context.Context, lib, dir string) (program string, err error) {
	if lib, err = bench.Library(lib, "libholdfast.so"); err != nil {
		return "", err
	}
	// The header lies beside the library in the source tree, and in include once installed.
	program, err = bench.CompileC(ctx, dir, driverSource, []string{"cc", "gcc"}, "-I"+lib,
		"-I"+filepath.Join(lib, "../include"), "-L"+lib,
		"-lholdfast", "-Wl,-rpath,"+lib)
	if err != nil && !errors.Is(err, bench.ErrNoCompiler) {
		err = fmt.Errorf("compile the program: %w", err)
	}
	return program, err
}

// daemon serves the starts of the program.
type daemon struct {
	*bench.Server
	env []string
}

// startDaemon starts the node daemon of a job with the level local alone.
func startDaemon(ctx context.Context, dir string) (*daemon, error) {
	local := filepath.Join(dir, "local")
	if err := os.Mkdir(local, 0o700); err != nil {
		return nil, err
	}
	cmd, err := bench.Holdfast(ctx, "node", "--stay")
	if err != nil {
		return nil, err
	}
	d := &daemon{}
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "HOLDFAST_") && !strings.HasPrefix(v, "SLURM_") && !strings.HasPrefix(v, "PMI") {
			d.env = append(d.env, v)
		}
	}
	d.env = append(d.env, fmt.Sprintf("%s=bench-%d", config.NodeKeyVar, os.Getpid()), "HOLDFAST_LOCAL="+local,
		"PMI_RANK=0", "PMI_SIZE=1")
	cmd.Env, cmd.Dir = d.env, dir
	d.Server, err = bench.Serve(cmd, func(line string) bool { return strings.HasPrefix(line, wire.ReadyLine) })
	return d, err
}

// fromMemory returns how often the program was restored from the memory of the daemon.
func (d *daemon) fromMemory() int { return strings.Count(d.Said(), "level=memory bytes=") }

func (d *daemon) end() error { return errors.Join(d.Input.Close(), d.Wait()) }

// job is the program and its directories.
type job struct {
	name, program, dir string
	mib                int
}

// The output of a start of the program, in seconds.
const (
	memcpy   = "memcpy"
	raw      = "raw"
	blocked  = "blocked"
	durable  = "durable"
	point    = "point"
	restored = "restored" // only if every byte is unchanged
)

// start runs the program until it kills itself.
func (j job) start(ctx context.Context, d *daemon, mode string, runs int, want ...string) (bench.Figures, error) {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, j.program, mode, j.dir, fmt.Sprint(int64(j.mib)<<20), fmt.Sprint(runs))
	var text bytes.Buffer
	cmd.Env, cmd.Stderr = d.env, &text
	out, err := cmd.Output()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL || len(out) == 0 {
		return bench.Figures{}, fmt.Errorf("the program ended (%v): %s%s", err, text.String(), d.Said())
	}
	return bench.ReadFigures(string(out), want...)
}

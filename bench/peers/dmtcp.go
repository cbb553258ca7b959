package peers

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/holdfast-hpc/holdfast/bench"
)

// dmtcp checkpoints one process, without MPI and compression, and restarts it.
func (s *suite) dmtcp(ctx context.Context) error {
	bin, err := findDMTCP()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, jobLimit)
	defer cancel()
	d := &dmtcpRun{bin: bin, dir: filepath.Join(s.dir, "dmtcp"), bytes: int64(s.MiB) << 20}
	if err := os.MkdirAll(d.dir, 0o755); err != nil {
		return err
	}
	if err := d.all(ctx); err != nil {
		return err
	}
	row := bench.Row{Case: fmt.Sprintf("DMTCP, 1 process x %d MiB", s.MiB), Metric: waits, Unit: "s"}
	s.Add(row.Of(bench.Samples{d.took}, bench.Samples{d.raw}, nil))
	row.Metric = restart + " (with its end)"
	s.Add(row.Of(bench.Samples{d.back}, bench.Samples{d.rawRead}, nil))
	return nil
}

// findDMTCP returns the directory of DMTCP's commands.
func findDMTCP() (string, error) {
	if home := os.Getenv("DMTCP_HOME"); home != "" {
		bin := filepath.Join(home, "bin")
		if _, err := os.Stat(filepath.Join(bin, "dmtcp_launch")); err != nil {
			return "", fmt.Errorf("DMTCP_HOME is %s: %w", home, err)
		}
		return bin, nil
	}
	path, err := exec.LookPath("dmtcp_launch")
	if err != nil {
		return "", errors.New("not installed; to get it: " + getDMTCP)
	}
	return filepath.Dir(path), nil
}

// A dmtcpRun is one process under DMTCP. Times are in seconds.
type dmtcpRun struct {
	bin, dir                 string
	bytes                    int64
	raw, rawRead, took, back float64
}

// all builds the process, starts it, checkpoints it, ends it and restarts it.
func (d *dmtcpRun) all(ctx context.Context) (err error) {
	program, err := bench.CompileC(ctx, d.dir, holdSource, []string{"cc", "gcc"})
	if err != nil {
		return err
	}
	port := filepath.Join(d.dir, "port")
	job := exec.CommandContext(ctx, filepath.Join(d.bin, "dmtcp_launch"), "--new-coordinator", "--coord-port", "0",
		"--port-file", port,
		"--no-gzip", "--ckptdir", d.dir, program, d.dir, fmt.Sprint(d.bytes))
	job.Dir = d.dir
	var text bytes.Buffer
	job.Stdout, job.Stderr = &text, &text
	if err := job.Start(); err != nil {
		return err
	}
	defer func() { // it is over, or in the way
		_ = job.Process.Kill()
		_ = job.Wait()
	}()
	if err := await(ctx, filepath.Join(d.dir, "ready"), func(b []byte) error {
		_, err := fmt.Sscan(string(b), &d.raw, &d.rawRead)
		return err
	}); err != nil {
		return fmt.Errorf("%w: %s", err, firstLine(text.String()))
	}
	number, err := os.ReadFile(port)
	if err != nil {
		return err
	}
	coordinator := []string{"--coord-port", string(bytes.TrimSpace(number))}
	if d.took, err = d.timed(ctx, "dmtcp_command", append(coordinator, "--bcheckpoint")...); err != nil {
		return err
	}
	if _, err := d.timed(ctx, "dmtcp_command", append(coordinator, "--quit")...); err != nil {
		return err
	}
	return d.restart(ctx)
}

// restart starts the process again; it ends at once and reports whether its memory is
// the same.
func (d *dmtcpRun) restart(ctx context.Context) error {
	images, err := filepath.Glob(filepath.Join(d.dir, "ckpt_*.dmtcp"))
	if err != nil || len(images) != 1 {
		return fmt.Errorf("expected one image of the process, found %v", images)
	}
	if err := os.WriteFile(filepath.Join(d.dir, "go"), nil, 0o644); err != nil {
		return err
	}
	d.back, err = d.timed(ctx, "dmtcp_restart", "--new-coordinator", "--coord-port", "0", images[0])
	return err
}

// timed runs a command of DMTCP and returns its time in seconds.
func (d *dmtcpRun) timed(ctx context.Context, name string, args ...string) (float64, error) {
	cmd := exec.CommandContext(ctx, filepath.Join(d.bin, name), args...)
	cmd.Dir = d.dir
	return bench.Seconds(func() error {
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w: %s", name, err, firstLine(string(out)))
		}
		return nil
	})
}

// await reads a file once it is there.
func await(ctx context.Context, name string, read func([]byte) error) error {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		if b, err := os.ReadFile(name); err == nil {
			return read(b)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("the process did not start computing: %w", ctx.Err())
		}
	}
}

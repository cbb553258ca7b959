package gpubench

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"

	"github.com/holdfast-hpc/holdfast/gpustate"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/cuda"
)

// holdEnv makes a process one that holds device memory, see Hold.
const holdEnv = "HOLDFAST_GPUBENCH_HOLD"

// Hold is called by the process that Options.Self starts, before anything else:
// in a process that Run has started to be checkpointed by the CUDA driver it
// takes device memory, waits until its input ends, and exits. In all others it
// does nothing.
func Hold() {
	text := os.Getenv(holdEnv)
	if text == "" {
		return
	}
	if err := hold(text); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

func hold(text string) error {
	size, pci, _ := strings.Cut(text, " ")
	n, err := strconv.Atoi(size)
	if err != nil {
		return err
	}
	d, err := gpustate.Open(gpustate.Select{Kind: "cuda", PCI: pci})
	if err != nil {
		return err
	}
	b, err := d.Buffer("state", n)
	if err != nil {
		return err
	}
	q, err := d.Queue("q")
	if err != nil {
		return err
	}
	part := make([]byte, min(n, 64<<20))
	for i := range part {
		part[i] = byte(i * 7)
	}
	for off := 0; off+len(part) <= n; off += len(part) {
		if err := q.Write(b, off, part); err != nil {
			return err
		}
	}
	fmt.Println("holding")
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

// driverCheckpoint lets the CUDA driver checkpoint and restore a process that
// holds 4 GiB, for comparison.
func (r *runner) driverCheckpoint() error {
	const where, bytes = "driver's own checkpoint", 4 << 30
	if r.info.Kind != "cuda" {
		r.skip(where, "checkpoint", "only CUDA has one")
		return nil
	}
	self := r.opt.Self
	if self == nil {
		name, err := os.Executable()
		if err != nil {
			return err
		}
		self = []string{name}
	}
	c := exec.CommandContext(r.ctx, self[0], self[1:]...)
	c.Env = append(os.Environ(), fmt.Sprintf("%s=%d %s", holdEnv, bytes, r.info.PCI))
	c.Stderr = os.Stderr
	in, err := c.StdinPipe()
	if err != nil {
		return err
	}
	out, err := c.StdoutPipe()
	if err != nil {
		return err
	}
	if err := c.Start(); err != nil {
		return err
	}
	line, _ := bufio.NewReader(out).ReadString('\n')
	if line == "holding\n" {
		var t cuda.CheckpointTimes
		if t, err = cuda.Checkpoint(c.Process.Pid); err != nil {
			r.skip(where, "checkpoint", err.Error())
		} else {
			stop := (t.Lock + t.Checkpoint).Seconds()
			r.figure(where, "program waits, 4 GiB", "s", []float64{stop}, bytes/r.pinned, 0, noGoal)
			r.figure(where, "checkpoint", "GB/s", []float64{bytes / t.Checkpoint.Seconds() / 1e9}, r.pinned/1e9, 0, noGoal)
			r.figure(where, "restore", "GB/s", []float64{bytes / t.Restore.Seconds() / 1e9}, r.upload/1e9, 0, noGoal)
		}
	} else {
		r.skip(where, "checkpoint", "the program does not call gpubench.Hold, or its process failed")
	}
	_ = in.Close()
	return c.Wait()
}

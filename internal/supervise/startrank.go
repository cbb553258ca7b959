package supervise

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"syscall"
	"time"

	"github.com/holdfast-hpc/holdfast/internal/config"
	"github.com/holdfast-hpc/holdfast/internal/job"
	"github.com/holdfast-hpc/holdfast/internal/preload"
)

// announceTime bounds how long the start of a program is held up by telling of it.
const announceTime = 2 * time.Second

// StartRank stands before the program on srun's command line. It tells Run that the program
// starts on this node, and becomes the program: the connection stays open in it, so that its
// end tells of the program's, long before Open and without any help of the program's. One
// process of each node does so. The program's MPI gets libholdfast-mpi in front if Run says so.
func StartRank(ctx context.Context, line []string) error {
	path, err := exec.LookPath(line[0])
	if err != nil {
		return fmt.Errorf("start the program: %w", err)
	}
	if id := os.Getenv("SLURM_LOCALID"); id == "0" {
		announce(ctx)
	}
	if layer := os.Getenv(config.PreloadVar); layer != "" {
		if err := os.Setenv(preload.Var, preload.With(layer, os.Getenv(preload.Var))); err != nil {
			return err
		}
	}
	return fmt.Errorf("start %s: %w", path, syscall.Exec(path, line, os.Environ()))
}

// announce opens the connection. Without it the program runs all the same.
func announce(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, announceTime)
	defer cancel()
	c, err := job.Announce(ctx, os.Getenv(config.SupervisorVar), os.Getenv("SLURMD_NODENAME"),
		os.Getenv("SLURM_STEP_ID"))
	if err != nil {
		return
	}
	raw, err := c.(*net.TCPConn).SyscallConn()
	if err == nil {
		_ = raw.Control(func(fd uintptr) { // a copy that the program keeps: it is not closed on exec
			_, _ = syscall.Dup(int(fd)) // without it holdfast run takes the program for ended before Open
		})
	}
}

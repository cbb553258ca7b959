package doctor

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast-hpc/holdfast/coordinated/control"
	"github.com/holdfast-hpc/holdfast/slurm"
)

func lookNetwork(_ context.Context, r *report) {
	var have []string
	ifaces, err := net.Interfaces()
	for _, i := range ifaces {
		if i.Flags&net.FlagUp != 0 && i.Flags&net.FlagLoopback == 0 {
			have = append(have, i.Name)
		}
	}
	switch {
	case err != nil:
		r.add("network", "control plane", Failed, err.Error(), "the ranks need TCP between their nodes")
		return
	case r.Interface != "" && net.ParseIP(r.Interface) == nil:
		if _, err := net.InterfaceByName(r.Interface); err != nil {
			r.add("network", "control plane", Failed, fmt.Sprintf("interface %q: %v", r.Interface, err),
				fmt.Sprintf("set control.interface to one of %v, or leave it out", have))
			return
		}
	case len(have) == 0:
		state := Note
		if r.Nodes > 1 {
			state = Warning
		}
		r.add("network", "control plane", state, "only the loopback interface is up: jobs of one node work",
			"on a cluster bring up its network")
		return
	}
	l, err := net.Listen("tcp", ":0")
	if err != nil {
		r.add("network", "control plane", Failed, err.Error(), "the ranks listen on a port that the system chooses")
		return
	}
	l.Close()
	chosen, err := control.FindNetwork(r.Interface)
	if err != nil {
		r.add("network", "control plane", Failed, err.Error(), "name an interface that is up and has an address")
		return
	}
	r.add("network", "control plane", OK, fmt.Sprintf("TCP on %s; up are %s", chosen, strings.Join(have, ", ")), "")
}

func lookLimits(_ context.Context, r *report) {
	var lock, files unix.Rlimit
	if err := errors.Join(unix.Getrlimit(unix.RLIMIT_MEMLOCK, &lock),
		unix.Getrlimit(unix.RLIMIT_NOFILE, &files)); err != nil {
		r.add("limits", "rlimits", Failed, err.Error(), "")
		return
	}
	switch {
	case lock.Cur == unix.RLIM_INFINITY:
		r.add("limits", "locked memory", OK, "unlimited", "")
	case lock.Cur < 64<<20:
		state := Note
		for _, devices := range []string{"/sys/class/infiniband/*", "/dev/nvidia[0-9]*", "/dev/kfd"} {
			if found, _ := filepath.Glob(devices); len(found) > 0 {
				state = Warning // they read and write memory that stays in place
			}
		}
		r.add("limits", "locked memory", state, fmt.Sprintf("%d KiB: networks and GPUs want more for fast transfers",
			lock.Cur>>10),
			"ulimit -l unlimited, in /etc/security/limits.conf or Slurm's PropagateResourceLimits")
	default:
		r.add("limits", "locked memory", OK, fmt.Sprintf("%d MiB", lock.Cur>>20), "")
	}
	if files.Cur < 1024 {
		r.add("limits", "open files", Warning, fmt.Sprint(files.Cur), "ulimit -n 4096")
	} else {
		r.add("limits", "open files", OK, fmt.Sprint(files.Cur), "")
	}
}

func lookSlurm(ctx context.Context, r *report) {
	if _, err := exec.LookPath("scontrol"); err != nil {
		r.add("Slurm", "commands", Skipped, "no scontrol in PATH: no requeue, no deadline from Slurm", "")
		return
	}
	_, inside, err := slurm.FromEnv(os.Getenv)
	switch {
	case err != nil:
		r.add("Slurm", "job", Failed, err.Error(), "start the program with sbatch, srun or salloc")
	case inside:
		r.add("Slurm", "job", OK, fmt.Sprintf("inside job %s", os.Getenv("SLURM_JOB_ID")), "")
	}
	bounded, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	out, err := exec.CommandContext(bounded, "scontrol", "ping").CombinedOutput()
	if err != nil {
		s, remedy := Note, "on a machine without a running cluster this is normal"
		if inside {
			s, remedy = Failed, "the job cannot learn its time limit or be requeued; ask the administrators"
		}
		r.add("Slurm", "controller", s, "no answer: "+firstLine(string(out)), remedy)
		return
	}
	r.add("Slurm", "controller", OK, firstLine(string(out)), "")
}

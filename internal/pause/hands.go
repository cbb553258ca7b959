package pause

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/holdfast-hpc/holdfast/internal/child"
	"github.com/holdfast-hpc/holdfast/internal/config"
	"github.com/holdfast-hpc/holdfast/internal/job"
	"github.com/holdfast-hpc/holdfast/internal/shm"
)

// Visit is a request of holdfast run to the hands of a node: connections to its ranks there, under a number.
type Visit struct {
	Visit int  `json:"visit"`
	GPUs  bool `json:"gpus,omitempty"` // and which GPUs the node has
}

// Heard is a message of hands: the answer to a Visit, or that Slurm suspends or continues the job.
type Heard struct {
	Visit int `json:"visit,omitempty"`
	Doors int `json:"doors"` // connections that were made
	// Processes of the run that use OpenCL through libholdfast-opencl. Only commands on their node pause them.
	OpenCL []int `json:"opencl,omitempty"`
	Machine
	Error   string `json:"error,omitempty"`
	Suspend *bool  `json:"suspend,omitempty"`
}

// Machine describes a node.
type Machine struct {
	GPUs   []string `json:"gpus,omitempty"`    // UUIDs, in the order of their numbers
	NoGPUs string   `json:"no_gpus,omitempty"` // why they are not known
	Free   int64    `json:"free,omitempty"`    // bytes of host memory; 0: not known
}

// Serve is the hands of a node: it lets the holdfast run that a value like config.SupervisorVar names speak to the
// programs that it has started there, and in a job of Slurm reports Suspensions, until ctx ends or that does.
func Serve(ctx context.Context, supervisor, node string, slurm bool) error {
	c, err := job.CallHands(ctx, supervisor, node)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	var tells sync.WaitGroup
	if slurm {
		tells.Go(func() {
			Suspensions(ctx, func(is bool) { _ = c.Say(Heard{Suspend: &is}) }) // one that has ended need not know
		})
	}
	stop := context.AfterFunc(ctx, func() { _ = c.Close() })
	defer func() { stop(); cancel(); _ = c.Close(); tells.Wait() }()
	for {
		var v Visit
		if err := c.Await(&v); err != nil {
			return err
		}
		if err := c.Say(doors(ctx, supervisor, node, v)); err != nil {
			return err
		}
	}
}

// NodeName returns Slurm's name of this node, otherwise its host name.
func NodeName() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return cmp.Or(os.Getenv("SLURMD_NODENAME"), host)
}

// Suspensions calls tell when Slurm suspends the job of this process, which does not stop this process yet, and when it
// has it go on, until ctx ends.
func Suspensions(ctx context.Context, tell func(is bool)) {
	c := make(chan os.Signal, 8)
	signal.Notify(c, syscall.SIGTSTP, syscall.SIGCONT)
	defer signal.Stop(c)
	for {
		select {
		case s := <-c:
			tell(s == syscall.SIGTSTP)
		case <-ctx.Done():
			return
		}
	}
}

// doors connects holdfast run to its programs on this node.
func doors(ctx context.Context, supervisor, node string, v Visit) Heard {
	h := Heard{Visit: v.Visit}
	_, h.Free = shm.Machine()
	if v.GPUs {
		var err error
		if h.GPUs, err = gpus(ctx); err != nil {
			h.NoGPUs = err.Error()
		}
	}
	for _, p := range ours(openCLPrefix, supervisor, &h) {
		h.OpenCL = append(h.OpenCL, p.pid)
	}
	list := ours(doorPrefix, supervisor, &h)
	var limits []map[string]int64
	for _, p := range list {
		limits = append(limits, shm.Limits(p.pid))
	}
	h.Free = least(h.Free, limits)
	for _, p := range list {
		pid := p.pid
		if err := stopped(pid); err != nil {
			h.Error = fmt.Sprintf("process %d (%s): %s", pid, ProgramOf(pid), err)
			break
		}
		process, err := net.Dial("unix", doorPrefix+child.Name(pid))
		if err != nil {
			continue // it has ended
		}
		run, err := job.CallDoor(ctx, supervisor, node, v.Visit,
			job.Process{PID: pid, Program: ProgramOf(pid), Rank: rankOf(p.env)})
		if err != nil {
			h.Error = err.Error()
			_ = process.Close() // no command speaks to it
			break
		}
		h.Doors++
		go pass(process, run)
		go pass(run, process)
	}
	return h
}

// least returns how much memory programs can have of what a node has free, by the limits of the control groups that all
// of them are in, such as that of the job.
func least(free int64, limits []map[string]int64) int64 {
	if len(limits) == 0 {
		return free
	}
	for group, left := range limits[0] {
		if !slices.ContainsFunc(limits, func(l map[string]int64) bool { _, is := l[group]; return !is }) {
			free = min(free, max(left, 1)) // 0: not known
		}
	}
	return free
}

// openCLPrefix is that of package opencl.
const openCLPrefix = "@holdfast-opencl-"

// program is a process that a holdfast run has started.
type program struct {
	pid int
	env map[string]string
}

// ours returns the programs of a supervisor's run for which somebody listens here.
func ours(prefix, supervisor string, h *Heard) (list []program) {
	found, err := Mine(prefix)
	if err != nil {
		h.Error = err.Error()
	}
	address, _, _ := strings.Cut(supervisor, " ")
	for _, pid := range found {
		env := environ(pid)
		if strings.HasPrefix(env[config.SupervisorVar], address+" ") ||
			strings.HasPrefix(env[config.WatchVar], address+" ") {
			list = append(list, program{pid, env})
		}
	}
	return list
}

func pass(to, from net.Conn) {
	_, err := io.Copy(to, from)
	_ = errors.Join(err, to.Close(), from.Close()) // the other side notices
}

func environ(pid int) map[string]string {
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid)) // one that has ended has none
	env := map[string]string{}
	for v := range strings.SplitSeq(string(b), "\x00") {
		name, value, _ := strings.Cut(v, "=")
		env[name] = value
	}
	return env
}

// rankOf returns a rank's number in its launcher's variable; -1: there is none. A job of Slurm gives one to mpirun as
// well.
func rankOf(env map[string]string) int {
	for _, name := range []string{"OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", "SLURM_PROCID"} {
		if n, err := strconv.Atoi(env[name]); err == nil {
			return n
		}
	}
	return -1
}

// Far is a connection to a process of another node.
type Far struct {
	*job.Caller
	Machine *Machine // its node
}

// Join makes a group of processes of several nodes.
func Join(list []Far) (*Group, error) {
	g := &Group{}
	errs := make([]error, len(list))
	var greets sync.WaitGroup
	for i, f := range list {
		d := &door{Process: f.Process, node: f.Node, link: f.Caller, machine: f.Machine}
		g.doors = append(g.doors, d)
		greets.Go(func() {
			if errs[i] = d.hello(greetTime); errs[i] != nil {
				errs[i] = fmt.Errorf("%s: %w", d, errs[i])
			}
		})
	}
	greets.Wait()
	if err := errors.Join(errs...); err != nil {
		g.Close()
		return nil, err
	}
	g.begin()
	return g, nil
}

// silence is how long a process may take for a step without a word.
const silence = 5 * time.Minute

package pause

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"
)

// Program is a process that can be paused, as it is now.
type Program struct {
	Node    string   `json:"node,omitempty"`     // node of a rank of holdfast run; empty: this one
	Rank    *int     `json:"rank,omitempty"`     // number of the rank, if known
	PID     int      `json:"pid"`                // process ID
	Program string   `json:"program"`            // name of the program
	Library string   `json:"library"`            // library in front of its driver: CUDA or OpenCL
	State   string   `json:"state,omitempty"`    // running, paused, or busy while a command works on it
	Seconds float64  `json:"paused_s,omitempty"` // seconds since it was paused
	Bytes   int64    `json:"bytes"`              // bytes of device memory; if it is paused, in this machine's memory
	Devices []string `json:"devices"`            // devices that it uses, or used before it was paused
	Error   string   `json:"error,omitempty"`    // why some of this is not known
}

// lookTime is how long a process may take to say how it is.
const lookTime = 2 * time.Second

// Look returns how the CUDA programs are among the given processes and all that these have started; without any, those
// of this node that this user may pause.
func Look(ctx context.Context, pids []int) ([]Program, error) {
	found, err := Mine(doorPrefix)
	if len(pids) > 0 {
		found, err = Find(pids)
	}
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, lookTime)
	defer cancel()
	list := make([]Program, len(found))
	var looks sync.WaitGroup
	for i, pid := range found {
		looks.Go(func() { list[i] = look(ctx, pid) })
	}
	looks.Wait()
	return slices.DeleteFunc(list, func(p Program) bool { return p.State == "" }), nil // it has ended
}

func look(ctx context.Context, pid int) (p Program) {
	d, err := open(ctx, pid)
	if err == nil {
		defer d.Close()
		if p, err = d.look(); err == nil {
			return p
		}
	}
	p = Program{PID: pid, Program: ProgramOf(pid), Library: "CUDA"}
	switch {
	case errors.Is(err, errOther):
		p.State, p.Error = "busy", errOther.Error()
	case !errors.Is(syscall.Kill(pid, 0), syscall.ESRCH): // it may be another user's
		p.State, p.Error = "unknown", err.Error()
	}
	return p
}

func (d *door) look() (Program, error) {
	s, err := d.state()
	p := Program{Node: d.node, Rank: d.number(), PID: d.PID, Program: d.Program, Library: "CUDA", State: s.name,
		Seconds: s.seconds, Bytes: s.arena + s.other}
	for _, one := range s.devices {
		if u := one.uuid; one.used && len(u) == 32 {
			p.Devices = append(p.Devices, "GPU-"+u[:8]+"-"+u[8:12]+"-"+u[12:16]+"-"+u[16:20]+"-"+u[20:])
		}
	}
	return p, err
}

// number returns the rank's; nil: not known.
func (d *door) number() *int {
	if d.node == "" || d.Rank < 0 {
		return nil
	}
	return &d.Rank
}

// Programs says how those of the group are.
func (g *Group) Programs() ([]Program, error) {
	list, errs := make([]Program, len(g.doors)), make([]error, len(g.doors))
	for i, d := range g.doors {
		list[i], errs[i] = d.look()
	}
	return list, errors.Join(errs...)
}

// Mine lists the processes of this node for which somebody listens at an abstract socket, a prefix and child.Name, and
// which this user may pause.
func Mine(prefix string) ([]int, error) {
	found, err := listening(prefix)
	return slices.DeleteFunc(found, func(pid int) bool {
		info, err := os.Stat(fmt.Sprintf("/proc/%d", pid))
		if err != nil {
			return true
		}
		owner, is := info.Sys().(*syscall.Stat_t)
		return os.Getuid() != 0 && (!is || int(owner.Uid) != os.Getuid())
	}), err
}

package storage

import (
	"bytes"
	"errors"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
)

// process names a process among all machines and times.
type process struct {
	node    string // for people
	machine string // boot and PID namespace; "" when unknown
	pid     int
	started uint64 // clock ticks after boot; tells apart processes that had one PID
}

// thisProcess names the calling process.
var thisProcess = sync.OnceValue(func() process {
	p := process{pid: os.Getpid()}
	p.node, _ = os.Hostname()
	p.started, _ = startOf(p.pid)
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	space, serr := os.Readlink("/proc/self/ns/pid")
	if err == nil && serr == nil && p.started != 0 {
		p.machine = strings.TrimSpace(string(boot)) + " " + space
	}
	return p
})

// gone says that the process has ended for sure: it ran here and is not there
// any more. False also means "cannot be known from here".
func (p *process) gone() bool {
	if p.machine == "" || p.machine != thisProcess().machine {
		return false
	}
	started, err := startOf(p.pid)
	if err != nil {
		return errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ESRCH)
	}
	return started != p.started
}

// startOf reads when a process started. A zombie has ended.
func startOf(pid int) (uint64, error) {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return 0, err
	}
	// The name, in parentheses, may hold anything.
	fields := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
	const state, start = 0, 19
	if len(fields) <= start {
		return 0, errors.New("short stat")
	}
	if fields[state] == "Z" || fields[state] == "X" {
		return 0, os.ErrNotExist
	}
	return strconv.ParseUint(fields[start], 10, 64)
}

package level

import (
	"bytes"
	"errors"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"github.com/holdfast-hpc/holdfast/storage/internal/format"
)

// ThisProcess names the calling process in locks, so that others can tell whether it still runs.
var ThisProcess = sync.OnceValue(func() format.Process {
	p := format.Process{PID: os.Getpid()}
	p.Node, _ = os.Hostname()
	p.Started, _ = startOf(p.PID)
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	space, serr := os.Readlink("/proc/self/ns/pid")
	if err == nil && serr == nil && p.Started != 0 {
		p.Machine = strings.TrimSpace(string(boot)) + " " + space
	}
	return p
})

// ended reports whether a process has ended for sure: it ran here and is not there any more. False also means "cannot
// be known from here".
func ended(p *format.Process) bool {
	if p.Machine == "" || p.Machine != ThisProcess().Machine {
		return false
	}
	started, err := startOf(p.PID)
	if err != nil {
		return errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ESRCH)
	}
	return started != p.Started
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

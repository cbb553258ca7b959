package child

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
)

// State is one line of /proc/PID/stat.
type State struct {
	// Ended: all its threads have ended, and its parent has not collected it. The first thread alone may be a zombie
	// while others still compute, write, or hold open files.
	Ended  bool
	Parent int
	// Started counts the clock ticks from the start of the machine. A number that is used again differs in it.
	Started uint64
}

// Look describes a process. The error is [os.ErrNotExist] or [syscall.ESRCH] for one that has been collected.
func Look(pid int) (State, error) {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return State{}, err
	}
	return parseStat(b)
}

func parseStat(stat []byte) (p State, err error) {
	const state, parent, threads, started = 0, 1, 17, 19                      // proc_pid_stat(5) counts from 3
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:])) // the name may hold anything
	if len(fields) <= started {
		return p, fmt.Errorf("/proc/PID/stat has %d fields behind the name: %q", len(fields), stat)
	}
	p.Ended = fields[state] == "X" || fields[state] == "Z" && fields[threads] <= "1"
	if p.Parent, err = strconv.Atoi(fields[parent]); err == nil {
		p.Started, err = strconv.ParseUint(fields[started], 10, 64)
	}
	return p, err
}

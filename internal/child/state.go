package child

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
)

// State is one line of /proc/PID/stat.
type State struct {
	// Ended: all its threads have ended, and its parent has not collected it. The first thread alone may be a zombie
	// while others still compute, write, or hold open files.
	Ended   bool
	Stopped bool // by a signal, not by a debugger
	Parent  int
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

// Machine names this start of the machine's system and the PID namespace, by which a number means one process. It is
// empty if that cannot be told.
var Machine = sync.OnceValue(func() string {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	space, serr := os.Readlink("/proc/self/ns/pid")
	if err != nil || serr != nil {
		return ""
	}
	return strings.TrimSpace(string(boot)) + " " + space
})

// HasEnded reports whether a process has ended for sure: it ran here, by its Machine, and is not there any more. False
// also means "cannot be known from here".
func HasEnded(machine string, pid int, started uint64) bool {
	if machine == "" || machine != Machine() {
		return false
	}
	is, err := Look(pid)
	if err != nil {
		return errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ESRCH)
	}
	return is.Ended || is.Started != started
}

func parseStat(stat []byte) (p State, err error) {
	const state, parent, threads, started = 0, 1, 17, 19                      // proc_pid_stat(5) counts from 3
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:])) // the name may hold anything
	if len(fields) <= started {
		return p, fmt.Errorf("/proc/PID/stat has %d fields behind the name: %q", len(fields), stat)
	}
	p.Ended = fields[state] == "X" || fields[state] == "Z" && fields[threads] <= "1"
	p.Stopped = fields[state] == "T"
	if p.Parent, err = strconv.Atoi(fields[parent]); err == nil {
		p.Started, err = strconv.ParseUint(fields[started], 10, 64)
	}
	return p, err
}

// Name names a process in abstract sockets. A number alone is that of other processes, too, in other PID namespaces:
// the name has its number in its own one, and that one. A process that has ended has the name of one that is not there.
func Name(pid int) string {
	link, _ := os.Readlink("/proc/" + strconv.Itoa(pid) + "/ns/pid")
	status, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	_, numbers, _ := strings.Cut(string(status), "\nNSpid:")
	numbers, _, _ = strings.Cut(numbers, "\n")
	all := strings.Fields(numbers) // the last is that in the innermost namespace
	switch {
	case len(all) == 0:
		return nameIn("", strconv.Itoa(pid))
	case link == "" && len(all) == 1: // another user's, of this namespace
		return NameHere(pid)
	}
	return nameIn(link, all[len(all)-1])
}

// NameHere is Name for a number as this process's PID namespace has it.
func NameHere(pid int) string {
	link, _ := os.Readlink("/proc/self/ns/pid") // without /proc no command finds it
	return nameIn(link, strconv.Itoa(pid))
}

func nameIn(namespace, number string) string {
	return strings.Trim(namespace, "pid:[]") + "-" + number
}

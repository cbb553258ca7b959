package pause

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/holdfast-hpc/holdfast/internal/child"
)

// Find returns the processes that can be paused, of the given ones and all that these have started: for the process
// number of mpirun those are its ranks on this node.
func Find(pids []int) ([]int, error) { return FindAt(doorPrefix, errNoDoor, pids) }

// FindAt is Find for processes for which somebody listens at an abstract socket: a prefix and child.Name.
// Without one below each of the given processes the error is that of none.
func FindAt(prefix string, none error, pids []int) ([]int, error) {
	doors, err := listening(prefix)
	if err != nil {
		return nil, err
	}
	parents := parents()
	var found []int
	for _, pid := range pids {
		if _, err := os.Stat(fmt.Sprintf("/proc/%d", pid)); err != nil {
			return nil, fmt.Errorf("there is no process %d", pid)
		}
		n := len(found)
		for _, d := range doors {
			if below(parents, d, pid) {
				found = append(found, d)
			}
		}
		if len(found) > n {
			continue
		}
		if gone(pid) {
			return nil, fmt.Errorf("process %d has ended", pid)
		}
		return nil, fmt.Errorf("process %d (%s): %w", pid, ProgramOf(pid), none)
	}
	slices.Sort(found)
	return slices.Compact(found), nil
}

// gone reports whether a process has ended, or has no memory any more.
func gone(pid int) bool {
	_, err := os.Stat(fmt.Sprintf("/proc/%d/exe", pid))
	return errors.Is(err, fs.ErrNotExist)
}

// listening lists the processes of this node for which somebody listens. Those of PID namespaces that this process does
// not see are not among them.
func listening(prefix string) ([]int, error) {
	f, err := os.Open("/proc/net/unix")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	names := map[string]bool{} // a connection has a line, too
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if _, name, found := strings.Cut(lines.Text(), " "+prefix); found && strings.Contains(name, "-") {
			names[name] = true
		}
	}
	var pids []int
	note := func(pid int) {
		if name := child.Name(pid); names[name] {
			pids = append(pids, pid)
			delete(names, name)
		}
	}
	for _, name := range slices.Collect(maps.Keys(names)) {
		_, number, _ := strings.Cut(name, "-")
		if pid, err := strconv.Atoi(number); err == nil {
			note(pid) // as a rule it is of this namespace
		}
	}
	if len(names) > 0 {
		for pid := range parents() {
			note(pid)
		}
	}
	slices.Sort(pids)
	return pids, nil
}

// parents returns the parents of all processes.
func parents() map[int]int {
	of := map[int]int{}
	stats, _ := filepath.Glob("/proc/[0-9]*/stat") // the pattern is good
	for _, path := range stats {
		pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(path))) // a number
		if p, err := child.Look(pid); err == nil {                // else it has ended
			of[pid] = p.Parent
		}
	}
	return of
}

// Children returns the processes that any thread of a process has started, and that have not been collected.
func Children(pid int) (list []int) {
	for child, parent := range parents() {
		if parent == pid {
			list = append(list, child)
		}
	}
	slices.Sort(list)
	return list
}

// Tree is a process and all that it has started, itself first.
func Tree(pid int) []int {
	parents := parents()
	var list []int
	for p := range parents {
		if p != pid && below(parents, p, pid) {
			list = append(list, p)
		}
	}
	slices.Sort(list)
	return append([]int{pid}, list...)
}

func below(parents map[int]int, pid, top int) bool {
	for range len(parents) + 1 {
		if pid == top {
			return true
		}
		if pid = parents[pid]; pid == 0 {
			return false
		}
	}
	return false
}

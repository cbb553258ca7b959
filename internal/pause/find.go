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

// Exists returns an error if there is no process of a number.
func Exists(pid int) error {
	if _, err := os.Stat(fmt.Sprintf("/proc/%d", pid)); err != nil {
		return fmt.Errorf("there is no process %d", pid)
	}
	return nil
}

// FindAt is Find for processes for which somebody listens at an abstract socket: a prefix and child.Name.
// Without one below each of the given processes the error is that of none.
func FindAt(prefix string, none error, pids []int) ([]int, error) {
	doors, err := listening(prefix)
	if err != nil {
		return nil, err
	}
	parents := child.ParentsNow()
	var found []int
	for _, pid := range pids {
		if err := Exists(pid); err != nil {
			return nil, err
		}
		n := len(found)
		for _, d := range doors {
			if parents.Below(d, pid) {
				found = append(found, d)
			}
		}
		if len(found) > n {
			continue
		}
		if gone(pid) {
			return nil, fmt.Errorf("process %d has ended", pid)
		}
		return nil, fmt.Errorf("process %d (%s): %s%w", pid, ProgramOf(pid), apart(pid), none)
	}
	slices.Sort(found)
	return slices.Compact(found), nil
}

// apart returns the beginning of an error if a process, or one that it has started, is in another network namespace,
// whose sockets are not to be seen from here; "" if none is.
func apart(pid int) string {
	own, _ := os.Readlink("/proc/self/ns/net") // without /proc no process is found
	for _, p := range child.Tree(pid) {
		if n, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/net", p)); err == nil && n != own {
			return fmt.Sprintf("process %d has another network namespace, as in a container: run this command there "+
				"(nsenter --target %d --net); otherwise ", p, p)
		}
	}
	return ""
}

// gone reports whether a process has ended, or has no memory any more. Its first thread may have ended before others.
func gone(pid int) bool {
	threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*", pid)) // the pattern is good
	return !slices.ContainsFunc(threads, func(thread string) bool {
		_, err := os.Stat(thread + "/exe")
		return !errors.Is(err, fs.ErrNotExist)
	})
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
		for pid := range child.ParentsNow() {
			note(pid)
		}
	}
	slices.Sort(pids)
	return pids, nil
}

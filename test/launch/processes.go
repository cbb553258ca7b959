package launch

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Adopt makes this process the parent of every orphan among its descendants, so
// that ranks whose launcher has died can still be found and ended.
func Adopt() error {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("become the parent of orphans: %w", err)
	}
	return nil
}

// A process is one entry of /proc.
type process struct {
	pid, parent int
	zombie      bool
	args        []string
}

// descendants returns the living processes below pid, parents first.
func descendants(pid int) []process {
	all := processes()
	var found []process
	below := []int{pid}
	for len(below) > 0 {
		parent := below[0]
		below = below[1:]
		for _, p := range all {
			if p.parent == parent && !p.zombie {
				found = append(found, p)
				below = append(below, p.pid)
			}
		}
	}
	return found
}

// processes reads /proc. What ends while it is read is left out.
func processes() []process {
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	var all []process
	for _, name := range stats {
		stat, err := os.ReadFile(name)
		if err != nil {
			continue
		}
		p, err := parseStat(string(stat))
		if err != nil {
			continue
		}
		args, _ := os.ReadFile(filepath.Join(filepath.Dir(name), "cmdline"))
		p.args = strings.Split(strings.TrimSuffix(string(args), "\x00"), "\x00")
		all = append(all, p)
	}
	return all
}

// parseStat reads pid, state and parent from a line of /proc/PID/stat. The name
// of the program, in parentheses, may itself hold spaces and parentheses.
func parseStat(line string) (process, error) {
	open, end := strings.IndexByte(line, '('), strings.LastIndexByte(line, ')')
	if open < 1 || end < open {
		return process{}, fmt.Errorf("no name in %q", line)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(line[:open]))
	if err != nil {
		return process{}, err
	}
	fields := strings.Fields(line[end+1:])
	if len(fields) < 2 {
		return process{}, fmt.Errorf("no parent in %q", line)
	}
	parent, err := strconv.Atoi(fields[1])
	return process{pid: pid, parent: parent, zombie: fields[0] == "Z"}, err
}

// EndAll kills the processes below this one until none is left.
func EndAll() {
	endBelow(os.Getpid())
	reap()
}

// endBelow kills the processes below pid until none is left. Killing one can
// bring others to light, which were busy starting.
func endBelow(pid int) {
	for tries := 0; ; tries++ {
		left := descendants(pid)
		if len(left) == 0 {
			return
		}
		for _, p := range slices.Backward(left) {
			_ = unix.Kill(p.pid, unix.SIGKILL) // it may have ended by itself
		}
		if tries > 0 {
			<-time.After(10 * time.Millisecond) // for the kernel to end them
		}
	}
}

// reap collects ended children without a waiter.
func reap() {
	for {
		pid, err := unix.Wait4(-1, nil, unix.WNOHANG, nil)
		if err == unix.EINTR {
			continue
		}
		if err != nil || pid <= 0 {
			return
		}
	}
}

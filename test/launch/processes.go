package launch

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast-hpc/holdfast/internal/child"
)

// Adopt makes this process the parent of every orphan among its descendants, so
// that ranks whose launcher has died can still be found and ended.
func Adopt() error {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("become the parent of orphans: %w", err)
	}
	return nil
}

// descendants returns the living processes below pid.
func descendants(pid int) []int {
	return slices.DeleteFunc(child.Tree(pid)[1:], func(pid int) bool {
		p, err := child.Look(pid)
		return err != nil || p.Ended
	})
}

// arguments returns the command line of a process, and an empty program for one that has ended.
func arguments(pid int) []string {
	args, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	return strings.Split(strings.TrimSuffix(string(args), "\x00"), "\x00")
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
			_ = unix.Kill(p, unix.SIGKILL) // it may have ended by itself
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

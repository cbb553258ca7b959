package supervise

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/holdfast-hpc/holdfast/internal/child"
	"github.com/holdfast-hpc/holdfast/internal/supervise/decide"
)

// childrenEvery is how often a launcher's processes are looked at.
const childrenEvery = time.Second

// collects reports whether the launcher is the parent of ranks, and collects them.
func (l launcherKind) collects() bool { return l == launchOpenMPI || l == launchMPICH }

// watchChildren reports whether mpirun has processes left. That of Open MPI may wait for ever for a rank that was
// killed in MPI_Init, or for itself after TERM: all ranks have ended then, and it collects none of them.
func (s *start) watchChildren() {
	tick := time.NewTicker(childrenEvery)
	defer tick.Stop()
	for before := false; ; {
		select {
		case <-s.ctx.Done():
			return
		case <-tick.C:
		}
		if is := noneLeft(s.proc.PID()); is != before {
			before = is
			s.run.post(s.ctx, decide.NoneLeft{Is: is})
		}
	}
}

// noneLeft reports whether a process has children, and all of them have ended.
func noneLeft(pid int) bool {
	lists, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid)) // one for each thread
	zombies := 0
	for _, list := range lists {
		b, _ := os.ReadFile(list) // a thread that has ended has none
		for number := range bytes.FieldsSeq(b) {
			pid, _ := strconv.Atoi(string(number)) // a number
			if p, err := child.Look(pid); err != nil || !p.Ended {
				return false // it lives, or was collected just now
			}
			zombies++
		}
	}
	return zombies > 0
}

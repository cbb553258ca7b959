package node

import (
	"os"
	"runtime"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"
)

// widening is held by a call of widen: two at once would lose processors.
var widening sync.Mutex

// widen lets this process also run on the processors of a rank. Launchers bind ranks to processors, and the rank that
// started the daemon has left it its own. On these alone it would copy for all ranks next to one that computes, or that
// polls in MPI. It never runs on processors that no rank has.
func widen(pid int) {
	widening.Lock()
	defer widening.Unlock()
	var mine, its unix.CPUSet
	if unix.SchedGetaffinity(0, &mine) != nil || unix.SchedGetaffinity(pid, &its) != nil {
		return // it has gone, or nothing is bound
	}
	all := mine
	for i := range all {
		all[i] |= its[i]
	}
	if all == mine {
		return
	}
	for range 2 { // a thread that was made meanwhile may have the processors of before
		tasks, err := os.ReadDir("/proc/self/task")
		if err != nil {
			return
		}
		for _, t := range tasks {
			if tid, err := strconv.Atoi(t.Name()); err == nil {
				_ = unix.SchedSetaffinity(tid, &all) // it may have ended
			}
		}
	}
	if os.Getenv("GOMAXPROCS") == "" {
		runtime.SetDefaultGOMAXPROCS()
	}
}

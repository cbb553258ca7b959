package child

import (
	"path/filepath"
	"slices"
	"strconv"
)

// Parents has the parent of each process.
type Parents map[int]int

// ParentsNow looks at all processes.
func ParentsNow() Parents {
	of := Parents{}
	stats, _ := filepath.Glob("/proc/[0-9]*/stat") // the pattern is good
	for _, path := range stats {
		pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(path))) // a number
		if p, err := Look(pid); err == nil {                      // else it has ended
			of[pid] = p.Parent
		}
	}
	return of
}

// Below reports whether a process is top, or one that top and those below it have started.
func (p Parents) Below(pid, top int) bool {
	for range len(p) + 1 {
		if pid == top {
			return true
		}
		if pid = p[pid]; pid == 0 {
			return false
		}
	}
	return false
}

// Children returns the processes that any thread of a process has started, and that have not been collected.
func Children(pid int) (list []int) {
	for child, parent := range ParentsNow() {
		if parent == pid {
			list = append(list, child)
		}
	}
	slices.Sort(list)
	return list
}

// Tree is a process and all that it has started, itself first.
func Tree(pid int) []int {
	all := ParentsNow()
	var list []int
	for p := range all {
		if p != pid && all.Below(p, pid) {
			list = append(list, p)
		}
	}
	slices.Sort(list)
	return append([]int{pid}, list...)
}

package shm

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Machine returns the machine's memory, and how much of it can be had without
// ending processes; 0 if the system does not say.
func Machine() (total, available int64) {
	b, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0, 0
	}
	return entry(string(b), "MemTotal:") << 10, entry(string(b), "MemAvailable:") << 10
}

// Limits returns the control groups (of a job, a container) that limit the memory of a process, by their folders, and
// how many bytes each has left. A process that needs more ends, or another one of the group.
func Limits(pid int) map[string]int64 {
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid)) // one that has ended has none
	return limits("/sys/fs/cgroup", string(b))
}

func limits(root, groups string) map[string]int64 {
	list := map[string]int64{}
	for line := range strings.Lines(groups) {
		f := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(f) != 3 {
			continue
		}
		top, most, now, cache := root, "memory.max", "memory.current", ""
		if slices.Contains(strings.Split(f[1], ","), "memory") { // the first version of control groups
			top, most, now, cache = root+"/memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_"
		} else if f[1] != "" {
			continue
		}
		for group := filepath.Join("/", f[2]); ; group = filepath.Dir(group) {
			dir := filepath.Join(top, group)
			limit, used := number(filepath.Join(dir, most)), number(filepath.Join(dir, now))
			if limit >= 0 && limit < 1<<60 && used >= 0 { // else there is no limit
				stat, _ := os.ReadFile(filepath.Join(dir, "memory.stat")) // without it nothing is cached
				list[dir] = limit - used + entry(string(stat), cache+"inactive_file") +
					entry(string(stat), cache+"active_file")
			}
			if group == "/" {
				break
			}
		}
	}
	return list
}

// number reads one from a file; -1: it has none.
func number(path string) int64 {
	b, _ := os.ReadFile(path)
	n, err := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64)
	if err != nil {
		return -1
	}
	return n
}

// entry returns the number behind a name at the beginning of a line, of KiB if kB follows; 0: there is none.
func entry(text, name string) int64 {
	_, rest, _ := strings.Cut("\n"+text, "\n"+name+" ")
	line, _, _ := strings.Cut(rest, "\n")
	n, _ := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(line, "kB")), 10, 64)
	return n
}

package gpud

import (
	"os"
	"strconv"
	"strings"
)

// machineMemory is the machine's memory, and how much of it can be had without
// ending processes; 0 where the system does not say.
func machineMemory() (total, available int64) {
	b, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0, 0
	}
	return meminfo(string(b), "MemTotal:"), meminfo(string(b), "MemAvailable:")
}

func meminfo(text, field string) int64 {
	_, rest, found := strings.Cut("\n"+text, "\n"+field)
	line, _, _ := strings.Cut(rest, " kB\n")
	kib, err := strconv.ParseInt(strings.TrimSpace(line), 10, 64)
	if !found || err != nil {
		return 0
	}
	return kib << 10
}

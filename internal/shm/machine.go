package shm

import (
	"os"
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
	return field(string(b), "MemTotal:"), field(string(b), "MemAvailable:")
}

func field(text, name string) int64 {
	_, rest, found := strings.Cut("\n"+text, "\n"+name)
	line, _, _ := strings.Cut(rest, " kB\n")
	kib, err := strconv.ParseInt(strings.TrimSpace(line), 10, 64)
	if !found || err != nil {
		return 0
	}
	return kib << 10
}

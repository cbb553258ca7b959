package capture

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/holdfast-hpc/holdfast/internal/shm"
)

// FreeMemory returns the bytes that this process may still take, by the machine and by its control group; false if
// unknown.
func FreeMemory() (int64, bool) {
	_, free := shm.Machine()
	if free == 0 {
		return 0, false
	}
	if group, ok := groupMemory("/proc/self/cgroup", "/sys/fs/cgroup"); ok {
		free = min(free, group)
	}
	return free, true
}

// groupMemory returns the rest of the limit of this process's control group (version 2), or of one above it.
func groupMemory(self, root string) (int64, bool) {
	b, err := os.ReadFile(self)
	if err != nil {
		return 0, false
	}
	_, path, found := strings.Cut(string(b), "0::")
	if !found {
		return 0, false
	}
	path, _, _ = strings.Cut(path, "\n")
	least, known := int64(0), false
	for dir := filepath.Clean("/" + path); ; dir = filepath.Dir(dir) {
		limit, ok := readNumber(filepath.Join(root, dir, "memory.max"))
		used, also := readNumber(filepath.Join(root, dir, "memory.current"))
		if left := max(limit-used, 0); ok && also && (!known || left < least) {
			least, known = left, true
		}
		if dir == "/" {
			return least, known
		}
	}
}

// readNumber reads a file that holds a number; "max" is not one.
func readNumber(name string) (int64, bool) {
	b, err := os.ReadFile(name)
	if err != nil {
		return 0, false
	}
	n, err := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64)
	return n, err == nil
}

package doctor

import (
	"cmp"
	"fmt"
	"path/filepath"
	"regexp"
	"strconv"

	"github.com/holdfast-hpc/holdfast/internal/preload"
)

// driverVersion finds the number in /proc/driver/nvidia/version.
var driverVersion = regexp.MustCompile(`Kernel Module[^\n]*? (\d+)\.\d+`)

// lookPause checks whether CUDA programs can be paused and moved here: the library must be there, and the driver must
// be able to take a checkpoint.
func (r *report) lookPause(self, version string) {
	found := cmp.Or(preload.Beside(self, filepath.Join("holdfast", "cuda", preload.CUDA)),
		preload.Beside(self, preload.CUDA))
	if found == "" {
		r.add("devices", "pause", Note, fmt.Sprintf("%s is not installed with %s: holdfast run --cuda and holdfast "+
			"pause cannot be used", preload.CUDA, self), "make cuda builds it, make install puts it there")
		return
	}
	m := driverVersion.FindStringSubmatch(version)
	if m == nil {
		return // no NVIDIA driver of the usual kind, so the answer is not known
	}
	n, _ := strconv.Atoi(m[1]) // the expression has digits alone
	has := fmt.Sprintf("%s; the driver is %d", found, n)
	switch {
	case n < 570:
		r.add("devices", "pause", Note, has+": holdfast pause needs 570 or newer", "update the driver")
	case n < 580:
		r.add("devices", "pause", OK, has+": programs can be paused, to move them needs 580", "")
	default:
		r.add("devices", "pause", OK, has+": CUDA programs can be paused and moved", "")
	}
}

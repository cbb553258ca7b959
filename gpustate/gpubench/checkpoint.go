package gpubench

/*
#cgo LDFLAGS: -ldl
#include <dlfcn.h>

typedef int (*hf_gpubench_step)(int pid, void *args);

// hf_gpubench_do makes one of the CUDA driver's calls for another process: -1 if the driver lacks it.
static int hf_gpubench_do(const char *name, int pid)
{
	void            *lib = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
	hf_gpubench_step step = lib ? (hf_gpubench_step)dlsym(lib, name) : 0;
	return step ? step(pid, 0) : -1;
}
*/
import "C"

import (
	"fmt"
	"time"
)

// Checkpoint has the CUDA driver checkpoint and restore another process of this user, as the tool cuda-checkpoint does.
// It returns the time for which the process stood still until everything was saved, and the times of saving and
// restoring. A device of CUDA must be open.
func Checkpoint(pid int) (stopped, saving, restoring time.Duration, err error) {
	var took [4]time.Duration
	for i, name := range []string{"Lock", "Checkpoint", "Restore", "Unlock"} {
		name = "cuCheckpointProcess" + name
		begin := time.Now()
		if rc := C.hf_gpubench_do(C.CString(name), C.int(pid)); rc != 0 {
			return 0, 0, 0, fmt.Errorf("%s: %d", name, rc)
		}
		took[i] = time.Since(begin)
	}
	return took[0] + took[1], took[1], took[2], nil
}

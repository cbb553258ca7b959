package worker

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// confinedEnv marks a worker whose privileges are gone; confineEnv has one that
// begins give them up, and names directories that it needs, between colons. With readEnv it
// reads all files that its user can.
const (
	confineEnv  = "HOLDFAST_GPUD_CONFINE"
	readEnv     = "HOLDFAST_GPUD_CONFINE_READ"
	confinedEnv = "HOLDFAST_GPUD_CONFINED"
)

// confine gives up rights that a worker does not need and starts this program again: rights that a thread gives up are
// gone for its process only from the next program on. A kernel on a CPU is native code, and a compiler is a large
// program: neither is to reach the user's files, the server, or other programs' workers. docs/REMOTE.md lists what is
// out of reach, and the rest.
//
// It returns at once in a worker that is confined or need not be.
func confine() error {
	dirs, wanted := os.LookupEnv(confineEnv)
	if !wanted || os.Getenv(confinedEnv) != "" {
		return nil
	}
	runtime.LockOSThread()
	const self = "/proc/self/exe" // the binary that runs, whatever is at its path by now
	for r, most := range map[int]uint64{unix.RLIMIT_CORE: 0, unix.RLIMIT_NOFILE: 4096, unix.RLIMIT_FSIZE: 4 << 30} {
		var l unix.Rlimit
		if err := unix.Getrlimit(r, &l); err != nil {
			return fmt.Errorf("read a limit: %w", err)
		}
		l.Max = min(l.Max, most)
		l.Cur = min(l.Cur, l.Max)
		if err := unix.Setrlimit(r, &l); err != nil {
			return fmt.Errorf("set a limit: %w", err)
		}
	}
	if err := dropCapabilities(); err != nil {
		return err
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("give up new privileges: %w", err)
	}
	if err := landlock(self, filepath.SplitList(dirs), os.Getenv(readEnv) != ""); err != nil {
		return err
	}
	env := slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, confineEnv+"=") })
	return fmt.Errorf("start the confined worker: %w", syscall.Exec(self, os.Args, append(env, confinedEnv+"=1")))
}

// dropCapabilities leaves root no privileges behind the next start of a program.
// Others have none to lose.
func dropCapabilities() error {
	for c := uintptr(0); c <= 63; c++ {
		err := unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0)
		if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EPERM) {
			return nil // there are no more, or this user has none
		}
		if err != nil {
			return fmt.Errorf("drop capability %d: %w", c, err)
		}
	}
	return nil
}

// workerEnv returns the environment of a worker: the variables that compilers, loaders and drivers read, and nothing
// else. It may hold passwords.
func workerEnv(env []string) (list []string) {
	for _, v := range env {
		name, _, _ := strings.Cut(v, "=")
		if slices.Contains(workerNames, name) ||
			slices.ContainsFunc(workerPrefixes, func(p string) bool { return strings.HasPrefix(name, p) }) {
			list = append(list, v)
		}
	}
	return list
}

var workerNames = []string{"PATH", "HOME", "USER", "LOGNAME", "LANG", "TZ", "TMPDIR", "XDG_CACHE_HOME",
	"LD_LIBRARY_PATH", "LD_PRELOAD",
	"GODEBUG", "GOMAXPROCS", "GOMEMLIMIT", "GOTRACEBACK", "GOCOVERDIR", cacheEnv}

// cacheEnv names the directory of NVRTC's cache.
const cacheEnv = "HOLDFAST_BUILD_CACHE"

var workerPrefixes = []string{"LC_", "CUDA_", "NVIDIA_", "NV_", "OCL_", "OPENCL_", "CL_", "POCL_", "RUSTICL_",
	"CLOVER_", "GALLIUM_", "MESA_", "LP_",
	"LIBGL_", "VK_", "ROCR_", "HSA_", "HIP_", "AMD_", "GPU_", "ONEAPI_", "ZE_", "ZES_", "SYCL_", "IGC_", "NEO", "OMP_",
	"KMP_", "HWLOC_", "OCLGRIND_"}

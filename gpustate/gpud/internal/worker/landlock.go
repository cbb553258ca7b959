package worker

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Rights of Landlock, by the operations that they allow on a path.
const (
	toRead = unix.LANDLOCK_ACCESS_FS_READ_FILE | unix.LANDLOCK_ACCESS_FS_READ_DIR
	toRun  = toRead | unix.LANDLOCK_ACCESS_FS_EXECUTE
	toUse  = unix.LANDLOCK_ACCESS_FS_READ_FILE | unix.LANDLOCK_ACCESS_FS_READ_DIR | unix.LANDLOCK_ACCESS_FS_WRITE_FILE |
		unix.LANDLOCK_ACCESS_FS_IOCTL_DEV
	toKeep = toRun | unix.LANDLOCK_ACCESS_FS_WRITE_FILE | unix.LANDLOCK_ACCESS_FS_TRUNCATE |
		unix.LANDLOCK_ACCESS_FS_REFER |
		unix.LANDLOCK_ACCESS_FS_MAKE_REG | unix.LANDLOCK_ACCESS_FS_MAKE_DIR | unix.LANDLOCK_ACCESS_FS_MAKE_SYM |
		unix.LANDLOCK_ACCESS_FS_REMOVE_FILE | unix.LANDLOCK_ACCESS_FS_REMOVE_DIR
	ofFiles = unix.LANDLOCK_ACCESS_FS_EXECUTE | unix.LANDLOCK_ACCESS_FS_WRITE_FILE | unix.LANDLOCK_ACCESS_FS_READ_FILE |
		unix.LANDLOCK_ACCESS_FS_TRUNCATE | unix.LANDLOCK_ACCESS_FS_IOCTL_DEV
)

// LandlockVersion returns the landlock version of the running kernel, 0 if there is none.
func LandlockVersion() int {
	v, _, err := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	if err != 0 {
		return 0
	}
	return int(v)
}

// landlock closes all files to this thread but those that a worker needs, the ports of TCP, and
// signals and abstract sockets of other processes. The client's connection is open before. Older
// kernels know less of it; one that knows nothing closes nothing, which the server says when it
// starts. With read, all files can be read.
func landlock(self string, dirs []string, read bool) error {
	version := LandlockVersion()
	if version == 0 {
		return nil
	}
	all := uint64(1)<<13 - 1
	var attr struct{ fs, net, scope uint64 }
	size := unsafe.Sizeof(attr)
	attr.net = unix.LANDLOCK_ACCESS_NET_BIND_TCP | unix.LANDLOCK_ACCESS_NET_CONNECT_TCP
	switch {
	case version >= 6:
		attr.scope = unix.LANDLOCK_SCOPE_SIGNAL | unix.LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET
	case version >= 4:
		size = 16
	default:
		size = 8
	}
	for since, right := range map[int]uint64{2: unix.LANDLOCK_ACCESS_FS_REFER, 3: unix.LANDLOCK_ACCESS_FS_TRUNCATE,
		5: unix.LANDLOCK_ACCESS_FS_IOCTL_DEV} {
		if version >= since {
			all |= right
		}
	}
	attr.fs = all
	set, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(&attr)), size, 0)
	if errno != 0 {
		return fmt.Errorf("make a Landlock rule set: %w", errno)
	}
	defer unix.Close(int(set))
	paths := needed(self, dirs)
	if read {
		paths["/"] |= toRead
	}
	for path, rights := range paths {
		if err := allow(int(set), path, rights&all); err != nil {
			return err
		}
	}
	if _, _, errno := unix.Syscall(unix.SYS_LANDLOCK_RESTRICT_SELF, set, 0, 0); errno != 0 {
		return fmt.Errorf("put Landlock rules in force: %w", errno)
	}
	return nil
}

// ownProc is the system's directory about this process. Its rule holds for the directory as it is in the kernel's
// memory, which may drop it and make another: the process keeps it open until its end, over the start of the confined
// program too.
const ownProc = "/proc/self"

// allow opens a path, if it exists.
func allow(set int, path string, rights uint64) error {
	flags := unix.O_PATH
	if path != ownProc {
		flags |= unix.O_CLOEXEC
	}
	fd, err := unix.Open(path, flags, 0)
	if err != nil {
		return nil // no process that this one reaches
	}
	if path != ownProc {
		defer unix.Close(fd)
	}
	var s unix.Stat_t
	if err := unix.Fstat(fd, &s); err != nil {
		return fmt.Errorf("look at %s: %w", path, err)
	}
	if s.Mode&unix.S_IFMT != unix.S_IFDIR {
		rights &= ofFiles
	}
	var rule [12]byte // packed: eight bytes of rights, four of a descriptor
	*(*uint64)(unsafe.Pointer(&rule[0])) = rights
	*(*int32)(unsafe.Pointer(&rule[8])) = int32(fd)
	const beneath = 1 // LANDLOCK_RULE_PATH_BENEATH
	_, _, errno := unix.Syscall6(unix.SYS_LANDLOCK_ADD_RULE, uintptr(set), beneath, uintptr(unsafe.Pointer(&rule[0])),
		0, 0, 0)
	if errno != 0 {
		return fmt.Errorf("allow %s to a worker: %w", path, errno)
	}
	return nil
}

// needed returns the paths that a worker uses, and their purposes: programs and libraries, descriptions of the system,
// devices, caches of compilers.
func needed(self string, dirs []string) map[string]uint64 {
	list := map[string]uint64{}
	add := func(rights uint64, paths ...string) {
		for _, p := range paths {
			if filepath.IsAbs(p) {
				list[p] |= rights
			}
		}
	}
	add(toRun, "/usr", "/lib", "/lib32", "/lib64", "/bin", "/sbin", "/opt", "/nix/store", "/run/opengl-driver", self)
	add(toRead, "/proc", "/sys", "/run/nvidia-persistenced", "/run/systemd/resolve")
	for _, name := range []string{"OpenCL", "ld.so.cache", "ld.so.conf", "ld.so.conf.d", "localtime", "passwd", "group",
		"nsswitch.conf", "hosts",
		"resolv.conf", "host.conf", "gai.conf", "services", "nvidia", "nvidia-container-runtime", "vulkan", "glvnd",
		"drirc", "alternatives", "pocl"} {
		add(toRead, filepath.Join("/etc", name))
	}
	add(toUse, "/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/dri", "/dev/kfd")
	cards, _ := filepath.Glob("/dev/nvidia*")
	add(toUse, cards...)
	if len(cards) > 0 {
		// cuInit names its threads there
		add(toRead|unix.LANDLOCK_ACCESS_FS_WRITE_FILE|unix.LANDLOCK_ACCESS_FS_TRUNCATE, ownProc)
		add(toKeep, "/dev/shm", "/tmp/nvidia-mps", os.Getenv("CUDA_MPS_PIPE_DIRECTORY")) // CUDA's
	}
	add(toKeep, os.Getenv("TMPDIR"), os.Getenv("POCL_CACHE_DIR"), os.Getenv("CUDA_CACHE_PATH"), os.Getenv("GOCOVERDIR"))
	if c := os.Getenv(cacheEnv); c != "off" {
		add(toKeep, made(c))
	}
	if cache, err := os.UserCacheDir(); err == nil {
		for _, name := range []string{"holdfast", "pocl", "mesa_shader_cache", "mesa_shader_cache_db",
			"neo_compiler_cache", "clvk"} {
			add(toKeep, made(filepath.Join(cache, name)))
		}
	}
	if home, err := os.UserHomeDir(); err == nil {
		add(toKeep, made(filepath.Join(home, ".nv")))
	}
	for _, v := range []string{"LD_LIBRARY_PATH", "CUDA_HOME", "CUDA_PATH", "OCL_ICD_VENDORS", "OCL_ICD_FILENAMES",
		"OPENCL_VENDOR_PATH"} {
		for _, p := range filepath.SplitList(os.Getenv(v)) {
			add(toRun, p)
		}
	}
	add(toRun, strings.Fields(os.Getenv("LD_PRELOAD"))...)
	add(toKeep, dirs...)
	return list
}

// made makes a directory of a cache that is not there yet; a compiler could not.
func made(dir string) string {
	if filepath.IsAbs(dir) {
		if err := os.MkdirAll(dir, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
			return "" // a compiler does without a cache
		}
	}
	return dir
}

package worker

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
)

// tempDirs are the names of workers' directories for temporary files. The server holds a
// lock on each, which ends with it: a directory without one is left of a server that was
// killed.
const tempDirs = "holdfast-worker-*.d"

// makeTempDir makes a directory and locks it.
func makeTempDir() (path string, lock *os.File, err error) {
	for {
		if path, err = os.MkdirTemp("", tempDirs); err != nil {
			return "", nil, fmt.Errorf("make a worker's directory: %w", err)
		}
		if lock, err = os.Open(path); errors.Is(err, os.ErrNotExist) {
			continue // a server that starts took it for one that is left
		}
		if err != nil {
			return "", nil, errors.Join(fmt.Errorf("make a worker's directory: %w", err), os.Remove(path))
		}
		locked := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		// some file systems have no locks: nobody removes it there
		if !errors.Is(locked, unix.EWOULDBLOCK) && isAt(lock, path) {
			return path, lock, nil
		}
		_ = lock.Close()
	}
}

func isAt(f *os.File, path string) bool {
	open, err := f.Stat()
	if err != nil {
		return false
	}
	there, err := os.Lstat(path)
	return err == nil && os.SameFile(open, there)
}

// sweep removes directories that servers left when they were killed: empty ones of the
// user that workers run as.
func (l *Launcher) sweep() {
	uid := uint32(os.Geteuid())
	if l.drop != nil {
		uid = l.drop.Uid
	}
	list, err := filepath.Glob(filepath.Join(os.TempDir(), tempDirs))
	if err != nil {
		return // the directory has a name that Glob does not take: what is left stays
	}
	for _, path := range list {
		if removeLeft(path, uid) {
			l.svc.Log.Info("removed the directory of a killed server", "path", path)
		}
	}
}

// removeLeft removes a directory of the user that is empty and not locked.
func removeLeft(path string, uid uint32) bool {
	f, err := os.OpenFile(path, unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return false
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return false
	}
	if of, ok := st.Sys().(*syscall.Stat_t); !ok || of.Uid != uid {
		return false
	}
	return unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil && unix.Rmdir(path) == nil
}

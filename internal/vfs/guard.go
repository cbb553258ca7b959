package vfs

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
)

// ErrUnsafe marks a file or directory that is refused for its kind, or because another user could have changed it.
var ErrUnsafe = errors.New("refused")

// UnsafeError says which file or directory is refused, and why. It matches
// ErrUnsafe.
type UnsafeError struct {
	Path    string
	Why     string
	Foreign bool // OS.AllowForeign would accept it
}

// Error names the path, and why it is refused.
func (e *UnsafeError) Error() string {
	s := e.Path + " is refused: " + e.Why
	if e.Foreign {
		s += "; if you trust them nevertheless, set HOLDFAST_ALLOW_FOREIGN=true"
	}
	return s
}

// Is makes errors.Is(err, ErrUnsafe) true.
func (e *UnsafeError) Is(target error) bool { return target == ErrUnsafe }

// safeFlags open files of a directory of checkpoints: a FIFO is not waited for, and a link is not followed.
const safeFlags = unix.O_NONBLOCK | unix.O_NOFOLLOW | unix.O_CLOEXEC

// openRegular opens a regular file and nothing else. It exists, unless flags say to make it.
func (o OS) openRegular(name string, flags int) (*os.File, error) {
	f, err := os.OpenFile(name, flags|safeFlags, o.Sharing.file())
	if err != nil {
		if info, lerr := os.Lstat(name); lerr == nil && !info.Mode().IsRegular() {
			return nil, notRegular(name, info)
		}
		return nil, err
	}
	info, err := f.Stat()
	if err == nil {
		if !info.Mode().IsRegular() {
			err = notRegular(name, info)
		} else {
			err = o.checkOwner(name, info)
		}
	}
	if err == nil {
		// Reads of a regular file may wait, as for a file that has to come from tape.
		_, err = unix.FcntlInt(f.Fd(), unix.F_SETFL, flags)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

func notRegular(name string, info fs.FileInfo) error {
	return &UnsafeError{Path: name, Why: kindText(info.Mode()) + " is where a file should be"}
}

func kindText(m fs.FileMode) string {
	switch m.Type() {
	case fs.ModeDir:
		return "a directory"
	case fs.ModeSymlink:
		return "a symbolic link"
	case fs.ModeNamedPipe:
		return "a FIFO"
	case fs.ModeSocket:
		return "a socket"
	case 0:
		return "a file"
	}
	return "a device"
}

// checkOwner refuses a file that another user could have written. Root could have written anything, so root is
// accepted.
func (o OS) checkOwner(name string, info fs.FileInfo) error {
	uid := info.Sys().(*syscall.Stat_t).Uid
	switch {
	case o.AllowForeign:
		return nil
	case uid != 0 && uid != uint32(os.Geteuid()):
		return &UnsafeError{Path: name, Foreign: true,
			Why: fmt.Sprintf("it belongs to user %d and you are user %d", uid, os.Geteuid())}
	case info.Mode().Perm()&0o022 != 0 && !sticky(info):
		return &UnsafeError{Path: name, Foreign: true,
			Why: fmt.Sprintf("other users may write to it (mode %04o; chmod go-w prevents that)", info.Mode().Perm())}
	}
	return nil
}

// sticky reports whether all users may create files in a directory and only their owners can
// remove or rename them, as in /tmp and scratch directories.
func sticky(info fs.FileInfo) bool { return info.IsDir() && info.Mode()&fs.ModeSticky != 0 }

// CheckDir returns an error if a directory must not be used: it is something else, or
// other users own it or may write to it. With link a symbolic link to a
// directory is accepted if only this user or root can have made it.
func (o OS) CheckDir(name string, link bool) error {
	info, err := os.Lstat(name)
	if err != nil {
		return err
	}
	if info.Mode().Type() == fs.ModeSymlink {
		if !link {
			return &UnsafeError{Path: name, Why: "a symbolic link is where a directory should be"}
		}
		if err := o.checkLink(name, info); err != nil {
			return err
		}
		if info, err = os.Stat(name); err != nil {
			return err
		}
	}
	if !info.IsDir() {
		return &fs.PathError{Op: "open", Path: name, Err: unix.ENOTDIR}
	}
	return o.checkOwner(name, info)
}

// checkLink refuses a link to a directory that others may have put there.
func (o OS) checkLink(name string, info fs.FileInfo) error {
	if o.AllowForeign {
		return nil
	}
	uid := info.Sys().(*syscall.Stat_t).Uid
	if uid != 0 && uid != uint32(os.Geteuid()) {
		return &UnsafeError{Path: name, Foreign: true, Why: fmt.Sprintf("it is a symbolic link of user %d", uid)}
	}
	parent, err := os.Stat(filepath.Dir(filepath.Clean(name)))
	if err != nil {
		return err
	}
	if parent.Mode().Perm()&0o022 != 0 && !sticky(parent) {
		return &UnsafeError{Path: name, Foreign: true, Why: "it is a symbolic link in a directory that other users " +
			"may write to"}
	}
	return nil
}

// openDir opens a directory for listing or syncing, and nothing else.
func openDir(name string) (*os.File, error) {
	return os.OpenFile(name, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
}

// Sharing selects the users besides the owner who may read new files.
type Sharing int

// Kinds of sharing: the users that may read. Only the owner may ever write.
const (
	Private Sharing = iota // no other user
	Group                  // the group
	World                  // everybody
)

func (s Sharing) file() fs.FileMode { return [...]fs.FileMode{0o600, 0o640, 0o644}[s] }
func (s Sharing) dir() fs.FileMode  { return [...]fs.FileMode{0o700, 0o750, 0o755}[s] }

// ParseSharing reads "private", "group" or "world"; "" is private.
func ParseSharing(text string) (Sharing, error) {
	switch text {
	case "", "private":
		return Private, nil
	case "group":
		return Group, nil
	case "world":
		return World, nil
	}
	return Private, fmt.Errorf("%q is not private, group or world", text)
}

// ReadFile reads a small regular file of at most limit bytes.
func (o OS) ReadFile(name string, limit int64) ([]byte, error) {
	f, err := o.openRegular(name, os.O_RDONLY)
	if err != nil {
		return nil, err
	}
	b, err := io.ReadAll(io.LimitReader(f, limit+1)) // it may grow meanwhile
	if err == nil && int64(len(b)) > limit {
		err = fmt.Errorf("%s is longer than %d bytes", f.Name(), limit)
	}
	return b, errors.Join(err, f.Close())
}

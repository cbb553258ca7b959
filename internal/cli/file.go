package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// WriteFile makes a file with the output of fill. It gets its name when it is complete and on the disk, and replaces
// one that is there only by force. A device or a pipe is written to as it is.
func WriteFile(name string, force bool, fill func(f *os.File) error) (err error) {
	exists := fmt.Errorf("%s exists: remove it, or use --force", name)
	if _, serr := os.Lstat(name); serr == nil && !force {
		return exists
	}
	if info, serr := os.Stat(name); serr == nil && !info.Mode().IsRegular() {
		f, err := os.OpenFile(name, os.O_WRONLY, 0)
		if err != nil {
			return err
		}
		return errors.Join(fill(f), f.Close())
	}
	dir, base := filepath.Split(name)
	temp := filepath.Join(dir, fmt.Sprintf(".%s.%d.tmp", base, os.Getpid()))
	f, err := os.OpenFile(temp, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o666)
	if err != nil {
		return err
	}
	defer func() {
		if rerr := os.Remove(temp); rerr != nil && !errors.Is(rerr, fs.ErrNotExist) {
			err = errors.Join(err, rerr)
		}
	}()
	if err = fill(f); err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	if !force {
		err = os.Link(temp, name)
		if errors.Is(err, fs.ErrExist) {
			return exists
		}
		if err == nil {
			return nil
		}
		// a file system without links
	}
	return os.Rename(temp, name)
}

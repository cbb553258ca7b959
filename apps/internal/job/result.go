package job

import (
	"bufio"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// target follows symbolic links and returns the file to write and its info; the info is nil if
// there is no such file.
func target(name string) (string, os.FileInfo, error) {
	info, err := os.Stat(name)
	switch {
	case err == nil && info.IsDir():
		return name, nil, errors.New("it is a directory")
	case err == nil && !info.Mode().IsRegular():
		return name, info, nil
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return name, nil, err
	}
	for range 40 { // as many links as Linux follows
		to, err := os.Readlink(name)
		if err != nil {
			break
		}
		if !filepath.IsAbs(to) {
			to = filepath.Join(filepath.Dir(name), to)
		}
		name = to
	}
	return name, info, nil
}

// CheckFile returns an error if WriteFile could not write a file of this name now. It changes
// nothing. A long run calls it before it computes.
func CheckFile(name string) error {
	to, info, err := target(name)
	if err == nil && (info == nil || info.Mode().IsRegular()) {
		err = CheckDir(filepath.Dir(to))
	}
	if err != nil {
		return fmt.Errorf("result file %s: %w", name, err)
	}
	return nil
}

// CheckDir returns an error if no file can be created in a directory.
func CheckDir(dir string) error {
	f, err := os.CreateTemp(dir, ".check.*")
	if err != nil {
		var at *fs.PathError
		if errors.As(err, &at) {
			err = at.Err // its path is that of the file that is of no interest
		}
		return fmt.Errorf("no file can be made in directory %s: %w", dir, err)
	}
	return errors.Join(f.Close(), os.Remove(f.Name()))
}

// WriteFile writes a result file. The file appears under its name only when all of it is on disk;
// after an error, which names the file, the old contents are still there. write gets a buffered
// writer. A symbolic link is followed; a device or a pipe is written to directly.
func WriteFile(name string, write func(io.Writer) error) error {
	to, info, err := target(name)
	switch {
	case err != nil:
	case info == nil || info.Mode().IsRegular():
		err = replace(to, write)
	default:
		err = fill(to, write)
	}
	if err != nil {
		return fmt.Errorf("result file %s: %w", name, err)
	}
	return nil
}

// replace writes a new file and renames it to name.
func replace(name string, write func(io.Writer) error) (err error) {
	dir := filepath.Dir(name)
	f, err := os.CreateTemp(dir, "."+filepath.Base(name)+".*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			f.Close()
			os.Remove(f.Name())
		}
	}()
	if err := buffered(f, write); err != nil {
		return err
	}
	if err := f.Chmod(0o644); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	if err := os.Rename(f.Name(), name); err != nil {
		return err
	}
	return syncDir(dir)
}

// syncDir makes the entries of a directory durable.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// fill writes to a device or a pipe.
func fill(name string, write func(io.Writer) error) error {
	f, err := os.OpenFile(name, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	return errors.Join(buffered(f, write), f.Close())
}

func buffered(f io.Writer, write func(io.Writer) error) error {
	w := bufio.NewWriterSize(f, 1<<20)
	if err := write(w); err != nil {
		return err
	}
	return w.Flush()
}

// WriteResult is WriteFile, and writes the SHA-256 of the file to NAME.sha256, in the format of
// sha256sum -c.
func WriteResult(name string, write func(io.Writer) error) error {
	sum := sha256.New()
	if err := WriteFile(name, func(w io.Writer) error { return write(io.MultiWriter(w, sum)) }); err != nil {
		return err
	}
	if _, info, err := target(name); err != nil || info == nil || !info.Mode().IsRegular() {
		return err
	}
	return WriteFile(name+".sha256", func(w io.Writer) error {
		_, err := fmt.Fprintf(w, "%x  %s\n", sum.Sum(nil), filepath.Base(name))
		return err
	})
}

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

// CheckFile returns an error if WriteFile could not write a file of this name now. It changes
// nothing. A long run calls it before it computes.
func CheckFile(name string) error {
	info, err := os.Stat(name)
	switch {
	case err == nil && !info.Mode().IsRegular():
		err = errors.New("it is no regular file")
	case err == nil || errors.Is(err, fs.ErrNotExist):
		err = CheckDir(filepath.Dir(name))
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
		if at, ok := errors.AsType[*fs.PathError](err); ok {
			err = at.Err // its path is that of the file that is of no interest
		}
		return fmt.Errorf("no file can be made in directory %s: %w", dir, err)
	}
	return errors.Join(f.Close(), os.Remove(f.Name()))
}

// WriteFile writes a result file. The file appears under its name only when all of it is on disk;
// after an error, which names the file, the old contents are still there. write gets a buffered
// writer.
func WriteFile(name string, write func(io.Writer) error) error {
	if err := replace(name, write); err != nil {
		return fmt.Errorf("result file %s: %w", name, err)
	}
	return nil
}

func replace(name string, write func(io.Writer) error) error {
	dir := filepath.Dir(name)
	f, err := os.CreateTemp(dir, "."+filepath.Base(name)+".*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) // gone after the rename
	w := bufio.NewWriterSize(f, 1<<20)
	if err := errors.Join(write(w), w.Flush(), f.Chmod(0o644), f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := os.Rename(f.Name(), name); err != nil {
		return err
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// WriteResult is WriteFile, and writes the SHA-256 of the file to NAME.sha256, in the format of
// sha256sum -c.
func WriteResult(name string, write func(io.Writer) error) error {
	sum := sha256.New()
	if err := WriteFile(name, func(w io.Writer) error { return write(io.MultiWriter(w, sum)) }); err != nil {
		return err
	}
	return WriteFile(name+".sha256", func(w io.Writer) error {
		_, err := fmt.Fprintf(w, "%x  %s\n", sum.Sum(nil), filepath.Base(name))
		return err
	})
}

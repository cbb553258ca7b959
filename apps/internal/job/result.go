package job

import (
	"bufio"
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// WriteFile writes a result file: write gets a buffered writer, and the file
// appears under its name only when all of it is on disk. An error names the
// file; what stood under the name before is then still there.
func WriteFile(name string, write func(io.Writer) error) (err error) {
	f, err := os.CreateTemp(filepath.Dir(name), "."+filepath.Base(name)+".*")
	if err != nil {
		return fmt.Errorf("result file: %w", err)
	}
	defer func() {
		if err != nil {
			f.Close()
			os.Remove(f.Name())
			err = fmt.Errorf("result file %s: %w", name, err)
		}
	}()
	w := bufio.NewWriterSize(f, 1<<20)
	if err := write(w); err != nil {
		return err
	}
	if err := w.Flush(); err != nil {
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
	return os.Rename(f.Name(), name)
}

// WriteResult is WriteFile, and writes the file's SHA-256 beside it, as
// NAME.sha256 in the form that sha256sum -c checks.
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

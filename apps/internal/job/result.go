package job

import (
	"crypto/sha256"
	"fmt"
	"io"
	"path/filepath"

	"github.com/holdfast-hpc/holdfast/internal/outfile"
)

// CheckFile is outfile.Check of a result file, which the error names.
func CheckFile(name string) error { return ofResult(name, outfile.Check(name)) }

// WriteFile is outfile.Write of a result file, which the error names.
func WriteFile(name string, write func(io.Writer) error) error {
	return ofResult(name, outfile.Write(name, write))
}

func ofResult(name string, err error) error {
	if err != nil {
		return fmt.Errorf("result file %s: %w", name, err)
	}
	return nil
}

// WriteResult is WriteFile, and writes a file's SHA-256 beside it, as NAME.sha256
// in the form that sha256sum -c checks.
func WriteResult(name string, write func(io.Writer) error) error {
	sum := sha256.New()
	if err := WriteFile(name, func(w io.Writer) error { return write(io.MultiWriter(w, sum)) }); err != nil {
		return err
	}
	if !outfile.IsRegular(name) {
		return nil
	}
	return WriteFile(name+".sha256", func(w io.Writer) error {
		_, err := fmt.Fprintf(w, "%x  %s\n", sum.Sum(nil), filepath.Base(name))
		return err
	})
}

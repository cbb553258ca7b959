package matfile

import (
	"bufio"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// A Matrix is dense, row-major.
type Matrix struct {
	Rows, Cols int
	Data       []float64 // Rows·Cols
	Single     bool      // the numbers are float32
}

// At returns an element.
func (m *Matrix) At(i, j int) float64 { return m.Data[i*m.Cols+j] }

// Fits returns an error if a matrix with elements of the given bytes is larger than the
// memory of the machine.
func Fits(rows, cols, bytes int) error {
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err != nil {
		return fmt.Errorf("memory of this machine: %w", err)
	}
	memory := uint64(info.Totalram) * uint64(info.Unit)
	if uint64(rows) > memory/uint64(bytes)/uint64(max(cols, 1)) {
		return fmt.Errorf("a matrix of %d by %d takes %.3g GB, this machine has %.3g", rows, cols,
			1e-9*float64(bytes)*float64(rows)*float64(cols), 1e-9*float64(memory))
	}
	return nil
}

// ErrFormat marks a file that is not in the form it claims to be.
var ErrFormat = errors.New("not a matrix file of a known form")

// bad returns an error that matches ErrFormat.
func bad(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{ErrFormat}, args...)...)
}

// newMatrix checks a claimed size before allocating.
func newMatrix(rows, cols int) (*Matrix, error) {
	if rows < 1 || cols < 1 {
		return nil, bad("a size of %d by %d", rows, cols)
	}
	if err := Fits(rows, cols, 8); err != nil {
		return nil, bad("%w", err)
	}
	return &Matrix{Rows: rows, Cols: cols}, nil
}

// Open reads a .npy file.
func Open(name string) (*Matrix, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	m, err := ReadNumPy(bufio.NewReaderSize(f, 1<<20))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return m, nil
}

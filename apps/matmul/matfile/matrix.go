package matfile

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"strings"
)

// A Matrix is dense, row-major.
type Matrix struct {
	Rows, Cols int
	Data       []float64 // Rows·Cols
	Single     bool      // the numbers are float32
}

// At returns an element.
func (m *Matrix) At(i, j int) float64 { return m.Data[i*m.Cols+j] }

// maxElements bounds what a file may claim: 2^33 numbers are 64 GiB.
const maxElements = 1 << 33

// ErrFormat marks a file that is not in the form it claims to be.
var ErrFormat = errors.New("not a matrix file of a known form")

// bad returns an error that matches ErrFormat.
func bad(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{ErrFormat}, args...)...)
}

// newMatrix checks a claimed size before allocating.
func newMatrix(rows, cols int) (*Matrix, error) {
	if rows < 1 || cols < 1 || rows > maxElements/cols {
		return nil, bad("a size of %d by %d", rows, cols)
	}
	return &Matrix{Rows: rows, Cols: cols}, nil
}

// Open reads a file, by its name: .npy, otherwise Matrix Market.
func Open(name string) (*Matrix, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	in := bufio.NewReaderSize(f, 1<<20)
	read := ReadMarket
	if strings.HasSuffix(name, ".npy") {
		read = ReadNumPy
	}
	m, err := read(in)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return m, nil
}

package matfile

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
)

// A marketHeader is the first line of a Matrix Market file and the line of sizes
// (Boisvert, Pozo and Remington, NISTIR 5935, 1996).
type marketHeader struct {
	sparse  bool
	sign    float64 // of the mirrored element; 0 = not symmetric
	pattern bool    // places without numbers, which are 1
	integer bool
	entries int
}

// maxLine bounds a line of a Matrix Market file.
const maxLine = 1 << 20

// ReadMarket reads a real, integer or pattern matrix in Matrix Market form.
func ReadMarket(r io.Reader) (*Matrix, error) {
	lines := bufio.NewScanner(r)
	lines.Buffer(make([]byte, 1<<16), maxLine)
	m, err := readMarket(lines)
	// What could not be read is why something is missing.
	switch broken := lines.Err(); {
	case errors.Is(broken, bufio.ErrTooLong):
		return nil, bad("a line of more than %d bytes", maxLine)
	case broken != nil:
		return nil, broken
	}
	return m, err
}

func readMarket(lines *bufio.Scanner) (*Matrix, error) {
	if !lines.Scan() {
		return nil, bad("the file is empty")
	}
	h, err := parseBanner(lines.Text())
	if err != nil {
		return nil, err
	}
	m, err := h.readSize(lines)
	if err != nil {
		return nil, err
	}
	m.Data = make([]float64, m.Rows*m.Cols)
	read := h.readDense
	if h.sparse {
		read = h.readSparse
	}
	if err := read(lines, m); err != nil {
		return nil, err
	}
	if more := next(lines); more != nil {
		return nil, bad("%q follows after all that the sizes allow for", more)
	}
	return m, nil
}

// parseBanner reads "%%MatrixMarket matrix FORMAT FIELD SYMMETRY".
func parseBanner(line string) (*marketHeader, error) {
	f := strings.Fields(strings.ToLower(line))
	if len(f) != 5 || f[0] != "%%matrixmarket" || f[1] != "matrix" {
		return nil, bad("it does not begin with %%%%MatrixMarket matrix")
	}
	h := &marketHeader{sparse: f[2] == "coordinate", pattern: f[3] == "pattern", integer: f[3] == "integer"}
	switch {
	case f[2] != "coordinate" && f[2] != "array":
		return nil, bad("format %q, want coordinate or array", f[2])
	case f[3] != "real" && f[3] != "integer" && f[3] != "pattern" || h.pattern && !h.sparse:
		return nil, bad("field %q, want real, integer or (with coordinate) pattern", f[3])
	}
	switch f[4] {
	case "general":
	case "symmetric":
		h.sign = 1
	case "skew-symmetric":
		h.sign = -1
	default:
		return nil, bad("symmetry %q, want general, symmetric or skew-symmetric", f[4])
	}
	return h, nil
}

// next returns the fields of the next line that is not a comment, nil at the end.
func next(lines *bufio.Scanner) []string {
	for lines.Scan() {
		text := strings.TrimSpace(lines.Text())
		if text != "" && text[0] != '%' {
			return strings.Fields(text)
		}
	}
	return nil
}

// readSize reads the line of sizes.
func (h *marketHeader) readSize(lines *bufio.Scanner) (*Matrix, error) {
	f := next(lines)
	want := 2
	if h.sparse {
		want = 3
	}
	if len(f) != want {
		return nil, bad("sizes %q, want %d numbers", f, want)
	}
	var n [3]int
	for i, s := range f {
		v, err := strconv.Atoi(s)
		if err != nil || v < 0 {
			return nil, bad("sizes %q", f)
		}
		n[i] = v
	}
	h.entries = n[2]
	if h.sign != 0 && n[0] != n[1] {
		return nil, bad("symmetric, but %d by %d", n[0], n[1])
	}
	return newMatrix(n[0], n[1])
}

// readSparse reads lines "row column number", counted from 1. Each element is there
// once: readers differ in what they make of further ones.
func (h *marketHeader) readSparse(lines *bufio.Scanner, m *Matrix) error {
	seen := make([]uint64, (len(m.Data)+63)/64)
	for e := range h.entries {
		f := next(lines)
		want := 3
		if h.pattern {
			want = 2
		}
		if f == nil {
			return bad("the file ends after %d of %d entries", e, h.entries)
		}
		if len(f) != want {
			return bad("entry %d of %d is %q, want %d numbers", e+1, h.entries, f, want)
		}
		i, err1 := strconv.Atoi(f[0])
		j, err2 := strconv.Atoi(f[1])
		x, err3 := 1.0, error(nil)
		if !h.pattern {
			x, err3 = h.number(f[2])
		}
		if err1 != nil || err2 != nil || i < 1 || i > m.Rows || j < 1 || j > m.Cols {
			return bad("entry %d of %d is %q in a matrix of %d by %d", e+1, h.entries, f, m.Rows, m.Cols)
		}
		if err3 != nil {
			return bad("entry %d of %d: %w", e+1, h.entries, err3)
		}
		if h.sign < 0 && i == j && x != 0 {
			return bad("element %d, %d of a skew-symmetric matrix is %g, not 0", i, j, x)
		}
		at := (i-1)*m.Cols + j - 1
		if h.sign != 0 && i < j {
			at = (j-1)*m.Cols + i - 1 // one mark for both
		}
		if seen[at/64]&(1<<(at%64)) != 0 {
			return bad("entry %d of %d: element %d, %d is there twice; add them up if that is meant", e+1, h.entries, i,
				j)
		}
		seen[at/64] |= 1 << (at % 64)
		h.set(m, i-1, j-1, x)
	}
	return nil
}

// maxExact is how far whole numbers go that all have a float64 of their own.
const maxExact = 1 << 53

// number parses an element.
func (h *marketHeader) number(text string) (float64, error) {
	if h.integer {
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil || n > maxExact || n < -maxExact {
			return 0, fmt.Errorf("%q is not a whole number up to 2^53", text)
		}
		return float64(n), nil
	}
	x, err := strconv.ParseFloat(text, 64)
	if err != nil || math.IsNaN(x) || math.IsInf(x, 0) {
		return 0, fmt.Errorf("%q is not a finite number", text)
	}
	return x, nil
}

// readDense reads numbers column by column; of a symmetric matrix those on and
// below the diagonal, of a skew-symmetric one those below.
func (h *marketHeader) readDense(lines *bufio.Scanner, m *Matrix) error {
	for j := range m.Cols {
		first := 0
		switch {
		case h.sign > 0:
			first = j
		case h.sign < 0:
			first = j + 1
		}
		for i := first; i < m.Rows; i++ {
			f := next(lines)
			if f == nil {
				return bad("the file ends before element %d, %d", i+1, j+1)
			}
			if len(f) != 1 {
				return bad("element %d, %d is %q", i+1, j+1, f)
			}
			x, err := h.number(f[0])
			if err != nil {
				return bad("element %d, %d: %w", i+1, j+1, err)
			}
			h.set(m, i, j, x)
		}
	}
	return nil
}

// set sets an element, and the mirrored one.
func (h *marketHeader) set(m *Matrix, i, j int, x float64) {
	m.Data[i*m.Cols+j] = x
	if h.sign != 0 && i != j {
		m.Data[j*m.Cols+i] = h.sign * x
	}
}

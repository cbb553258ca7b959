package matfile

import (
	"bufio"
	"io"
	"strconv"
	"strings"
)

// A marketHeader is the first line of a Matrix Market file and the line of sizes
// (Boisvert, Pozo and Remington, NISTIR 5935, 1996).
type marketHeader struct {
	sparse  bool
	sign    float64 // of the mirrored element; 0 = not symmetric
	pattern bool    // places without numbers, which are 1
	entries int
}

// ReadMarket reads a real, integer or pattern matrix in Matrix Market form.
func ReadMarket(r io.Reader) (*Matrix, error) {
	lines := bufio.NewScanner(r)
	lines.Buffer(make([]byte, 1<<16), 1<<20)
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
	return m, lines.Err()
}

// parseBanner reads "%%MatrixMarket matrix FORMAT FIELD SYMMETRY".
func parseBanner(line string) (*marketHeader, error) {
	f := strings.Fields(strings.ToLower(line))
	if len(f) != 5 || f[0] != "%%matrixmarket" || f[1] != "matrix" {
		return nil, bad("it does not begin with %%%%MatrixMarket matrix")
	}
	h := &marketHeader{sparse: f[2] == "coordinate", pattern: f[3] == "pattern"}
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

// readSparse reads lines "row column number", counted from 1.
func (h *marketHeader) readSparse(lines *bufio.Scanner, m *Matrix) error {
	for e := range h.entries {
		f := next(lines)
		if h.pattern && len(f) == 2 {
			f = append(f, "1")
		}
		if len(f) != 3 {
			return bad("entry %d of %d is %q", e+1, h.entries, f)
		}
		i, err1 := strconv.Atoi(f[0])
		j, err2 := strconv.Atoi(f[1])
		x, err3 := strconv.ParseFloat(f[2], 64)
		if err1 != nil || err2 != nil || err3 != nil || i < 1 || i > m.Rows || j < 1 || j > m.Cols {
			return bad("entry %d of %d is %q in a matrix of %d by %d", e+1, h.entries, f, m.Rows, m.Cols)
		}
		h.set(m, i-1, j-1, x)
	}
	return nil
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
			if len(f) != 1 {
				return bad("element %d, %d is %q", i+1, j+1, f)
			}
			x, err := strconv.ParseFloat(f[0], 64)
			if err != nil {
				return bad("element %d, %d is %q", i+1, j+1, f[0])
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

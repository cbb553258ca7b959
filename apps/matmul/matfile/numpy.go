package matfile

import (
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"regexp"
	"strconv"
	"strings"
)

// npyMagic begins every .npy file; NumPy Enhancement Proposal 1 describes the
// form.
const npyMagic = "\x93NUMPY"

var (
	npyDescr   = regexp.MustCompile(`'descr'\s*:\s*'([^']*)'`)
	npyFortran = regexp.MustCompile(`'fortran_order'\s*:\s*(True|False)`)
	npyShape   = regexp.MustCompile(`'shape'\s*:\s*\(([^)]*)\)`)
)

// ReadNumPy reads a matrix from .npy form: two dimensions, little-endian
// float32 or float64, all numbers finite.
func ReadNumPy(r io.Reader) (*Matrix, error) {
	text, err := npyHeader(r)
	if err != nil {
		return nil, err
	}
	descr := npyDescr.FindStringSubmatch(text)
	fortran := npyFortran.FindStringSubmatch(text)
	shape := npyShape.FindStringSubmatch(text)
	if descr == nil || fortran == nil || shape == nil {
		return nil, bad("header %q", text)
	}
	rows, cols, err := npySize(shape[1])
	if err != nil {
		return nil, err
	}
	m, err := newMatrix(rows, cols)
	if err != nil {
		return nil, err
	}
	switch descr[1] {
	case "<f4":
		m.Single = true
	case "<f8":
	default:
		return nil, bad("numbers of type %q, want '<f4' or '<f8', little-endian float32 or float64: convert it with "+
			"numpy.astype", descr[1])
	}
	if fortran[1] == "True" {
		return nil, bad("the matrix is stored by columns: convert it with numpy.ascontiguousarray")
	}
	if err := m.readNumbers(r); err != nil {
		return nil, err
	}
	if n, err := io.ReadFull(r, make([]byte, 1)); n > 0 {
		return nil, bad("more bytes follow than a matrix of %d by %d has", rows, cols)
	} else if err != io.EOF {
		return nil, err
	}
	for i, x := range m.Data {
		if math.IsNaN(x) || math.IsInf(x, 0) {
			return nil, bad("element %d, %d is %g, not a finite number", i/cols, i%cols, x)
		}
	}
	return m, nil
}

// npyHeader reads up to the numbers and returns the header's text.
func npyHeader(r io.Reader) (string, error) {
	var start [10]byte
	if _, err := io.ReadFull(r, start[:]); err != nil || string(start[:6]) != npyMagic {
		return "", bad("it does not begin as a .npy file")
	}
	if start[6] != 1 {
		return "", bad("version %d of .npy, want 1", start[6])
	}
	text := make([]byte, binary.LittleEndian.Uint16(start[8:]))
	if _, err := io.ReadFull(r, text); err != nil {
		return "", bad("the header is cut off")
	}
	return string(text), nil
}

func npySize(shape string) (rows, cols int, err error) {
	parts := strings.Split(strings.TrimSuffix(strings.ReplaceAll(shape, " ", ""), ","), ",")
	if len(parts) != 2 {
		return 0, 0, bad("shape (%s), want two dimensions", shape)
	}
	rows, err1 := strconv.Atoi(parts[0])
	cols, err2 := strconv.Atoi(parts[1])
	if err1 != nil || err2 != nil {
		return 0, 0, bad("shape (%s)", shape)
	}
	return rows, cols, nil
}

// piece is how many elements are read at once.
const piece = 1 << 16

// readNumbers reads the elements piece by piece, so that a file that claims more
// than it has costs no memory.
func (m *Matrix) readNumbers(r io.Reader) error {
	size := 8
	if m.Single {
		size = 4
	}
	raw := make([]byte, size*piece)
	for all := m.Rows * m.Cols; len(m.Data) < all; {
		part := raw[:size*min(piece, all-len(m.Data))]
		switch n, err := io.ReadFull(r, part); err {
		case nil:
		case io.EOF, io.ErrUnexpectedEOF:
			return bad("the numbers are cut off after %d of %d", len(m.Data)+n/size, all)
		default:
			return err
		}
		for ; len(part) > 0; part = part[size:] {
			if m.Single {
				m.Data = append(m.Data, float64(math.Float32frombits(binary.LittleEndian.Uint32(part))))
			} else {
				m.Data = append(m.Data, math.Float64frombits(binary.LittleEndian.Uint64(part)))
			}
		}
	}
	return nil
}

// WriteNumPy writes m in .npy form, version 1, by rows. Equal matrices give equal
// bytes.
func (m *Matrix) WriteNumPy(w io.Writer) error {
	descr := "<f8"
	if m.Single {
		descr = "<f4"
	}
	text := fmt.Sprintf("{'descr': '%s', 'fortran_order': False, 'shape': (%d, %d), }", descr, m.Rows, m.Cols)
	// Magic, version, length, text and a line end fill up a multiple of 64.
	text += strings.Repeat(" ", 63-(len(npyMagic)+4+len(text))%64) + "\n"
	head := append([]byte(npyMagic), 1, 0)
	head = binary.LittleEndian.AppendUint16(head, uint16(len(text)))
	if _, err := w.Write(append(head, text...)); err != nil {
		return err
	}
	raw := make([]byte, 0, 8*m.Cols)
	for i := range m.Rows {
		raw = raw[:0]
		for _, x := range m.Data[i*m.Cols : (i+1)*m.Cols] {
			if m.Single {
				raw = binary.LittleEndian.AppendUint32(raw, math.Float32bits(float32(x)))
			} else {
				raw = binary.LittleEndian.AppendUint64(raw, math.Float64bits(x))
			}
		}
		if _, err := w.Write(raw); err != nil {
			return err
		}
	}
	return nil
}

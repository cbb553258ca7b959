package matfile

import (
	"bytes"
	"encoding/hex"
	"errors"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"testing/iotest"
)

// TestNumPyBytes pins a small file, byte by byte, to what NEP 1 prescribes: magic,
// version, length of the header, header filled up to a multiple of 64, numbers.
func TestNumPyBytes(t *testing.T) {
	var b bytes.Buffer
	m := &Matrix{Rows: 1, Cols: 3, Data: []float64{1, 2, 3}, Single: true}
	if err := m.WriteNumPy(&b); err != nil {
		t.Fatal(err)
	}
	want := "934e554d5059" + "0100" + "7600" +
		hex.EncodeToString([]byte("{'descr': '<f4', 'fortran_order': False, 'shape': (1, 3), }"+strings.Repeat(" ", 58)+
			"\n")) +
		"0000803f" + "00000040" + "00004040"
	if got := hex.EncodeToString(b.Bytes()); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestNumPyRoundTrip(t *testing.T) {
	for _, single := range []bool{true, false} {
		m := &Matrix{Rows: 2, Cols: 3, Data: []float64{1, -2, 0.5, 1e30, 0, 7}, Single: single}
		m.Data[3] = float64(float32(m.Data[3]))
		var b bytes.Buffer
		if err := m.WriteNumPy(&b); err != nil {
			t.Fatal(err)
		}
		got, err := ReadNumPy(&b)
		if err != nil || !reflect.DeepEqual(got, m) {
			t.Errorf("got %+v, %v, want %+v", got, err, m)
		}
	}
}

func TestNumPyFortranOrder(t *testing.T) {
	m := &Matrix{Rows: 3, Cols: 2, Data: []float64{1, 2, 3, 4, 5, 6}}
	var b bytes.Buffer
	if err := m.WriteNumPy(&b); err != nil {
		t.Fatal(err)
	}
	file := strings.Replace(b.String(), "False, 'shape': (3, 2)", "True,  'shape': (2, 3)", 1)
	if _, err := ReadNumPy(strings.NewReader(file)); !errors.Is(err, ErrFormat) ||
		!strings.Contains(err.Error(), "numpy.ascontiguousarray") {
		t.Errorf("got %v, want the remedy", err)
	}
}

func TestRefuses(t *testing.T) {
	var b bytes.Buffer
	m := &Matrix{Rows: 2, Cols: 2, Data: make([]float64, 4)}
	if err := m.WriteNumPy(&b); err != nil {
		t.Fatal(err)
	}
	good := b.String()
	for _, text := range []string{
		good + "\x00", good[:len(good)-8] + "\x00\x00\x00\x00\x00\x00\xf8\x7f", // NaN
		strings.Replace(good, "<f8", ">f8", 1), strings.Replace(good, "<f8", "<f2", 1),
		"", "PK\x03\x04aaaaaaaaaaaa", good[:9], good[:40], good[:len(good)-1],
		strings.Replace(good, "<f8", "<i8", 1), strings.Replace(good, "(2, 2)", "(2, -)", 1),
		strings.Replace(good, "(2, 2)", "(4,)  ", 1), strings.Replace(good, "descr", "Descr", 1),
		strings.Replace(good, "\x01\x00", "\x09\x00", 1),
	} {
		if _, err := ReadNumPy(strings.NewReader(text)); !errors.Is(err, ErrFormat) {
			t.Errorf("%q: got %v, want ErrFormat", text, err)
		}
	}
}

// TestSaysWhatIsMissing: an error of reading differs from a file that ends early, and a size beyond the memory is not
// tried.
func TestSaysWhatIsMissing(t *testing.T) {
	broken := errors.New("the disk is broken")
	var b bytes.Buffer
	if err := (&Matrix{Rows: 2, Cols: 2, Data: make([]float64, 4)}).WriteNumPy(&b); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadNumPy(io.MultiReader(bytes.NewReader(b.Bytes()[:140]), iotest.ErrReader(broken))); !errors.Is(err,
		broken) {
		t.Errorf("got %v, want the error of reading", err)
	}
	large := strings.Replace(b.String(), "(2, 2), }            ", "(3000000, 3000000), }", 1)
	if _, err := ReadNumPy(strings.NewReader(large)); !errors.Is(err, ErrFormat) ||
		!strings.Contains(err.Error(), "this machine has") {
		t.Errorf("got %v, want that the memory is too small", err)
	}
}

func TestOpenNamesTheFile(t *testing.T) {
	name := filepath.Join(t.TempDir(), "x.npy")
	if err := os.WriteFile(name, []byte("no"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(name); !errors.Is(err, ErrFormat) || !strings.Contains(err.Error(), name) {
		t.Errorf("got %v, want ErrFormat with the name", err)
	}
}

func FuzzReadNumPy(f *testing.F) {
	var b bytes.Buffer
	m := &Matrix{Rows: 2, Cols: 2, Data: make([]float64, 4)}
	_ = m.WriteNumPy(&b)
	f.Add(b.Bytes())
	f.Fuzz(func(t *testing.T, file []byte) {
		if m, err := ReadNumPy(bytes.NewReader(file)); err == nil && len(m.Data) != m.Rows*m.Cols {
			t.Fatalf("%d by %d with %d numbers", m.Rows, m.Cols, len(m.Data))
		}
	})
}

// Package npy writes arrays as files of NumPy have them, on machines that are little-endian.
package npy

import (
	"archive/zip"
	"encoding/binary"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
)

// Types are NumPy's names of Go's types.
var Types = map[string]string{"bool": "|b1", "int8": "|i1", "uint8": "|u1", "int16": "<i2", "uint16": "<u2",
	"int32": "<i4", "uint32": "<u4", "int64": "<i8", "uint64": "<u8", "int": "<i8", "uint": "<u8", "float32": "<f4",
	"float64": "<f8", "complex64": "<c8", "complex128": "<c16"}

// Size returns how many bytes an element of a type of Go has that NumPy knows; 0: it does not.
func Size(elem string) int64 {
	descr, ok := Types[elem]
	if !ok {
		return 0
	}
	n, err := strconv.ParseInt(descr[2:], 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// A DType is a type as NumPy describes it: elements, and dimensions that each of them has.
type DType struct {
	Descr string // as it stands in a header: "'<f8'", "[('X', '<f8'), ('Y', '<f8')]"
	Dims  []int64
	Bytes int64 // with the dimensions
}

// Type describes elements of a type as manifests have it: "float64", "[3]int32", "{X@0 float64;N@8 int32;}16". A
// type that NumPy does not know is opaque bytes.
func Type(elem string, bytes int64) DType {
	t, rest, ok := parseType(elem)
	if !ok || rest != "" || t.Bytes != bytes {
		return DType{fmt.Sprintf("'|V%d'", bytes), nil, bytes}
	}
	return t
}

// parseType takes a type off the beginning of a text.
func parseType(s string) (t DType, rest string, ok bool) {
	switch {
	case strings.HasPrefix(s, "["):
		length, elem, found := strings.Cut(s[1:], "]")
		n, err := strconv.ParseInt(length, 10, 64)
		if !found || err != nil {
			return t, s, false
		}
		t, rest, ok = parseType(elem)
		t.Dims, t.Bytes = append([]int64{n}, t.Dims...), n*t.Bytes
		return t, rest, ok
	case strings.HasPrefix(s, "{"):
		return parseStruct(s[1:])
	}
	end := strings.IndexAny(s, ";}")
	if end < 0 {
		end = len(s)
	}
	t.Bytes = Size(s[:end])
	t.Descr = "'" + Types[s[:end]] + "'"
	return t, s[end:], t.Bytes > 0
}

// parseStruct is parseType after the brace of a struct. Bytes between fields, and fields without a name, have none.
func parseStruct(s string) (t DType, rest string, ok bool) {
	var fields []string
	at := int64(0)
	skip := func(to int64) {
		if to > at {
			fields = append(fields, fmt.Sprintf("('', '|V%d')", to-at))
		}
		at = to
	}
	for !strings.HasPrefix(s, "}") {
		name, after, found := strings.Cut(s, "@")
		place, elem, also := strings.Cut(after, " ")
		off, err := strconv.ParseInt(place, 10, 64)
		if !found || !also || err != nil || off < at {
			return t, s, false
		}
		skip(off)
		f, left, ok := parseType(elem)
		if !ok || !strings.HasPrefix(left, ";") {
			return t, s, false
		}
		if s = left[1:]; name == "_" || f.Bytes == 0 {
			skip(at + f.Bytes)
			continue
		}
		at += f.Bytes
		if len(f.Dims) > 0 {
			fields = append(fields, fmt.Sprintf("('%s', %s, %s)", name, f.Descr, tuple(f.Dims)))
		} else {
			fields = append(fields, fmt.Sprintf("('%s', %s)", name, f.Descr))
		}
	}
	digits := len(s[1:]) - len(strings.TrimLeft(s[1:], "0123456789"))
	size, err := strconv.ParseInt(s[1:1+digits], 10, 64)
	if err != nil || size < at || len(fields) == 0 {
		return t, s, false
	}
	skip(size)
	return DType{"[" + strings.Join(fields, ", ") + "]", nil, size}, s[1+digits:], true
}

// tuple writes dimensions as Python does.
func tuple(dims []int64) string {
	shape := strings.Trim(strings.ReplaceAll(fmt.Sprint(dims), " ", ", "), "[]")
	if len(dims) == 1 {
		shape += ","
	}
	return "(" + shape + ")"
}

// Suffixes of the files of NumPy: of one array, and of several.
const (
	Suffix     = ".npy"
	ManySuffix = ".npz"
)

// pieceBytes is how much is copied at a time.
const pieceBytes = 8 << 20

// Head returns the beginning of a file of format 1.0, or of 2.0 if it is long: magic, version, the length of a
// dictionary, and the dictionary, with spaces up to a multiple of 64 bytes. Elements that are arrays add dimensions.
func Head(t DType, dims []int64) []byte {
	dims = append(slices.Clone(dims), t.Dims...)
	dict := fmt.Sprintf("{'descr': %s, 'fortran_order': False, 'shape': %s, }", t.Descr, tuple(dims))
	before, version := 10, byte(1) // magic, version, length
	if len(dict) > 65_000 {
		before, version = 12, 2
	}
	pad := 63 - (before+len(dict))%64
	b := append([]byte("\x93NUMPY"), version, 0)
	if version == 1 {
		b = binary.LittleEndian.AppendUint16(b, uint16(len(dict)+pad+1))
	} else {
		b = binary.LittleEndian.AppendUint32(b, uint32(len(dict)+pad+1))
	}
	return append(b, dict+strings.Repeat(" ", pad)+"\n"...)
}

// Member adds an array to an archive of several.
func Member(z *zip.Writer, name string, t DType, dims []int64, from io.Reader) error {
	w, err := z.CreateHeader(&zip.FileHeader{Name: name + Suffix, Method: zip.Store})
	if err == nil {
		_, err = w.Write(Head(t, dims))
	}
	if err == nil {
		_, err = io.CopyBuffer(struct{ io.Writer }{w}, from, make([]byte, pieceBytes))
	}
	return err
}

package npy

import (
	"archive/zip"
	"encoding/binary"
	"fmt"
	"io"
	"slices"
	"strings"
)

// Suffixes of the files of NumPy: of one array, and of several.
const (
	Suffix     = ".npy"
	ManySuffix = ".npz"
)

// pieceBytes is how much is copied at a time.
const pieceBytes = 8 << 20

// Head is the beginning of a file of format 1.0, or of 2.0 if it is long: magic, version, the length of a dictionary,
// and the dictionary, with spaces up to a multiple of 64 bytes. Elements that are arrays add dimensions.
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

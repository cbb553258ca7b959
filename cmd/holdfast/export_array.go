package main

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"

	"github.com/holdfast-hpc/holdfast/internal/layout"
	"github.com/holdfast-hpc/holdfast/storage"
	"github.com/holdfast-hpc/holdfast/storage/checkpoints"
	"github.com/spf13/cobra"
)

// npySuffix is that of files with arrays of NumPy.
const npySuffix = ".npy"

// arrayIn finds what the ranks of an epoch have of the global array with a name; nil: there is none.
func arrayIn(list []checkpoints.EpochInfo, e storage.Epoch, name string) []storage.ShardInfo {
	for i := range list {
		if list[i].Epoch != e || list[i].Err != nil || len(list[i].Shards) == 0 {
			continue
		}
		if l := localOf(&list[i].Shards[0], name); l != nil && l.Kind == layout.Divided {
			return list[i].Shards
		}
	}
	return nil
}

func localOf(info *storage.ShardInfo, name string) *layout.Local {
	if info.Layout == nil {
		return nil
	}
	for i := range info.Layout.Arrays {
		if l := &info.Layout.Arrays[i]; l.Name == name {
			return l
		}
	}
	return nil
}

// array writes a global array to a file for NumPy. Each rank's share is read into memory, verified, and written to its
// places.
func (x *export) array(cmd *cobra.Command, v *checkpoints.View, e storage.Epoch,
	infos []storage.ShardInfo) ([]exportRow, error) {
	var all []layout.Owned
	for r := range infos {
		if l := localOf(&infos[r], x.section); l != nil {
			all = append(all, layout.Owned{Rank: r, Local: l})
		}
	}
	if err := layout.Check(all); err != nil {
		return nil, fmt.Errorf("epoch %d: %w: %w", e, storage.ErrCorrupt, err)
	}
	a := &all[0].Array
	head, err := npyHeader(a)
	if err != nil {
		return nil, err
	}
	row := exportRow{Epoch: uint64(e), Name: a.Name, Type: fmt.Sprintf("%s %v", a.Type, a.Dims), Section: a.Section,
		File: x.out, Bytes: a.Elem}
	for _, d := range a.Dims {
		row.Bytes *= d
	}
	err = makeWhole(x.out, x.force, func(f *os.File) error {
		if _, err := f.Write(head); err != nil {
			return err
		}
		if err := f.Truncate(int64(len(head)) + row.Bytes); err != nil {
			return err
		}
		for i := range all {
			if len(all[i].Parts) == 0 {
				continue
			}
			if err := x.share(cmd, v, e, &all[i], infos[all[i].Rank].Digest, f, int64(len(head))); err != nil {
				return fmt.Errorf("rank %d of epoch %d: %w", all[i].Rank, e, err)
			}
		}
		return nil
	})
	return []exportRow{row}, err
}

// share writes what a rank has of an array, which begins at a place in the file.
func (x *export) share(cmd *cobra.Command, v *checkpoints.View, e storage.Epoch, o *layout.Owned, digest [16]byte,
	f *os.File, begin int64) (err error) {
	ctx := cmd.Context()
	sh, err := v.Fetch(ctx, e, o.Rank)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, sh.Close()) }()
	if sh.Digest() != digest {
		return fmt.Errorf("the directories have different attempts at the epoch: %w", storage.ErrCorrupt)
	}
	b := make([]byte, o.Elems()*o.Elem)
	for at := 0; at < len(b); at += exportPiece {
		if err := ctx.Err(); err != nil {
			return err
		}
		piece := b[at:min(at+exportPiece, len(b))]
		if err := sh.ReadAt(ctx, o.Section, piece, int64(at)); err != nil {
			return err
		}
		x.copied.Add(int64(len(piece)))
	}
	for _, d := range sh.Damage() {
		fmt.Fprintf(cmd.ErrOrStderr(), "holdfast: warning: read around damage: %v\n", d)
	}
	whole := layout.Box(make([]int64, len(o.Dims)), o.Dims)
	base := int64(0)
	for i := range o.Parts {
		p := &o.Parts[i]
		err := layout.Meet(p, layout.Dense(p, base), &whole, layout.Dense(&whole, 0), func(from, to, n int64) error {
			_, err := f.WriteAt(b[from*o.Elem:(from+n)*o.Elem], begin+to*o.Elem)
			return err
		})
		if err != nil {
			return err
		}
		base += p.Elems()
	}
	return nil
}

// npyTypes are NumPy's names of Go's types, on machines that are little-endian.
var npyTypes = map[string]string{"bool": "|b1", "int8": "|i1", "uint8": "|u1", "int16": "<i2", "uint16": "<u2",
	"int32": "<i4", "uint32": "<u4", "int64": "<i8", "uint64": "<u8", "int": "<i8", "uint": "<u8", "float32": "<f4",
	"float64": "<f8", "complex64": "<c8", "complex128": "<c16"}

var goArray = regexp.MustCompile(`^\[(\d+)\]`)

// npyHeader is the beginning of a file of format 1.0 of NumPy: magic, version, the length of a dictionary, and the
// dictionary, with spaces up to a multiple of 64 bytes. Elements that are arrays add dimensions; structs are opaque.
func npyHeader(a *layout.Array) ([]byte, error) {
	dims, elem := append([]int64(nil), a.Dims...), a.Type
	for m := goArray.FindStringSubmatch(elem); m != nil; m = goArray.FindStringSubmatch(elem) {
		n, err := strconv.ParseInt(m[1], 10, 64)
		if err != nil {
			return nil, err
		}
		dims, elem = append(dims, n), elem[len(m[0]):]
	}
	descr, ok := npyTypes[elem]
	if !ok {
		if len(dims) != len(a.Dims) {
			return nil, fmt.Errorf("array %q: NumPy has no type for elements of %s; export each rank's share with "+
				"--rank", a.Name, a.Type)
		}
		descr = fmt.Sprintf("|V%d", a.Elem)
	}
	shape := strings.Trim(strings.ReplaceAll(fmt.Sprint(dims), " ", ", "), "[]")
	if len(dims) == 1 {
		shape += ","
	}
	dict := fmt.Sprintf("{'descr': '%s', 'fortran_order': False, 'shape': (%s), }", descr, shape)
	const before = 10 // magic, version, length
	pad := 63 - (before+len(dict))%64
	var b bytes.Buffer
	b.WriteString("\x93NUMPY\x01\x00")
	b.Write(binary.LittleEndian.AppendUint16(nil, uint16(len(dict)+pad+1)))
	b.WriteString(dict + strings.Repeat(" ", pad) + "\n")
	return b.Bytes(), nil
}

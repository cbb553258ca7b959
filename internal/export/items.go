package export

import (
	"archive/zip"
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/holdfast-hpc/holdfast/coordinated"
	"github.com/holdfast-hpc/holdfast/internal/cli"
	"github.com/holdfast-hpc/holdfast/internal/layout"
	"github.com/holdfast-hpc/holdfast/internal/npy"
	"github.com/holdfast-hpc/holdfast/storage"
)

// bag is an export of a set of items under way.
type bag struct {
	x     *export
	all   []layout.Owned // each rank's part of the set, by ranks
	key   string         // the Go type of keys
	elem  npy.DType      // of an item, or of an element if items are slices
	slice bool
	list  []place // by ascending keys
}

type place struct {
	key         layout.Key
	rank        int
	start, size int64 // in elements, of the array "data"
}

func (x *export) items(all []layout.Owned) ([]Row, error) {
	if err := layout.Check(all); err != nil {
		return nil, fmt.Errorf("epoch %d: %w: %w", x.epoch, storage.ErrCorrupt, err)
	}
	if x.Rank >= 0 {
		all = slices.DeleteFunc(slices.Clone(all), func(o layout.Owned) bool { return o.Rank != x.Rank })
		if len(all) == 0 {
			return nil, fmt.Errorf("--rank %d: the epoch has the ranks 0 to %d", x.Rank, len(x.infos)-1)
		}
	}
	b := &bag{x: x, all: all}
	if err := b.plan(); err != nil {
		return nil, err
	}
	set := &all[0].Array
	row := Row{Epoch: uint64(x.epoch), Rank: max(x.Rank, 0), Name: set.Name, Type: "items " + set.Type,
		Section: set.Section, File: x.File, Items: len(b.list)}
	for i := range all {
		row.Bytes += all[i].Elems() * set.Elem
	}
	err := cli.WriteFile(x.File, x.Force, func(f *os.File) error { return b.write(f) })
	return []Row{row}, err
}

// plan finds the place of each item: data are in the order of ranks, and by keys within a rank.
func (b *bag) plan() error {
	set := &b.all[0].Array
	key, elem, ok := strings.Cut(strings.TrimPrefix(set.Type, "map["), "]")
	if !ok {
		return fmt.Errorf("items %q are a %s, which no file for NumPy holds", set.Name, set.Type)
	}
	elem, b.slice = strings.CutPrefix(elem, "[]")
	b.key, b.elem = key, npy.Type(elem, set.Elem)
	at := int64(0)
	for i := range b.all {
		for _, it := range b.all[i].Items {
			n := it.Bytes / set.Elem
			b.list = append(b.list, place{it.Key, b.all[i].Rank, at, n})
			at += n
			if k := it.Key.Str; !utf8.ValidString(k) || strings.HasSuffix(k, "\x00") {
				return fmt.Errorf("items %q: NumPy has no string for the key %s; export each rank's share to a file "+
					"of another name with --rank", set.Name, set.KeyText(it.Key))
			}
		}
	}
	less := func(a, o *place) int { return a.key.Compare(o.key) }
	if strings.HasPrefix(key, "uint") { // the manifest has them as signed
		less = func(a, o *place) int { return cmp.Compare(uint64(a.key.Int), uint64(o.key.Int)) }
	}
	slices.SortFunc(b.list, func(a, o place) int { return less(&a, &o) })
	return nil
}

// write writes the file: an archive without compression that has an array in each member.
func (b *bag) write(f *os.File) error {
	z := zip.NewWriter(f)
	n := []int64{int64(len(b.list))}
	member := func(name, kind string, b []byte) error {
		return npy.Member(z, name, npy.DType{Descr: "'" + kind + "'"}, n, bytes.NewReader(b))
	}
	column := func(name string, of func(p *place) int64) error {
		var out []byte
		for i := range b.list {
			out = binary.LittleEndian.AppendUint64(out, uint64(of(&b.list[i])))
		}
		return member(name, "<i8", out)
	}
	kind, keys := b.keys()
	err := errors.Join(member("keys", kind, keys),
		column("ranks", func(p *place) int64 { return int64(p.rank) }),
		column("starts", func(p *place) int64 { return p.start }),
		column("counts", func(p *place) int64 { return p.size }))
	if err != nil {
		return err
	}
	total := int64(0)
	for i := range b.all {
		total += b.all[i].Elems()
	}
	pr, pw := io.Pipe()
	go func() { pw.CloseWithError(b.data(pw)) }()
	err = npy.Member(z, "data", b.elem, []int64{total}, pr)
	pr.CloseWithError(err)
	return errors.Join(err, z.Close())
}

// keys returns the keys of the items, with NumPy's name of their type. Strings have four bytes a character.
func (b *bag) keys() (kind string, out []byte) {
	if descr, ok := npy.Types[b.key]; ok {
		size := npy.Size(b.key)
		for i := range b.list {
			out = append(out, binary.LittleEndian.AppendUint64(nil, uint64(b.list[i].key.Int))[:size]...)
		}
		return descr, out
	}
	longest := 1
	for i := range b.list {
		longest = max(longest, utf8.RuneCountInString(b.list[i].key.Str))
	}
	for i := range b.list {
		end := len(out) + 4*longest
		for _, r := range b.list[i].key.Str {
			out = binary.LittleEndian.AppendUint32(out, uint32(r))
		}
		out = append(out, make([]byte, end-len(out))...)
	}
	return fmt.Sprintf("<U%d", longest), out
}

func (b *bag) data(w io.Writer) error {
	for i := range b.all {
		if err := b.share(w, &b.all[i]); err != nil {
			return fmt.Errorf("rank %d of epoch %d: %w", b.all[i].Rank, b.x.epoch, err)
		}
	}
	return nil
}

func (b *bag) share(w io.Writer, o *layout.Owned) (err error) {
	sh, err := b.x.fetch(o.Rank)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, sh.Close()) }()
	read := &itemReader{b.x.ctx, sh, &coordinated.Saved{Name: o.Name, Bytes: o.Elems() * o.Elem,
		Section: o.Section}, 0, b.x.Copied}
	_, err = io.CopyBuffer(struct{ io.Writer }{w}, read, make([]byte, pieceBytes))
	b.x.warn(sh)
	return err
}

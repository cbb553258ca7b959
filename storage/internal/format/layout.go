package format

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/holdfast-hpc/holdfast/internal/layout"
)

// Layout describes one rank's share of global arrays: the section LayoutSection has it, and the manifest repeats it.
type Layout struct {
	Quiet   bool // no message waits in the rank's mailbox, and no receive is pending
	PerRank bool // the shard has other state, too, which makes sense for a rank of this number only
	Arrays  []layout.Local
}

// LayoutSection is the name of the section of a shard that has its Layout.
const LayoutSection = "layout"

const (
	layoutMagic   = "HFLY"
	layoutVersion = 1

	// MaxLayoutBytes bounds the layout of one rank.
	MaxLayoutBytes = 16 << 20

	arrayMin = 2*3 + 4 + 1 + 1 + 8 // of an array's description
	localMin = 16 + 4              // of a rank's share
	spanLen  = 4 * 8

	hasLayout = 1 << 0 // flags of a rank
	isQuiet   = 1 << 1
	isPerRank = 1 << 2
	allFlags  = hasLayout | isQuiet | isPerRank
)

// Encode makes the contents of the section.
func (l *Layout) Encode() ([]byte, error) {
	var e Encoder
	e.B = append(e.B, layoutMagic...)
	e.u16(layoutVersion)
	e.U8(l.flags())
	e.U32(uint32(len(l.Arrays)))
	for i := range l.Arrays {
		x := &l.Arrays[i]
		if len(x.Name) > MaxNameLen || len(x.Type) > MaxNameLen || len(x.Section) > MaxNameLen {
			return nil, TooLarge("length of the name or type of an array", int64(max(len(x.Name), len(x.Type))),
				MaxNameLen, "give it a shorter name")
		}
		arrayFields(Appending(&e), &x.Array)
		localFields(Appending(&e), x)
	}
	if len(e.B) > MaxLayoutBytes {
		return nil, TooLarge("bytes of the layouts of a rank", int64(len(e.B)), MaxLayoutBytes,
			"declare fewer, larger blocks or items")
	}
	return e.B, nil
}

func (l *Layout) flags() uint8 {
	flags := uint8(hasLayout)
	if l.Quiet {
		flags |= isQuiet
	}
	if l.PerRank {
		flags |= isPerRank
	}
	return flags
}

// fromFlags returns a Layout with the flags; not ok if these cannot be.
func fromFlags(flags uint8) (l *Layout, ok bool) {
	l = &Layout{Quiet: flags&isQuiet != 0, PerRank: flags&isPerRank != 0}
	return l, flags&hasLayout != 0 && flags&^allFlags == 0
}

// DecodeLayout decodes the bytes of Encode for a rank.
func DecodeLayout(file string, rank int, b []byte) (*Layout, error) {
	bad := func(reason string) (*Layout, error) {
		return nil, &CorruptError{File: file, Len: int64(len(b)), Reason: "section " + LayoutSection + ": " + reason}
	}
	d := &Decoder{B: b}
	if string(d.take(len(layoutMagic))) != layoutMagic {
		return bad("wrong magic")
	}
	if v := d.u16(); !d.Bad && v != layoutVersion {
		return nil, &VersionError{File: file, What: "section " + LayoutSection, Have: int(v), Known: layoutVersion}
	}
	l, ok := fromFlags(d.U8())
	for range d.Count(arrayMin + localMin) {
		var x layout.Local
		arrayFields(Taking(d), &x.Array)
		if err := decodeLocal(d, &x, rank); err != nil {
			return bad(err.Error())
		}
		l.Arrays = append(l.Arrays, x)
	}
	if !d.Done() || !ok {
		return bad("fields do not fit the length")
	}
	return l, l.distinct(file)
}

// distinct makes sure that no two arrays of a rank have one name.
func (l *Layout) distinct(file string) error {
	seen := map[string]bool{}
	for i := range l.Arrays {
		if seen[l.Arrays[i].Name] {
			return &CorruptError{File: file, Reason: fmt.Sprintf("two arrays are named %q", l.Arrays[i].Name)}
		}
		seen[l.Arrays[i].Name] = true
	}
	return nil
}

func arrayFields(f Fields, a *layout.Array) {
	f.Str(&a.Name)
	f.Str(&a.Type)
	f.Str(&a.Section)
	pass(f, &a.Elem, func(e *Encoder, v int64) { e.U32(uint32(v)) }, func(d *Decoder) int64 { return int64(d.U32()) })
	f.U8((*uint8)(&a.Kind))
	dims := uint8(len(a.Dims))
	f.U8(&dims)
	if f.d != nil && dims > 0 {
		a.Dims = make([]int64, dims)
	}
	for i := range a.Dims {
		f.I64(&a.Dims[i])
	}
}

func localFields(f Fields, l *layout.Local) {
	f.Sum(&l.Sum)
	if l.Keyed() {
		itemFields(f, l)
		return
	}
	List(f, &l.Parts, len(l.Dims)*(4+spanLen), func(p *layout.Part) {
		if f.d != nil {
			p.Spans = make([][]layout.Span, len(l.Dims))
		}
		for k := range p.Spans {
			List(f, &p.Spans[k], spanLen, func(s *layout.Span) {
				f.I64(&s.Start)
				f.I64(&s.Count)
				f.I64(&s.Stride)
				f.I64(&s.Times)
			})
		}
	})
}

// decodeLocal reads the parts of an array that is known, and makes sure that they can be.
func decodeLocal(d *Decoder, l *layout.Local, rank int) error {
	if err := l.Array.Fits(); err != nil {
		return err
	}
	if localFields(Taking(d), l); d.Bad {
		return nil // the caller reports it
	}
	return l.Fits(rank)
}

// encodeLayouts appends the layouts of all ranks to a manifest: the arrays once, then each rank's shares. It appends
// nothing if no rank has any.
func (m *Manifest) encodeLayouts(e *Encoder) {
	var arrays []*layout.Array
	index := func(a *layout.Array) int {
		return slices.IndexFunc(arrays, func(b *layout.Array) bool { return sameArray(a, b) })
	}
	known := map[string]int{}
	for r := range m.Shards {
		if l := m.Shards[r].Layout; l != nil {
			for i := range l.Arrays {
				a := &l.Arrays[i].Array
				if k, ok := known[a.Name]; ok && sameArray(a, arrays[k]) {
					continue
				}
				if index(a) < 0 {
					known[a.Name] = len(arrays)
					arrays = append(arrays, a)
				}
			}
		}
	}
	e.U32(uint32(len(arrays)))
	for _, a := range arrays {
		arrayFields(Appending(e), a)
	}
	for r := range m.Shards {
		l := m.Shards[r].Layout
		if l == nil {
			e.U8(0)
			continue
		}
		e.U8(l.flags())
		e.U32(uint32(len(l.Arrays)))
		for i := range l.Arrays {
			k, ok := known[l.Arrays[i].Name]
			if !ok || !sameArray(&l.Arrays[i].Array, arrays[k]) {
				k = index(&l.Arrays[i].Array)
			}
			e.U32(uint32(k))
			localFields(Appending(e), &l.Arrays[i])
		}
	}
}

func sameArray(a, b *layout.Array) bool {
	return a.Name == b.Name && a.Type == b.Type && a.Section == b.Section && a.Elem == b.Elem && a.Kind == b.Kind &&
		slices.Equal(a.Dims, b.Dims)
}

// decodeLayouts reads the bytes of encodeLayouts.
func (m *Manifest) decodeLayouts(d *Decoder) error {
	arrays := make([]layout.Array, d.Count(arrayMin))
	named := map[string]bool{}
	for i := range arrays {
		if arrayFields(Taking(d), &arrays[i]); named[arrays[i].Name] {
			return fmt.Errorf("two arrays are named %q", arrays[i].Name)
		}
		named[arrays[i].Name] = true
	}
	used := 0 // arrays are listed in the order in which ranks refer to them first
	for r := range m.Shards {
		flags := d.U8()
		if flags == 0 {
			continue
		}
		l, ok := fromFlags(flags)
		if !ok {
			return fmt.Errorf("rank %d has the flags %#x", r, flags)
		}
		seen := map[string]bool{}
		for range d.Count(4 + localMin) {
			k := int(d.U32())
			if d.Bad || k >= len(arrays) || k > used {
				return fmt.Errorf("rank %d refers to array %d of %d", r, k, len(arrays))
			}
			used = max(used, k+1)
			x := layout.Local{Array: arrays[k]}
			if err := decodeLocal(d, &x, r); err != nil {
				return err
			}
			if seen[x.Name] {
				return fmt.Errorf("rank %d has two arrays named %q", r, x.Name)
			}
			seen[x.Name] = true
			l.Arrays = append(l.Arrays, x)
		}
		m.Shards[r].Layout = l
	}
	if used != len(arrays) {
		return fmt.Errorf("no rank refers to array %d", used)
	}
	return nil
}

// HasLayouts reports whether any rank has a layout.
func (m *Manifest) HasLayouts() bool {
	return slices.ContainsFunc(m.Shards, func(i ShardInfo) bool { return i.Layout != nil })
}

// Check makes sure that the layouts of all ranks fit together: every element of every array at one rank. The errors
// are those of layout.Check; replicated arrays have to be at all ranks.
func (m *Manifest) Check() error {
	arrays := map[string][]layout.Owned{}
	var names []string
	for r := range m.Shards {
		l := m.Shards[r].Layout
		if l == nil {
			continue
		}
		for i := range l.Arrays {
			name := l.Arrays[i].Name
			if arrays[name] == nil {
				names = append(names, name)
			}
			arrays[name] = append(arrays[name], layout.Owned{Rank: r, Local: &l.Arrays[i]})
		}
	}
	for _, name := range names {
		all := arrays[name]
		if len(all) < m.Size {
			return &layout.ShapeError{Array: name, Rank: missing(all), Why: "is not declared there; have every rank " +
				"declare it, with no blocks where it owns nothing"}
		}
		if err := layout.Check(all); err != nil {
			return err
		}
	}
	return nil
}

// missing returns the first rank that is not among them.
func missing(all []layout.Owned) int {
	for r := range all {
		if all[r].Rank != r {
			return r
		}
	}
	return len(all)
}

// Agrees reports whether a shard's index has the layout of its entry in a manifest.
func Agrees(l *Layout, x *Index) bool {
	sec, ok := x.Section(LayoutSection)
	if l == nil || !ok {
		return l == nil && !ok
	}
	b, err := l.Encode()
	if err != nil || int64(len(b)) != sec.Size {
		return false
	}
	for i := sec.First; len(b) > 0; i++ {
		n := min(len(b), x.ChunkBytes)
		if Hash(b[:n]) != x.Chunks[i].Hash {
			return false
		}
		b = b[n:]
	}
	return true
}

// leastItem is the length of the shortest item: a key, and how many elements it has.
const leastItem = 2

// varint passes over a number in groups of seven bits, the lowest first; all bytes but the last have the highest bit
// set. Longer forms are damage.
func (f Fields) varint(v *uint64) {
	pass(f, v, func(e *Encoder, v uint64) { e.B = binary.AppendUvarint(e.B, v) }, func(d *Decoder) uint64 {
		v, n := binary.Uvarint(d.B)
		if d.Bad || n <= 0 || n > 1 && d.B[n-1] == 0 {
			d.Bad = true
			return 0
		}
		d.take(n)
		return v
	})
}

// zigzag maps integers to those without sign, small ones to small ones.
func zigzag(v int64) uint64   { return uint64(v)<<1 ^ uint64(v>>63) }
func unzigzag(v uint64) int64 { return int64(v>>1) ^ -int64(v&1) }

// itemFields passes over the items of a set, whose keys ascend. The caller makes sure that those that were taken can
// be.
func itemFields(f Fields, l *layout.Local) {
	before, first := int64(0), true
	List(f, &l.Items, leastItem, func(v *layout.Item) {
		it := *v
		switch key := uint64(it.Key.Int) - uint64(before); {
		case l.Kind == layout.KeyedString:
			length := uint64(len(it.Key.Str))
			f.varint(&length)
			pass(f, &it.Key.Str, func(e *Encoder, s string) { e.B = append(e.B, s...) },
				func(d *Decoder) string { return string(d.take(int(min(length, layout.MaxKeyLen+1)))) })
		case first:
			key = zigzag(it.Key.Int)
			f.varint(&key)
			it.Key.Int = unzigzag(key)
		default:
			f.varint(&key)
			it.Key.Int = int64(uint64(before) + key)
		}
		before, first = it.Key.Int, false
		elems := uint64(it.Bytes / l.Elem)
		f.varint(&elems)
		f.Refuse(elems > uint64(layout.MaxElems/l.Elem))
		if f.d != nil {
			it.Bytes = int64(elems) * l.Elem
			*v = it
		}
	})
}

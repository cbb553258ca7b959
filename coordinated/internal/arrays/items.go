package arrays

import (
	"context"
	"encoding/binary"
	"fmt"
	"reflect"
	"slices"

	"github.com/holdfast-hpc/holdfast/coordinated/internal/capture"
	"github.com/holdfast-hpc/holdfast/internal/codec"
	"github.com/holdfast-hpc/holdfast/internal/layout"
	"github.com/holdfast-hpc/holdfast/storage"
	"github.com/zeebo/xxh3"
)

// An Owner returns the rank that gets the item with a key. Every rank asks for every key, so the answer depends on
// nothing else.
type Owner func(key layout.Key, ranks int) int

// items is a set of items with keys: a map of the program.
type items struct {
	local layout.Local  // without items
	m     reflect.Value // the map
	last  int64         // bytes at the last look
	owner Owner         // nil: items go with the rank that had them
	rank  int
	ranks int
}

// AddItems protects this rank's items of a set. x is a pointer to a map from integers or strings to fixed-size values
// or slices of those; rank and ranks are this one, and how many there are.
func (p *Protected) AddItems(name string, x any, owner Owner, rank, ranks int) error {
	if err := p.Free(name); err != nil {
		return err
	}
	v := reflect.ValueOf(x)
	if v.Kind() != reflect.Pointer || v.IsNil() || v.Elem().Kind() != reflect.Map {
		return fmt.Errorf("items are in a map; pass a pointer to it")
	}
	s := &items{m: v.Elem(), owner: owner, rank: rank, ranks: ranks}
	t, of := s.m.Type(), layout.Array{Name: name, Kind: layout.KeyedInt, Section: sectionArray + name}
	elem, slice := t.Elem(), ""
	if elem.Kind() == reflect.Slice {
		elem, slice = elem.Elem(), "[]"
	}
	switch k := t.Key(); {
	case k.Kind() == reflect.String:
		of.Kind = layout.KeyedString
	case !k.ConvertibleTo(reflect.TypeFor[int64]()) || k.Kind() == reflect.Float32 || k.Kind() == reflect.Float64:
		return fmt.Errorf("a key is an integer or a string, not %v", k)
	}
	l, err := capture.TypeLayout(elem)
	if err != nil {
		return fmt.Errorf("%w; keep fixed-size values, or slices of them, in the map", err)
	}
	of.Type, of.Elem = fmt.Sprintf("map[%v]%s%s", t.Key().Kind(), slice, l), int64(elem.Size())
	s.local.Array = of
	if err := of.Fits(); err != nil {
		return err
	}
	s.last = s.look()
	p.NameArray(name, nil)
	p.items = append(p.items, s)
	return nil
}

// key returns a key of the map, for the layout.
func (s *items) key(v reflect.Value) layout.Key {
	switch {
	case v.Kind() == reflect.String:
		return layout.Key{Str: v.String()}
	case v.CanUint():
		return layout.Key{Int: int64(v.Uint())}
	}
	return layout.Key{Int: v.Int()}
}

// keyOf returns a key of the layout, for the map; not ok if the map's type does not hold it.
func (s *items) keyOf(k layout.Key) (v reflect.Value, ok bool) {
	v = reflect.New(s.m.Type().Key()).Elem()
	switch {
	case v.Kind() == reflect.String:
		v.SetString(k.Str)
		return v, true
	case v.CanUint():
		v.SetUint(uint64(k.Int))
	default:
		v.SetInt(k.Int)
	}
	return v, s.key(v) == k
}

func (s *items) isSlice() bool { return s.m.Type().Elem().Kind() == reflect.Slice }

// bytesOf returns the memory of an item. room is memory for a value of the map's type, which has no address there.
func (s *items) bytesOf(v, room reflect.Value) []byte {
	if s.isSlice() {
		return capture.MemoryOf(v.UnsafePointer(), v.Len(), int(s.local.Elem))
	}
	room.Set(v)
	return capture.MemoryOf(room.Addr().UnsafePointer(), 1, int(s.local.Elem))
}

// look returns how many bytes there are now.
func (s *items) look() (n int64) {
	if !s.isSlice() {
		return int64(s.m.Len()) * s.local.Elem
	}
	for it := s.m.MapRange(); it.Next(); {
		n += int64(it.Value().Len()) * s.local.Elem
	}
	return n
}

// capture copies the items by ascending keys, and returns their layout.
func (s *items) capture(p *Protected, snap *capture.Snapshot) (layout.Local, error) {
	type held struct {
		layout.Item
		v reflect.Value
	}
	l, list := s.local, make([]held, 0, s.m.Len())
	s.last = 0
	for it := s.m.MapRange(); it.Next(); {
		h := held{layout.Item{Key: s.key(it.Key()), Bytes: l.Elem}, it.Value()}
		if s.isSlice() {
			h.Bytes *= int64(h.v.Len())
		}
		s.last += h.Bytes
		list = append(list, h)
	}
	slices.SortFunc(list, func(a, b held) int { return a.Key.Compare(b.Key) })
	dst := p.Alloc(int(s.last))
	if dst == nil {
		dst = make([]byte, s.last)
	}
	snap.Add(l.Section, storage.Bytes(dst), s.last)
	l.Items = make([]layout.Item, len(list))
	var jobs []capture.Copy
	room := reflect.New(s.m.Type().Elem()).Elem()
	for i, h := range list {
		l.Items[i] = h.Item
		src := s.bytesOf(h.v, room)
		if s.isSlice() && len(src) >= gatherJob {
			jobs = append(jobs, capture.Copy{Dst: dst[:len(src)], Src: src})
		} else {
			copy(dst, src)
		}
		dst = dst[len(src):]
	}
	p.CopyAll(jobs)
	return l, l.Fits(s.rank)
}

// assign reports for each item of a rank of the epoch whether this rank gets it. It adds the owners to sum.
func (s *items) assign(o *holder, size int, sum *xxh3.Hasher) (mine []bool, err error) {
	saved := o.arrays[s.local.Name]
	mine = make([]bool, len(saved.Items))
	home := int(int64(o.rank) * int64(s.ranks) / int64(size))
	var b []byte
	for i := range saved.Items {
		k, to := saved.Items[i].Key, home
		if s.owner != nil {
			if to = s.owner(k, s.ranks); to < 0 || to >= s.ranks {
				return nil, Unfit(fmt.Errorf("restore %q: the owner rule sends item %s to rank %d; it has to be one "+
					"of 0 to %d", s.local.Name, saved.KeyText(k), to, s.ranks-1))
			}
			b = binary.LittleEndian.AppendUint64(b[:0], uint64(k.Int))
			b = binary.LittleEndian.AppendUint32(append(b, k.Str...), uint32(to))
			_, _ = sum.Write(b) // it never fails
		}
		mine[i] = to == s.rank
	}
	return mine, nil
}

// itemBatch is how many bytes of small items are read together.
const itemBatch = 8 << 20

func (s *items) fetch(saved *layout.Local, mine []bool, into reflect.Value,
	read func(dst []byte, off int64) error) error {
	var batch []int
	var from []piece
	var bytes int64
	flush := func() error {
		scratch := make([]byte, bytes)
		if err := readPieces(from, toMemory(scratch), read); err != nil {
			return err
		}
		for _, i := range batch {
			n := saved.Items[i].Bytes
			if err := s.put(into, saved, i, scratch[:n]); err != nil {
				return err
			}
			scratch = scratch[n:]
		}
		batch, from, bytes = batch[:0], from[:0], 0
		return nil
	}
	at := int64(0)
	for i := range saved.Items {
		n := saved.Items[i].Bytes
		if mine[i] {
			if bytes+n > itemBatch && len(batch) > 0 {
				if err := flush(); err != nil {
					return err
				}
			}
			batch = append(batch, i)
			if n > 0 {
				from = append(from, piece{at, bytes, n})
			}
			bytes += n
		}
		at += n
	}
	return flush()
}

func (s *items) put(into reflect.Value, saved *layout.Local, i int, b []byte) error {
	k, ok := s.keyOf(saved.Items[i].Key)
	t := s.m.Type().Elem()
	v := reflect.New(t).Elem()
	if s.isSlice() {
		v.Set(reflect.MakeSlice(t, len(b)/int(s.local.Elem), len(b)/int(s.local.Elem)))
	} else {
		ok = ok && int64(len(b)) == s.local.Elem
	}
	if !ok || into.MapIndex(k).IsValid() {
		return fmt.Errorf("item %s, of %d bytes, cannot be in a %v, or is in it already: %w",
			saved.KeyText(saved.Items[i].Key), len(b), s.m.Type(), storage.ErrCorrupt)
	}
	copy(s.bytesOf(v, v), b)
	into.SetMapIndex(k, v)
	return nil
}

// itemsOf reads the items that this rank gets into a new map, which becomes the program's with everything else.
func (a *Attempt) itemsOf(ctx context.Context, s *items, holders []holder, size int) error {
	into := reflect.MakeMap(s.m.Type())
	sum := xxh3.New()
	for i := range holders {
		o := &holders[i]
		mine, err := s.assign(o, size, sum)
		if err != nil {
			return err
		}
		if !slices.Contains(mine, true) {
			continue
		}
		err = a.src.With(ctx, o.rank, func(sh *storage.Shard) error {
			return s.fetch(o.arrays[s.local.Name], mine, into, func(dst []byte, off int64) error {
				return sh.ReadAt(ctx, s.local.Section, dst, off)
			})
		})
		if err != nil {
			return fmt.Errorf("restore %q: %w", s.local.Name, err)
		}
	}
	a.Assigned = append(a.Assigned, Assignment{s.local.Name, sum.Sum128().Bytes()})
	was := reflect.New(s.m.Type()).Elem()
	was.Set(s.m)
	a.OnApply(s.local.Name, func() error { s.m.Set(into); s.last = s.look(); return nil }, func() { s.m.Set(was) })
	return nil
}

// Assignment is a hash of the owners of a set's items: the ranks agree if theirs are equal.
type Assignment struct {
	Name string
	Sum  [16]byte
}

// AppendAssigned appends a count, and the name and the hash of each set.
func AppendAssigned(b []byte, list []Assignment) []byte {
	w := codec.Writer{B: b}
	w.Uint(uint64(len(list)))
	for i := range list {
		w.Str(list[i].Name)
		w.B = append(w.B, list[i].Sum[:]...)
	}
	return w.B
}

// AssignedVotes compares the owners of items among the ranks that vote.
type AssignedVotes struct {
	Err   error // the first difference
	first map[string]assignedVote
}

type assignedVote struct {
	rank int
	sum  string
}

// Add takes a rank's vote off the beginning of a text, and returns the rest.
func (v *AssignedVotes) Add(rank int, s string) (rest string) {
	if v.first == nil {
		v.first = map[string]assignedVote{}
	}
	r := codec.Reader{B: []byte(s)}
	for range r.Count() {
		name, sum := r.Str(), string(r.Take(16))
		if r.Err != nil {
			break
		}
		if have, ok := v.first[name]; !ok {
			v.first[name] = assignedVote{rank, sum}
		} else if have.sum != sum && v.Err == nil {
			v.Err = fmt.Errorf("items %q: the owner rule assigns them in one way on rank %d and in another on rank "+
				"%d; let it depend on nothing but the key and the number of ranks", name, have.rank, rank)
		}
	}
	if r.Err != nil {
		v.Err = fmt.Errorf("the vote of rank %d on items cannot be read", rank)
	}
	return string(r.B)
}

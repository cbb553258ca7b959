package layout

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// MaxKeyLen is how many bytes a key that is a string may have.
const MaxKeyLen = 1024

// Key identifies an item of a set: Str in a set with strings, Int in one with integers. Integers without sign are kept
// as those with one that have the same bits.
type Key struct {
	Int int64
	Str string
}

// Compare orders keys: as integers with a sign, or byte by byte.
func (k Key) Compare(o Key) int {
	return cmp.Or(cmp.Compare(k.Int, o.Int), strings.Compare(k.Str, o.Str))
}

// Item is an item of a set with keys, and how many bytes it has.
type Item struct {
	Key   Key
	Bytes int64
}

// Keyed reports whether the array is a set of items with keys, and has no dimensions.
func (a *Array) Keyed() bool { return a.Kind == KeyedInt || a.Kind == KeyedString }

// KeyText returns a key of the set as people write it.
func (a *Array) KeyText(k Key) string {
	switch {
	case a.Kind == KeyedString:
		return strconv.Quote(k.Str)
	case strings.HasPrefix(a.Type, "map[uint"):
		return strconv.FormatUint(uint64(k.Int), 10)
	}
	return strconv.FormatInt(k.Int, 10)
}

func (l *Local) fitItems(rank int) error {
	bad := func(k Key, format string, args ...any) error {
		return &ShapeError{Array: l.Name, Rank: rank, Why: "item " + l.KeyText(k) + " " + fmt.Sprintf(format, args...)}
	}
	if len(l.Parts) > 0 {
		return &ShapeError{Array: l.Name, Rank: rank, Why: "a set of items has blocks"}
	}
	if len(l.Items) > MaxSpans {
		return &LimitError{Runs: int64(len(l.Items)), Items: true}
	}
	var all int64
	for i := range l.Items {
		it := &l.Items[i]
		switch {
		case l.Kind == KeyedInt && it.Key.Str != "" || l.Kind == KeyedString && it.Key.Int != 0:
			return bad(it.Key, "has a key of another kind")
		case len(it.Key.Str) > MaxKeyLen:
			return bad(it.Key, "has a key of %d bytes, of at most %d", len(it.Key.Str), MaxKeyLen)
		case i > 0 && l.Items[i-1].Key.Compare(it.Key) >= 0:
			return bad(it.Key, "does not follow %s", l.KeyText(l.Items[i-1].Key))
		case it.Bytes < 0 || it.Bytes%l.Elem != 0 || it.Bytes > math.MaxInt64/2-all:
			return bad(it.Key, "has %d bytes, elements have %d", it.Bytes, l.Elem)
		}
		all += it.Bytes
	}
	return nil
}

// checkItems makes sure that no key is at two ranks.
func checkItems(all []Owned) error {
	n := 0
	for i := range all {
		n += len(all[i].Items)
	}
	if n > MaxSpans {
		return &LimitError{Runs: int64(n), Items: true}
	}
	type held struct {
		key  Key
		rank int
	}
	list := make([]held, 0, n)
	for i := range all {
		for k := range all[i].Items {
			list = append(list, held{all[i].Items[k].Key, all[i].Rank})
		}
	}
	slices.SortFunc(list, func(a, b held) int { return cmp.Or(a.key.Compare(b.key), cmp.Compare(a.rank, b.rank)) })
	for i := 1; i < len(list); i++ {
		if list[i-1].key == list[i].key {
			return &DuplicateError{Array: all[0].Name, Key: all[0].KeyText(list[i].key),
				Ranks: [2]int{list[i-1].rank, list[i].rank}}
		}
	}
	return nil
}

// DuplicateError reports that two ranks have an item with the same key.
type DuplicateError struct {
	Array string
	Key   string // as people write it
	Ranks [2]int
}

// Error names the set, the key and the ranks.
func (e *DuplicateError) Error() string {
	return fmt.Sprintf("items %q: key %s is at rank %d and at rank %d; keep each item at one rank", e.Array, e.Key,
		e.Ranks[0], e.Ranks[1])
}

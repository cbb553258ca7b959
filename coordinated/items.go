package coordinated

import (
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"reflect"

	"github.com/holdfast-hpc/holdfast/coordinated/internal/capture"
	"github.com/holdfast-hpc/holdfast/internal/codec"
	"github.com/holdfast-hpc/holdfast/internal/layout"
	"github.com/holdfast-hpc/holdfast/storage"
)

// ItemKey is what items are found by. Keys are unique among the items of all ranks.
type ItemKey interface {
	~int | ~int8 | ~int16 | ~int32 | ~int64 | ~uint | ~uint8 | ~uint16 | ~uint32 | ~uint64 | ~string
}

// ProtectItems makes this rank's items of a set, such as the patches of an adaptive mesh or the particles of a cell,
// part of every checkpoint, so that an epoch can be restored by any number of ranks. V is a fixed-size value without
// pointers, or a slice of such values. Every rank declares the set with the same name and types, also if it has no
// item. A key that two ranks have fails each checkpoint with a *DuplicateError.
//
// At a restart each item goes to the rank that owner says, of so many ranks; HashOwner is a rule that spreads them
// evenly. Restore asks the rule for every key on every rank, so its answer must depend on the key and the number of
// ranks alone: an answer that is no rank is an *OwnerError, and answers that differ between the ranks an *OwnersError.
// Without a rule the items stay with their rank if the number of ranks is the same; else rank r of p goes to r·q/p
// of q. Restore replaces the map, and gives each slice memory of its own. An attempt that fails leaves the map alone.
//
// It is local, and called before Restore as Protect is. What cannot be is a *ProtectError. A Point that takes a
// checkpoint sorts the keys: about 0.3 µs for each item, while the program waits. All ranks' keys are in the epoch's
// manifest, some three bytes for each that is an integer, so an item is better a cell or a patch than a particle.
func ProtectItems[K ItemKey, V any](c *Checkpointer, name string, items *map[K]V,
	owner func(key K, ranks int) int) error {
	var rule capture.Owner
	if owner != nil {
		rule = func(k layout.Key, ranks int) int { return owner(keyOf[K](k), ranks) }
	}
	return c.protect(name, items, func() error {
		return c.state.AddItems(name, items, rule, c.topo.Rank, c.topo.Size())
	})
}

// keyOf is a key as the program has it.
func keyOf[K ItemKey](k layout.Key) (key K) {
	switch v := reflect.ValueOf(&key).Elem(); {
	case v.Kind() == reflect.String:
		v.SetString(k.Str)
	case v.CanUint():
		v.SetUint(uint64(k.Int))
	default:
		v.SetInt(k.Int)
	}
	return key
}

// HashOwner is an owner rule that spreads keys over the ranks by their hash. It is the same on all machines and in all
// releases.
func HashOwner[K ItemKey](key K, ranks int) int {
	h := fnv.New64a()
	switch v := reflect.ValueOf(key); {
	case v.Kind() == reflect.String:
		_, _ = h.Write([]byte(v.String())) // it never fails
	case v.CanUint():
		_, _ = h.Write(binary.LittleEndian.AppendUint64(nil, v.Uint()))
	default:
		_, _ = h.Write(binary.LittleEndian.AppendUint64(nil, uint64(v.Int())))
	}
	x := h.Sum64()
	x ^= x >> 32 // the low bits of FNV alone do not spread
	return int(x % uint64(ranks))
}

// OwnerError says that the owner rule of a set sends an item to no rank.
//
//	Name, Key string
//	Owner     int // what the rule said
//	Ranks     int // of the job: it has to be below
type OwnerError = capture.OwnerError

// DuplicateError names an item that two ranks have: see storage.DuplicateError.
type DuplicateError = storage.DuplicateError

// OwnersError says that the owner rule of a set gives other answers on one rank than on another.
type OwnersError struct {
	Name  string
	Ranks [2]int
}

// Error names the set and the ranks, and says what a rule may depend on.
func (e *OwnersError) Error() string {
	return fmt.Sprintf("items %q: the owner rule assigns them in one way on rank %d and in another on rank %d; let it "+
		"depend on nothing but the key and the number of ranks", e.Name, e.Ranks[0], e.Ranks[1])
}

// appendItemVotes appends a count, and the name and the hash of each set.
func appendItemVotes(b []byte, list []capture.Assignment) []byte {
	w := codec.Writer{B: b}
	w.Uint(uint64(len(list)))
	for i := range list {
		w.Str(list[i].Name)
		w.B = append(w.B, list[i].Sum[:]...)
	}
	return w.B
}

// itemVotes compares who gets which items by the ranks that vote.
type itemVotes struct {
	first map[string]itemVote
	err   error // the first difference
}

type itemVote struct {
	rank int
	sum  string
}

// add takes a rank's vote off the beginning of a text, and returns the rest.
func (v *itemVotes) add(rank int, s string) (rest string) {
	if v.first == nil {
		v.first = map[string]itemVote{}
	}
	r := codec.Reader{B: []byte(s)}
	for range r.Count() {
		name, sum := r.Str(), string(r.Take(16))
		if r.Err != nil {
			break
		}
		if have, ok := v.first[name]; !ok {
			v.first[name] = itemVote{rank, sum}
		} else if have.sum != sum && v.err == nil {
			v.err = &OwnersError{Name: name, Ranks: [2]int{have.rank, rank}}
		}
	}
	if r.Err != nil {
		v.err = fmt.Errorf("the vote of rank %d on items cannot be read", rank)
	}
	return string(r.B)
}

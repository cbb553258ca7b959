package format

import "encoding/hex"

// Identity tells one run from all others: a first start, and the restarts that continue it. The zero Identity is that
// of a run under a release that gave none.
type Identity struct {
	ID      [16]byte // random
	Began   int64    // when the first start was, in nanoseconds since 1970 UTC
	Before  [16]byte // ID of the run whose directories this run took over to start over; zero: none
	Adopted bool     // it continues epochs of a release that gave no identity
}

// IsZero reports whether the identity says nothing.
func (i Identity) IsZero() bool { return i.ID == [16]byte{} }

// Owns reports whether what carries the identity x belongs to the run i. What carries none does if i has none, or has
// adopted it.
func (i Identity) Owns(x Identity) bool {
	return i.ID == x.ID || x.IsZero() && i.Adopted
}

// Replaced reports whether the run i started over in the directories of the run x.
func (i Identity) Replaced(x Identity) bool { return !x.IsZero() && i.Before == x.ID }

// Short is the first digits of the ID, "" without one.
func (i Identity) Short() string {
	if i.IsZero() {
		return ""
	}
	return hex.EncodeToString(i.ID[:4])
}

// IdentityBytes is the length of an Identity in records.
const IdentityBytes = 41

// Identity appends one.
func (e *Encoder) Identity(i Identity) {
	e.Sum(i.ID)
	e.U64(uint64(i.Began))
	e.Sum(i.Before)
	e.flag(i.Adopted)
}

// Identity takes one, which is not zero.
func (d *Decoder) Identity() Identity {
	i := d.AnyIdentity()
	d.Bad = d.Bad || i.IsZero()
	return i
}

// AnyIdentity takes one, which may be zero.
func (d *Decoder) AnyIdentity() Identity {
	return Identity{ID: d.Sum(), Began: int64(d.U64()), Before: d.Sum(), Adopted: d.flag()}
}

func (e *Encoder) flag(v bool) {
	n := uint8(0)
	if v {
		n = 1
	}
	e.U8(n)
}

func (d *Decoder) flag() bool {
	n := d.U8()
	d.Bad = d.Bad || n > 1
	return n == 1
}

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

// IdentityFields passes over an identity, which may be zero.
func IdentityFields(f Fields, i *Identity) {
	f.Sum(&i.ID)
	f.Time(&i.Began)
	f.Sum(&i.Before)
	f.Flag(&i.Adopted)
}

package format

import "encoding/hex"

// Identity tells one run from all others: a first start, and the restarts that continue it. Runs of releases without
// identities have the zero Identity.
type Identity struct {
	ID      [16]byte // random
	Began   int64    // when the first start was, in nanoseconds since 1970 UTC
	Before  [16]byte // ID of the run that this run replaced to start over; zero: none
	Adopted bool     // it continues epochs of a release that gave no identity
}

// IsZero reports whether there is no identity.
func (i Identity) IsZero() bool { return i.ID == [16]byte{} }

// Owns reports whether files with the identity x belong to the run i. Files without one do if i has none, or has
// adopted them.
func (i Identity) Owns(x Identity) bool {
	return i.ID == x.ID || x.IsZero() && i.Adopted
}

// Replaced reports whether the run i started over in the directories of the run x.
func (i Identity) Replaced(x Identity) bool { return !x.IsZero() && i.Before == x.ID }

// Short returns the first digits of the ID, "" without one.
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

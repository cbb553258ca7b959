package vote

import (
	"slices"

	"github.com/holdfast-hpc/holdfast/coordinated/cut"
	"github.com/holdfast-hpc/holdfast/coordinated/internal/outcome"
	"github.com/holdfast-hpc/holdfast/internal/codec"
	"github.com/holdfast-hpc/holdfast/storage"
)

// MaxDeaths is how often a program may die right after it restored an epoch
// before the epoch is left out.
const MaxDeaths = 2

// LastDeaths is how often the program may die right after it restored an epoch that is all there is. Signals of an
// operator or the system are among these deaths, so two do not end a job.
const LastDeaths = 6

// A Candidate is an epoch with the identity of its contents.
type Candidate struct {
	Epoch storage.Epoch
	ID    [16]byte
}

// Flags of an epoch.
const (
	IsSkipped    = 1
	IsUnreadable = 2 // the rank cannot have it, and it was committed
	IsDeadly     = 4 // skipped, and tried again too often
)

// Flags has the flags that any rank gives an epoch.
type Flags map[storage.Epoch]byte

// Has reports whether any epoch has a flag.
func (f Flags) Has(flag byte) bool {
	for _, b := range f {
		if b&flag != 0 {
			return true
		}
	}
	return false
}

// EncodeCandidates encodes the epochs that a rank can restore, or its error.
func EncodeCandidates(list []storage.Candidate, unreadable []storage.Epoch, err error) []byte {
	if err != nil {
		return append([]byte{1}, err.Error()...)
	}
	w := codec.Writer{B: []byte{0}}
	add := func(e storage.Epoch, id [16]byte, flag byte) {
		w.Uint(uint64(e))
		w.B = append(append(w.B, id[:]...), flag)
	}
	for _, c := range list {
		flag := byte(0)
		if c.Deaths >= MaxDeaths {
			flag |= IsSkipped
		}
		if c.Deaths >= LastDeaths {
			flag |= IsDeadly
		}
		add(c.Epoch, c.ID, flag)
	}
	for _, e := range unreadable {
		add(e, [16]byte{}, IsUnreadable)
	}
	return w.B
}

// DecodeCandidates returns each rank's epochs, and the flags that any rank gives an epoch.
func DecodeCandidates(op string, blobs []cut.Blob, own error) ([][]Candidate, Flags, error) {
	flags := Flags{}
	per := make([][]Candidate, len(blobs))
	err := outcome.Check(op, blobs, own, func(i int, b []byte) string {
		switch {
		case len(b) > 1 && b[0] != 0:
			return string(b[1:])
		case len(b) == 0 || b[0] != 0:
			return "unknown error"
		}
		for r := (codec.Reader{B: b[1:]}); len(r.B) > 0; {
			k := Candidate{Epoch: storage.Epoch(r.Uint())}
			copy(k.ID[:], r.Take(len(k.ID)))
			flag := byte(r.Fixed(1))
			if r.Err != nil {
				return "malformed vote"
			}
			flags[k.Epoch] |= flag
			if flag&IsUnreadable == 0 {
				per[i] = append(per[i], k)
			}
		}
		return ""
	})
	return per, flags, err
}

// Common returns the epochs that all ranks have with the same contents, in
// the order of the first rank: newest first.
func Common(per [][]Candidate) []Candidate {
	count := map[Candidate]int{}
	for _, list := range per {
		for _, k := range list {
			count[k]++
		}
	}
	return slices.DeleteFunc(slices.Clone(per[0]), func(k Candidate) bool { return count[k] < len(per) })
}

// Any reports whether any rank has an epoch.
func Any(per [][]Candidate) bool {
	return slices.ContainsFunc(per, func(list []Candidate) bool { return len(list) > 0 })
}

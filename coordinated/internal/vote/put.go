package vote

import (
	"errors"
	"slices"
	"strings"

	"github.com/holdfast-hpc/holdfast/coordinated/cut"
	"github.com/holdfast-hpc/holdfast/coordinated/internal/outcome"
	"github.com/holdfast-hpc/holdfast/internal/codec"
	"github.com/holdfast-hpc/holdfast/internal/units"
	"github.com/holdfast-hpc/holdfast/storage"
)

// uncaptured marks an error that no other level would help against.
type uncaptured struct{ error }

func (e *uncaptured) Unwrap() error { return e.error }

// Uncaptured marks why a rank has nothing to write.
func Uncaptured(err error) error { return &uncaptured{err} }

// NothingToWrite reports whether a vote failed because some rank has nothing to write, at any level.
func NothingToWrite(err error) bool { return errors.As(err, new(*uncaptured)) }

// EncodePut returns a rank's vote on its shards: a byte, 0 for shard infos, each with its length before it, and 1 for
// the text of an error, 2 for an error that concerns all levels.
func EncodePut(infos []storage.ShardInfo, err error) []byte {
	out := codec.Writer{B: []byte{0}}
	for i := range infos {
		if err != nil {
			break
		}
		var b []byte
		b, err = infos[i].MarshalBinary()
		out.Bytes(b)
	}
	switch {
	case errors.As(err, new(*uncaptured)):
		return append([]byte{2}, err.Error()...)
	case err != nil:
		return append([]byte{1}, err.Error()...)
	}
	return out.B
}

// decodePut reads the vote of one rank; wrong has the reason of a no.
func decodePut(b []byte) (infos []storage.ShardInfo, wrong string) {
	switch {
	case len(b) > 1 && b[0] != 0:
		return nil, string(b[1:])
	case len(b) == 0 || b[0] != 0:
		return nil, "no vote"
	}
	for r := (codec.Reader{B: b[1:]}); len(r.B) > 0; {
		var info storage.ShardInfo
		if d := r.Bytes(); r.Err != nil || info.UnmarshalBinary(d) != nil {
			return nil, "malformed vote"
		}
		infos = append(infos, info)
	}
	return infos, ""
}

// mostReason bounds a reason for ranks that write no manifest.
const mostReason = 1000

// BriefPuts shortens the votes on shards for ranks that write no manifest: yes without the infos, which are the most of
// it, or the reason of a no.
func BriefPuts(all []cut.Blob) []cut.Blob {
	brief := make([]cut.Blob, len(all))
	for i, b := range all {
		brief[i] = cut.Blob{Rank: b.Rank, Data: briefPut(b.Data)}
	}
	return brief
}

func briefPut(b []byte) []byte {
	_, wrong := decodePut(b)
	switch {
	case wrong == "":
		return []byte{0}
	case len(b) > 1 && b[0] != 0:
		return append(b[:1:1], units.Cut(string(b[1:]), mostReason-1)...)
	}
	return append([]byte{1}, wrong...)
}

// DecodePuts returns the infos of all ranks, without those shortened by BriefPuts; or the reason for which the epoch
// was not written.
func DecodePuts(op string, blobs []cut.Blob, own error) ([]storage.ShardInfo, error) {
	var infos []storage.ShardInfo
	if err := outcome.Check(op, blobs, own, func(_ int, b []byte) string {
		more, wrong := decodePut(b)
		infos = append(infos, more...)
		return wrong
	}); err != nil {
		var failed *outcome.RanksError
		nothing := slices.ContainsFunc(blobs, func(b cut.Blob) bool { return len(b.Data) > 0 && b.Data[0] == 2 })
		if nothing && errors.As(err, &failed) { // nothing was written anywhere
			failed.Op, _, _ = strings.Cut(strings.Replace(op, "write", "take", 1), " to ")
			err = &uncaptured{failed}
		}
		return nil, err
	}
	return infos, nil
}

package vote

import (
	"errors"
	"fmt"
	"slices"

	"github.com/holdfast-hpc/holdfast/coordinated/cut"
	"github.com/holdfast-hpc/holdfast/coordinated/internal/outcome"
	"github.com/holdfast-hpc/holdfast/internal/codec"
	"github.com/holdfast-hpc/holdfast/internal/units"
	"github.com/holdfast-hpc/holdfast/storage"
)

// A Commit is a rank's report after it has written its manifest of an epoch at a level: its error, and the epochs that
// its directory has now. Ranks keep the newest that all of them have, so that a later restart finds as many as were to
// be kept: a manifest that only some could write counts nowhere.
type Commit struct {
	Err     error
	ByOther bool            // the directory is another rank's as well, which writes the manifests and votes on that
	Have    []storage.Epoch // newest first
}

// First bytes of a commit vote.
const (
	votesYes   = 0 // the epochs follow
	votesNo    = 1 // the text of an error follows
	votesAsOne = 2 // as the rank that writes the manifests here
)

// Encode returns the vote in bytes.
func (v *Commit) Encode() []byte {
	switch {
	case v.Err != nil:
		return append([]byte{votesNo}, v.Err.Error()...)
	case v.ByOther:
		return []byte{votesAsOne}
	}
	out := codec.Writer{B: []byte{votesYes}}
	for _, e := range v.Have {
		out.Uint(uint64(e))
	}
	return out.B
}

// BriefCommits shortens the votes on manifests for all ranks but rank 0 to their outcome, whose length does not depend
// on the number of ranks.
func BriefCommits(blobs []cut.Blob) []cut.Blob {
	all, err := DecodeCommits("", blobs, nil)
	brief := make([]cut.Blob, len(blobs))
	for i, b := range blobs {
		brief[i] = cut.Blob{Rank: b.Rank, Data: []byte{votesAsOne}}
	}
	if len(brief) > 0 {
		brief[0].Data = (&Commit{Have: all}).Encode()
	}
	if failed, ok := errors.AsType[*outcome.RanksError](err); ok {
		for _, f := range failed.Failed {
			brief[f.Rank].Data = append([]byte{votesNo}, units.Cut(f.Text, mostReason)...)
		}
	}
	return brief
}

// DecodeCommits returns the epochs that all ranks have, ascending, or why the epoch
// failed.
func DecodeCommits(op string, blobs []cut.Blob, own error) ([]storage.Epoch, error) {
	count := map[storage.Epoch]int{}
	voters := 0
	if err := outcome.Check(op, blobs, own, func(i int, b []byte) string {
		switch {
		case len(b) == 1 && b[0] == votesAsOne && i > 0: // rank 0 is the first everywhere
		case len(b) > 1 && b[0] == votesNo:
			return string(b[1:])
		case len(b) > 0 && b[0] == votesYes:
			voters++
			r := codec.Reader{B: b[1:]}
			for len(r.B) > 0 {
				count[storage.Epoch(r.Uint())]++
			}
			if r.Err != nil {
				return fmt.Sprintf("malformed vote of %d bytes", len(b))
			}
		default:
			return fmt.Sprintf("no vote, or a malformed vote of %d bytes", len(b))
		}
		return ""
	}); err != nil {
		return nil, err
	}
	var all []storage.Epoch
	for e, n := range count {
		if n == voters {
			all = append(all, e)
		}
	}
	slices.Sort(all)
	return all, nil
}

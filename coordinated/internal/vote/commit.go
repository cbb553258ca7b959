package vote

import (
	"encoding/binary"
	"fmt"

	"github.com/holdfast-hpc/holdfast/coordinated/cut"
	"github.com/holdfast-hpc/holdfast/storage"
)

// A Commit is what a rank says after it has written its manifest of an epoch
// at a level: whether it could, and which epochs its directory has now. Ranks
// keep the newest that all of them have, so that a later restart finds as many
// as were to be kept: a manifest that only some could write counts nowhere.
type Commit struct {
	Err    error
	Shared bool            // the directory is rank 0's, which votes for all
	Have   []storage.Epoch // newest first
}

// First bytes of a commit vote.
const (
	votesYes    = 0 // 64 bits for each epoch follow
	votesNo     = 1 // the text of an error follows
	votesAsZero = 2 // yes, and rank 0 says what is there
)

// Encode is the vote in bytes.
func (v *Commit) Encode() []byte {
	switch {
	case v.Err != nil:
		return append([]byte{votesNo}, v.Err.Error()...)
	case v.Shared:
		return []byte{votesAsZero}
	}
	out := []byte{votesYes}
	for _, e := range v.Have {
		out = binary.LittleEndian.AppendUint64(out, uint64(e))
	}
	return out
}

// DecodeCommits returns the epochs that all ranks have, or why the epoch
// failed.
func DecodeCommits(op string, blobs []cut.Blob, own error) ([]storage.Epoch, error) {
	count := map[storage.Epoch]int{}
	voters := 0
	if err := each(op, blobs, own, func(i int, b []byte) string {
		switch {
		case len(b) == 1 && b[0] == votesAsZero && i > 0:
		case len(b) > 1 && b[0] == votesNo:
			return string(b[1:])
		case len(b)%8 == 1 && b[0] == votesYes:
			voters++
			for d := b[1:]; len(d) > 0; d = d[8:] {
				count[storage.Epoch(binary.LittleEndian.Uint64(d))]++
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
	return all, nil
}

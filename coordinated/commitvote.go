package coordinated

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/holdfast-hpc/holdfast/coordinated/cut"
	"github.com/holdfast-hpc/holdfast/storage"
)

// commitVote is what a rank says after it has written its manifest of an epoch
// at a level: whether it could, and which epochs its directory has now. Ranks
// keep the newest that all of them have, so that a later restart finds as many
// as were to be kept: a manifest that only some could write counts nowhere.
type commitVote struct {
	err    error
	shared bool            // the directory is rank 0's, which votes for all
	have   []storage.Epoch // newest first
}

// writeManifest commits an epoch into this rank's directory of a level, and says
// what lies there. A local directory belongs to its node, so every rank commits
// there; the global one is shared, and rank 0 writes for all.
func (c *Checkpointer) writeManifest(e storage.Epoch, level string, infos []storage.ShardInfo) (v commitVote) {
	if level == storage.LevelGlobal && c.world.Rank() != 0 {
		return commitVote{shared: true}
	}
	if v.err = c.writeAttended(e, level, infos); v.err != nil {
		return v
	}
	have, err := c.store.Present(c.ctx, level)
	if err != nil { // then only this epoch counts, and nothing older is removed
		c.log.Warn("holdfast: epochs at a level", "level", level, "error", err)
		have = []storage.Epoch{e}
	}
	v.have = have
	return v
}

// writeAttended writes the manifest, or gives that up. Then this rank votes no, so a
// manifest that comes into being all the same is taken back, by whichever is last.
func (c *Checkpointer) writeAttended(e storage.Epoch, level string, infos []storage.ShardInfo) error {
	var other atomic.Bool
	err := c.ops.Attend(c.ctx, "commit", level, func(ctx context.Context) error {
		err := c.store.Commit(ctx, e, level, infos)
		if other.Swap(true) && err == nil {
			err = c.store.Withdraw(e, level)
		}
		return err
	})
	var hung *HungError
	if errors.As(err, &hung) && other.Swap(true) {
		err = errors.Join(err, c.store.Withdraw(e, level))
	}
	return err
}

// First bytes of a commit vote.
const (
	votesYes    = 0 // 64 bits for each epoch follow
	votesNo     = 1 // the text of an error follows
	votesAsZero = 2 // yes, and rank 0 says what is there
)

func (v *commitVote) encode() []byte {
	switch {
	case v.err != nil:
		return append([]byte{votesNo}, v.err.Error()...)
	case v.shared:
		return []byte{votesAsZero}
	}
	out := []byte{votesYes}
	for _, e := range v.have {
		out = binary.LittleEndian.AppendUint64(out, uint64(e))
	}
	return out
}

// decodeCommitVotes returns the epochs that all ranks have, or why the epoch
// failed.
func decodeCommitVotes(op string, blobs []cut.Blob, own error) ([]storage.Epoch, error) {
	texts := make([]string, len(blobs))
	count := map[storage.Epoch]int{}
	voters := 0
	for i, b := range blobs {
		switch {
		case len(b.Data) == 1 && b.Data[0] == votesAsZero && i > 0:
		case len(b.Data) > 1 && b.Data[0] == votesNo:
			texts[i] = string(b.Data[1:])
		case len(b.Data)%8 == 1 && b.Data[0] == votesYes:
			voters++
			for d := b.Data[1:]; len(d) > 0; d = d[8:] {
				count[storage.Epoch(binary.LittleEndian.Uint64(d))]++
			}
		default:
			texts[i] = fmt.Sprintf("no vote, or a malformed one of %d bytes", len(b.Data))
		}
	}
	if err := ranksError(op, texts, own); err != nil {
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

package catalog

import (
	"context"
	"errors"
	"math"

	"github.com/holdfast-hpc/holdfast/storage/internal/format"
	"github.com/holdfast-hpc/holdfast/storage/internal/level"
	"github.com/holdfast-hpc/holdfast/storage/internal/redundancy"
)

// Holdings describes what this rank's directories have, for Learn of the
// other ranks. Directories that all ranks see, of the level global, are left out.
func (c *Catalog) Holdings(ctx context.Context) ([]byte, error) {
	var list []redundancy.Holding
	for _, l := range c.levels {
		if l.Traits().Shared {
			continue
		}
		epochs, err := l.Epochs()
		if err != nil && l.Out == nil {
			return nil, err
		}
		for _, e := range epochs {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			size := c.Size
			if c.Elastic {
				size = math.MaxInt // shards of ranks that are no more
			}
			h, err := holdingOf(l, e, size)
			if level.OfOtherRun(err) {
				continue // Candidates says so
			}
			if err != nil {
				c.Log.Warn("holdfast: epoch not offered to other ranks: it cannot be read", "epoch", e, "level",
					l.Name(), "err", err)
				continue
			}
			h.From = c.Rank
			list = append(list, h)
		}
	}
	return redundancy.EncodeHoldings(list), nil
}

// holdingOf lists what there is. A directory without a manifest counts, and so does one
// whose manifest is damaged: the manifest was written after all shards were durable, by
// one rank after the other, and another rank may have it.
func holdingOf(d level.Epochs, e format.Epoch, size int) (redundancy.Holding, error) {
	h := redundancy.Holding{Level: d.Name(), Epoch: e}
	m, err := d.ReadManifest(e)
	switch {
	case err == nil:
		h.Id = m.ID()
	case !level.Absent(err) && !errors.Is(err, format.ErrCorrupt):
		return redundancy.Holding{}, err
	}
	files, err := d.Files(e)
	if err != nil {
		return redundancy.Holding{}, err
	}
	for _, f := range files {
		rank, j, ok := format.ParseName(f.Name)
		switch {
		case !ok || rank >= size:
		case j >= 0:
			h.Rows = append(h.Rows, redundancy.RowID{Rank: rank, J: j})
		default:
			h.Shards = append(h.Shards, rank)
		}
	}
	return h, nil
}

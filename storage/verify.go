package storage

import (
	"context"
	"errors"

	"github.com/holdfast-hpc/holdfast/storage/internal/format"
	"github.com/holdfast-hpc/holdfast/storage/internal/redundancy"
)

// verifyPack checks what a pack says of itself and that nothing else is in it.
func (d *levelDir) verifyPack(m *format.Manifest, name string) []error {
	infos, err := d.readPack(m.Epoch, name)
	if err != nil {
		return []error{err}
	}
	file := join(d.epochPath(m.Epoch), name)
	var end int64
	for i := range infos {
		entry, err := m.Shard(infos[i].Rank)
		if err != nil || entry.Index != infos[i].Index || entry.Base != infos[i].Base || entry.FileName() != name {
			return []error{&CorruptError{File: file, Reason: "pack index does not agree with the manifest"}}
		}
		end = max(end, entry.Base+entry.ShardBytes)
	}
	x, err := d.openExtent(m.Epoch, name, ShardInfo{ShardBytes: end, Pack: 0})
	if err != nil {
		return []error{err}
	}
	defer x.Close()
	return x.VerifyTail(end)
}

// verifyRow reads a whole file with a parity row.
func (d *levelDir) verifyRow(ctx context.Context, m *format.Manifest, id redundancy.RowID) (faults []error, err error) {
	st, err := redundancy.StripeIn(m, id.Rank)
	if err != nil {
		return []error{err}, nil
	}
	c, err := d.openRow(m.Epoch, id, redundancy.NewGroup(m, st).Record)
	if err != nil {
		return []error{err}, ctx.Err()
	}
	faults, err = c.Verify(ctx)
	return faults, errors.Join(err, c.Close())
}

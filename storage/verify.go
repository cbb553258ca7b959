package storage

import (
	"context"
	"errors"

	"github.com/holdfast-hpc/holdfast/storage/internal/format"
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
func (d *levelDir) verifyRow(ctx context.Context, m *format.Manifest, id rowID) (faults []error, err error) {
	group, place, err := groupIn(m, id.rank)
	if err != nil {
		return []error{err}, nil
	}
	st := stripe{group: group, k: len(group) - m.Parity, m: m.Parity, i: place}
	c, err := d.openRow(m.Epoch, id, newParityGroup(m, st).record)
	if err != nil {
		return []error{err}, ctx.Err()
	}
	faults, err = c.Verify(ctx)
	return faults, errors.Join(err, c.Close())
}

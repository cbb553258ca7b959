package redundancy

import (
	"context"
	"errors"

	"github.com/holdfast-hpc/holdfast/internal/vfs"
	"github.com/holdfast-hpc/holdfast/storage/internal/format"
	"github.com/holdfast-hpc/holdfast/storage/internal/shard"
)

// Files is a place with files of epochs; Open says where the file is.
type Files interface {
	Open(e format.Epoch, name string) (f vfs.File, file string, err error)
}

// OpenRow opens a row of a committed stripe; want is the record of its group.
func OpenRow(d Files, e format.Epoch, id RowID, want []byte) (*shard.Copy, error) {
	f, file, err := d.Open(e, format.RowName(id.Rank, id.J))
	if err != nil {
		return nil, err
	}
	c, err := shard.OpenFile(file, f)
	if err == nil {
		err = IsRow(c, want)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return c, nil
}

// VerifyRow reads a whole file with a parity row.
func VerifyRow(ctx context.Context, d Files, m *format.Manifest, id RowID) (faults []error,
	err error) {
	st, err := StripeIn(m, id.Rank)
	if err != nil {
		return []error{err}, nil
	}
	c, err := OpenRow(d, m.Epoch, id, NewGroup(m, st).Record)
	if err != nil {
		return []error{err}, ctx.Err()
	}
	faults, err = c.Verify(ctx)
	return faults, errors.Join(err, c.Close())
}

package storage

import (
	"context"
	"errors"

	"github.com/holdfast-hpc/holdfast/storage/internal/format"
	"github.com/holdfast-hpc/holdfast/storage/internal/level"
	"github.com/holdfast-hpc/holdfast/storage/internal/redundancy"
)

// verifyRow reads a whole file with a parity row.
func verifyRow(ctx context.Context, d *level.Dir, m *format.Manifest, id redundancy.RowID) (faults []error, err error) {
	st, err := redundancy.StripeIn(m, id.Rank)
	if err != nil {
		return []error{err}, nil
	}
	c, err := openRow(d, m.Epoch, id, redundancy.NewGroup(m, st).Record)
	if err != nil {
		return []error{err}, ctx.Err()
	}
	faults, err = c.Verify(ctx)
	return faults, errors.Join(err, c.Close())
}

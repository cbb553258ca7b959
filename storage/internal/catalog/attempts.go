package catalog

import (
	"context"
	"errors"
	"io/fs"
	"slices"
	"sync"
	"syscall"

	"github.com/holdfast-hpc/holdfast/internal/vfs"
	"github.com/holdfast-hpc/holdfast/storage/internal/format"
	"github.com/holdfast-hpc/holdfast/storage/internal/level"
)

// NoteRestore records that the program is about to restore an epoch; see storage.Store.NoteRestore. done is called when
// nothing is written any more, also after an error.
func (c *Catalog) NoteRestore(ctx context.Context, e format.Epoch, done func()) (durable func() error, err error) {
	t := c.attempts()
	first := len(t) == 0
	t[e]++
	if !first { // replacing a note that is durable by one that is not yet could lose both
		defer done()
		n, err := c.writeAttempts(ctx, t)
		return func() error { return nil }, c.enough(n, err)
	}
	levels := c.working()
	synced := make(chan error, len(levels))
	var syncs sync.WaitGroup
	for _, l := range levels {
		durable, err := l.PlaceAttempts(t, c.Rank)
		if err != nil {
			synced <- err
			continue
		}
		syncs.Go(func() { synced <- durable() })
	}
	go func() {
		syncs.Wait()
		close(synced)
		done()
	}()
	return func() (err error) {
		n := 0
		for one := range synced {
			if err = errors.Join(err, one); one == nil {
				n++
			}
		}
		return c.enough(n, err)
	}, nil
}

// enough returns the error of a note that n levels took: none if one has it, or if no level can have it. The epoch is
// intact, and an older one could not be noted either.
func (c *Catalog) enough(n int, err error) error {
	if err == nil || n == 0 && !refusesFiles(err) {
		return err
	}
	c.Log.Warn("holdfast: cannot record the restore at a level", "err", err)
	if n == 0 {
		c.Log.Warn("holdfast: restore recorded nowhere: a crash after it does not count against the epoch")
	}
	return nil
}

// refusesFiles reports whether a directory cannot take a file because of its state or contents.
func refusesFiles(err error) bool {
	return errors.Is(err, vfs.ErrUnsafe) || errors.Is(err, fs.ErrPermission) || errors.Is(err, fs.ErrExist) ||
		slices.ContainsFunc([]error{syscall.EISDIR, syscall.ENOTEMPTY, syscall.ENOSPC, syscall.EDQUOT, syscall.EROFS},
			func(e error) bool { return errors.Is(err, e) })
}

// NoteSurvival records that the program survived its restore.
func (c *Catalog) NoteSurvival(ctx context.Context) error {
	_, err := c.writeAttempts(ctx, nil)
	return err
}

// WithdrawRestore records that a restore was given up: its end does not count against the epoch.
func (c *Catalog) WithdrawRestore(ctx context.Context, e format.Epoch) error {
	t := c.attempts()
	if t[e]--; t[e] <= 0 {
		delete(t, e)
	}
	n, err := c.writeAttempts(ctx, t)
	return c.enough(n, err)
}

// writeAttempts rewrites the restore attempts at every level of this rank, so that they survive as long as the epochs,
// and returns the number of levels that took them.
func (c *Catalog) writeAttempts(ctx context.Context, t format.RestoreAttempts) (n int, err error) {
	for _, l := range c.working() {
		if ctx.Err() != nil {
			return n, errors.Join(err, ctx.Err())
		}
		if werr := level.WriteAttempts(l, t, c.Rank); werr != nil {
			err = errors.Join(err, werr)
			continue
		}
		n++
	}
	return n, err
}

// attempts merges the levels' records. A record that cannot be read does not count: records only withhold epochs. Nor
// does one at a level that is left out: it could not be deleted.
func (c *Catalog) attempts() format.RestoreAttempts {
	t := format.RestoreAttempts{}
	for _, l := range c.working() {
		if l.Listed != nil {
			continue // rank 0 notes the attempts of all
		}
		one, err := level.ReadAttempts(l, c.Rank)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			c.Log.Warn("holdfast: earlier restore attempts unknown: their record cannot be read", "level",
				l.Name(), "err", err)
			continue
		}
		for e, n := range one {
			t[e] = max(t[e], n)
		}
	}
	return t
}

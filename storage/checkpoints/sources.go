package checkpoints

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"

	"github.com/holdfast-hpc/holdfast/storage/internal/fetch"
	"github.com/holdfast-hpc/holdfast/storage/internal/format"
	"github.com/holdfast-hpc/holdfast/storage/internal/level"
	"github.com/holdfast-hpc/holdfast/storage/internal/redundancy"
	"github.com/holdfast-hpc/holdfast/storage/internal/shard"
	_ "github.com/holdfast-hpc/holdfast/storage/parity" // a View computes lost chunks
)

// Fetch opens the shard of any rank of an epoch that is committed in the directories, at whatever level. Each chunk
// comes from the first directory with a good copy. Chunks without one are computed from parity if the directories have
// enough of it. Of different epochs under the number it is the one that most manifests commit. The caller closes the
// Shard.
func (v *View) Fetch(ctx context.Context, e Epoch, rank int) (*Shard, error) {
	if err := v.readable(e); err != nil {
		return nil, err
	}
	m, err := v.reference(e)
	if err != nil {
		return nil, err
	}
	if rank < 0 || rank >= m.Size {
		return nil, fmt.Errorf("rank %d: the job has the ranks 0 to %d", rank, m.Size-1)
	}
	sh, err := fetch.Open(ctx, quiet, e, rank, v.sources(e, m.ID()))
	return sh, v.whereItIs(e, m.ID(), rank, err)
}

// whereItIs adds to the error of a shard that none of the directories has on which node its rank has put it.
func (v *View) whereItIs(e Epoch, id [16]byte, rank int, err error) error {
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, d := range v.dirs {
		m, merr := d.ReadManifest(e)
		if merr != nil || m.ID() != id {
			continue
		}
		if info, serr := m.Shard(rank); serr == nil && info.Node != "" {
			return fmt.Errorf("%w; rank %d has put it on node %s: give the directories of that node, too, or those "+
				"with copies or parity of it", err, rank, info.Node)
		}
	}
	return err
}

// quiet is the log of tools: they return their findings.
var quiet = slog.New(slog.DiscardHandler)

// sources lists the sources of shards of the epoch with these contents: the directories in the order given, then
// parity.
func (v *View) sources(e Epoch, id [16]byte) (out []shard.Source) {
	members := 0
	for _, d := range v.dirs {
		if !d.Traits().Rows {
			out = append(out, &contents{d, v, e, id})
		} else if m, err := d.ReadManifest(e); err == nil {
			members = max(members, 2*(m.Data+m.Parity))
		}
	}
	if members > 0 {
		out = append(out, redundancy.Sources(&viewParity{v, e, id}, members)...)
	}
	return out
}

// contents is a directory as a source of shards, as far as the manifest of an epoch has the ID. The manifest may be
// had from another directory of the level.
type contents struct {
	*viewDir
	v     *View
	epoch Epoch    // 0: epochs of whatever ID
	id    [16]byte // of epoch
}

// Locate makes it a source.
func (c *contents) Locate(ctx context.Context, e Epoch, rank int) (*shard.Extent, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	m, err := c.v.manifestAt(c.viewDir, e)
	if err != nil {
		return nil, err
	}
	if e == c.epoch && m.ID() != c.id {
		return nil, level.ErrNotCommitted
	}
	return fetch.LocateIn(c, m, rank)
}

// viewParity is the directories as a place of parity groups.
type viewParity struct {
	v     *View
	epoch Epoch
	id    [16]byte // of epoch
}

// Manifest finds a manifest of the level with the rows.
func (p *viewParity) Manifest(ctx context.Context, e Epoch) (*format.Manifest, error) {
	err := error(level.ErrNotCommitted)
	for _, d := range p.v.dirs {
		if !d.Traits().Rows {
			continue
		}
		m, merr := d.ReadManifest(e)
		if merr == nil && (e != p.epoch || m.ID() == p.id) {
			return m, ctx.Err()
		}
		err = errors.Join(err, merr)
	}
	return nil, err
}

func (p *viewParity) Member(_ context.Context, e Epoch, info ShardInfo) (*shard.Extent, error) {
	return eachOf(p.v, func(t level.Traits) bool { return t.Data },
		func(d level.Epochs) (*shard.Extent, error) { return fetch.OpenCommitted(d, e, info) })
}

func (p *viewParity) Row(_ context.Context, e Epoch, id format.RowID, record []byte) (*shard.Copy, error) {
	return eachOf(p.v, func(t level.Traits) bool { return t.Rows },
		func(d level.Epochs) (*shard.Copy, error) { return redundancy.OpenRow(d, e, id, record) })
}

// eachOf tries the directories of some levels until one opens.
func eachOf[T any](v *View, of func(t level.Traits) bool, open func(d level.Epochs) (T, error)) (x T, err error) {
	err = level.ErrNotCommitted
	for _, d := range v.dirs {
		if !of(d.Traits()) {
			continue
		}
		x, oerr := open(d)
		if oerr == nil {
			return x, nil
		}
		err = errors.Join(err, oerr)
	}
	return x, err
}

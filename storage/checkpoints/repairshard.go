package checkpoints

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/holdfast-hpc/holdfast/internal/vfs"
	"github.com/holdfast-hpc/holdfast/storage/internal/fetch"
	"github.com/holdfast-hpc/holdfast/storage/internal/format"
	"github.com/holdfast-hpc/holdfast/storage/internal/level"
	"github.com/holdfast-hpc/holdfast/storage/internal/redundancy"
	"github.com/holdfast-hpc/holdfast/storage/internal/shard"
)

// shard restores a rank's shard in a directory of its own.
func (r *repairer) shard(ctx context.Context, e Epoch, f *Finding) error {
	d, err := r.v.homeOf(f, format.ShardName(f.Rank))
	if err != nil {
		return err
	}
	m, err := r.v.manifestAt(d, e)
	if err != nil {
		if m, err = r.fromShards(ctx, d.Name(), e); err != nil {
			return err
		}
	}
	want, err := m.Shard(f.Rank)
	if err != nil {
		return err
	}
	if r.dry {
		return r.canRead(ctx, e, f.Rank, m.ID())
	}
	for _, o := range want.Origins {
		om, err := r.v.manifestAt(d, o)
		if err != nil {
			return fmt.Errorf("epoch %d holds chunks of it: %w", o, err)
		}
		if err := r.restoreFile(ctx, d, om, f.Rank); err != nil {
			return fmt.Errorf("epoch %d holds chunks of it: %w", o, err)
		}
		if have, err := level.HasManifest(d, o); err == nil && !have {
			if err := d.Recommit(om); err != nil {
				return err
			}
		}
	}
	return r.restoreFile(ctx, d, m, f.Rank)
}

// canRead returns an error if a rank's shard cannot be read from all directories together, and repaired manifests will
// not change that.
func (r *repairer) canRead(ctx context.Context, e Epoch, rank int, id [16]byte) error {
	sh, err := r.open(ctx, e, rank, id)
	if err == nil {
		err = errors.Join(sh.Verify(ctx), sh.Close())
	}
	m := r.v.manifestWith(e, id)
	if err == nil || m == nil {
		return err
	}
	for _, d := range r.v.dirs {
		if _, merr := d.ReadManifest(e); merr == nil || d.Traits().Rows {
			continue
		}
		if _, lerr := r.lying(ctx, d.Name(), e, &m.Shards[rank]); lerr == nil {
			return nil
		}
	}
	return err
}

// restoreFile writes the shard of a rank that the manifest names, unless it is there and good: a copy of the same
// bytes, or contents that become the same bytes when they are written again.
func (r *repairer) restoreFile(ctx context.Context, d *viewDir, m *format.Manifest, rank int) error {
	want := m.Shards[rank]
	if c, err := openGood(ctx, d, m.Epoch, want); err == nil {
		return c.Close()
	}
	var problems []error
	for _, from := range r.v.sources(m.Epoch, m.ID()) {
		if c, ok := from.(*contents); ok && c.viewDir == d {
			continue
		}
		c, err := shard.Open(ctx, from, m.Epoch, rank)
		if err == nil && c.At.Info.Index == want.Index {
			err = errors.Join(r.copyFile(ctx, c, d), c.Close())
			if err == nil || ctx.Err() != nil {
				return err
			}
		} else if err == nil {
			err = c.Close()
		}
		if err != nil && !errors.Is(err, shard.ErrNoOtherWay) && !level.Absent(err) {
			problems = append(problems, err)
		}
	}
	err := r.writeAgain(ctx, d, m, rank)
	if err == nil || ctx.Err() != nil {
		return err
	}
	return errors.Join(append(problems, err)...)
}

// openGood opens the file of a committed shard if all that it holds itself is right.
func openGood(ctx context.Context, d level.Epochs, e Epoch, want ShardInfo) (*shard.Copy, error) {
	x, err := fetch.OpenCommitted(d, e, want)
	if err != nil {
		return nil, err
	}
	c, err := x.Open(fetch.At(d), e)
	if err != nil {
		return nil, err
	}
	if err := c.VerifyAlone(ctx); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

// copyFile copies a shard byte by byte, and gives it its name when all that was written has been read back.
func (r *repairer) copyFile(ctx context.Context, c *shard.Copy, d *viewDir) error {
	return d.Replace(c.Index.Epoch, format.ShardName(c.Index.Rank), level.Room{Most: c.At.N}, func(f vfs.File) error {
		if err := shard.CopyTo(ctx, f, r.pool, nil, c.At); err != nil {
			return err
		}
		return verifyFile(ctx, c.At.Name+" (copy)", f, &c.At.Info)
	})
}

// verifyFile reads back a file that is to become a shard.
func verifyFile(ctx context.Context, name string, f vfs.File, want *ShardInfo) error {
	back, err := shard.OpenFile(name, f)
	if err != nil {
		return err
	}
	if back.At.Info.Index != want.Index || back.At.N != want.ShardBytes {
		return errStoredDifferently
	}
	return back.VerifyAlone(ctx)
}

var errStoredDifferently = errors.New("the good copies are stored in another way than this one was, and the bytes of " +
	"this one cannot be made again; the epoch can be restored from the good copies")

// writeAgain writes the contents of a shard again, in all ways that may have been used, until the bytes are those that
// were committed.
func (r *repairer) writeAgain(ctx context.Context, d *viewDir, m *format.Manifest, rank int) (err error) {
	want := m.Shards[rank]
	sh, err := r.open(ctx, m.Epoch, rank, m.ID())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, sh.Close()) }()
	if err := sh.Verify(ctx); err != nil {
		return err
	}
	for _, base := range r.bases(d, &want, m.Epoch) {
		for _, compress := range []bool{false, true} {
			spec := r.spec(ctx, sh, want.Node, compress)
			spec.Base, spec.Room = base, want.ShardBytes
			room := level.Room{Most: want.ShardBytes}
			err := d.Replace(m.Epoch, format.ShardName(rank), room, func(f vfs.File) error {
				info, _, err := shard.WriteShard(ctx, f, r.pool, nil, spec)
				if err == nil && info.Index != want.Index {
					err = errStoredDifferently
				}
				if err != nil {
					return err
				}
				return verifyFile(ctx, fetch.CopyOf(sh).At.Name+" (copy)", f, &want)
			})
			if !errors.Is(err, errStoredDifferently) {
				return err
			}
		}
	}
	return errStoredDifferently
}

// open opens a shard as it is in whatever directories have it.
func (r *repairer) open(ctx context.Context, e Epoch, rank int, id [16]byte) (*Shard, error) {
	return fetch.Open(ctx, quiet, e, rank, r.v.sources(e, id))
}

// spec returns how a shard that is read is to be written: whole, with nothing left out.
func (r *repairer) spec(ctx context.Context, sh *Shard, node string, compress bool) *shard.Spec {
	spec := specOf(&r.v.dirs[0].info, sh.Epoch(), sh.Rank(), node, fetch.Sections(ctx, sh, readers))
	spec.Wanted = fetch.IndexOf(sh)
	if compress {
		spec.Compress = shard.CompressAlways
	}
	return spec
}

// bases lists the earlier shards of the rank in a directory that a shard there may have been written after, the
// likeliest first.
func (r *repairer) bases(d *viewDir, want *ShardInfo, e Epoch) []*format.Index {
	if len(want.Origins) == 0 {
		return []*format.Index{nil}
	}
	epochs, err := d.Epochs()
	if err != nil {
		return nil
	}
	list := slices.Clone(want.Origins)
	slices.Reverse(list)
	for _, o := range epochs { // one that holds none of the chunks itself, but refers to those that do
		if o < e && !slices.Contains(list, o) {
			list = append(list, o)
		}
	}
	var out []*format.Index
	for _, o := range list {
		if _, idx, err := fetch.Uncommitted(d, o, want.Rank); err == nil {
			out = append(out, idx)
		}
	}
	return out
}

// stripe computes the rows of parity again that a rank had encoded. All members of the group must be good: rows encoded
// from a damaged one would look right.
func (r *repairer) stripe(ctx context.Context, e Epoch, rank int, list []Finding) map[place]error {
	done := map[place]error{}
	homes := map[int]*viewDir{}
	var rows []int
	for i := range list {
		f := &list[i]
		_, j, _ := format.ParseName(f.Part)
		d, err := r.v.homeOf(f, f.Part)
		if done[placeOfFinding(f)] = err; err == nil {
			homes[j] = d
			rows = append(rows, j)
		}
	}
	err := r.encode(ctx, e, rank, rows, homes)
	for p, perr := range maps.Clone(done) {
		if perr == nil {
			done[p] = err
		}
	}
	return done
}

func (r *repairer) encode(ctx context.Context, e Epoch, rank int, rows []int, homes map[int]*viewDir) error {
	if len(rows) == 0 {
		return nil // none has a home
	}
	ref, err := r.v.reference(e)
	if err != nil {
		return err
	}
	from := &goodParity{viewParity{r.v, e, ref.ID()}}
	m, err := from.Manifest(ctx, e)
	if err != nil {
		return err
	}
	st, err := redundancy.StripeIn(m, rank)
	if err != nil {
		return err
	}
	if r.dry {
		for _, member := range st.Group {
			if err := r.canRead(ctx, e, member, ref.ID()); err != nil {
				return err
			}
		}
		return nil
	}
	return redundancy.Encode(ctx, from, m, redundancy.NewGroup(m, st), readers, rows,
		func(ctx context.Context, j int, secs []shard.Section) error {
			spec := specOf(&r.v.dirs[0].info, e, rank, m.Shards[rank].Node, secs)
			spec.Name = format.RowName(rank, j)
			d := homes[j]
			return d.Replace(e, spec.Name, fetch.RoomOf(spec), func(f vfs.File) error {
				_, _, err := shard.WriteShard(ctx, f, r.pool, nil, spec)
				return err
			})
		})
}

// goodParity is the directories as a place of parity groups whose members are read before they are used.
type goodParity struct{ viewParity }

// Member opens a shard that is right in all its bytes.
func (p *goodParity) Member(ctx context.Context, e Epoch, info ShardInfo) (*shard.Extent, error) {
	return eachOf(p.v, func(t level.Traits) bool { return t.Data }, func(d level.Epochs) (*shard.Extent, error) {
		c, err := openGood(ctx, d, e, info)
		if err != nil {
			return nil, err
		}
		return c.At, nil
	})
}

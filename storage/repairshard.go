package storage

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/holdfast-hpc/holdfast/internal/vfs"
	"github.com/holdfast-hpc/holdfast/storage/internal/format"
	"github.com/holdfast-hpc/holdfast/storage/internal/level"
	"github.com/holdfast-hpc/holdfast/storage/internal/redundancy"
	"github.com/holdfast-hpc/holdfast/storage/internal/shard"
)

// shard makes a rank's shard in a directory of its own what it was.
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

// canRead says why a rank's shard cannot be read from all directories together, and will not be either when the
// manifests are repaired.
func (r *repairer) canRead(ctx context.Context, e Epoch, rank int, id [16]byte) error {
	sh, err := r.s.fetch(ctx, e, rank, r.v.sources(e, id))
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
// bytes, or what becomes the same bytes when its contents are written again.
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
		if err != nil && !errors.Is(err, redundancy.ErrNoOtherWay) && !level.Absent(err) {
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
	x, err := level.OpenCommitted(d, e, want)
	if err != nil {
		return nil, err
	}
	idx, err := x.Index(e, want.Rank)
	if err != nil {
		return nil, errors.Join(err, x.Close())
	}
	c := &shard.Copy{From: d, At: x, Index: idx, Other: map[Epoch]*shard.Extent{}}
	if err := c.VerifyAlone(ctx); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

// copyFile copies a shard byte by byte, and gives it its name when all that was written has been read back.
func (r *repairer) copyFile(ctx context.Context, c *shard.Copy, d *viewDir) error {
	return d.Replace(c.Index.Epoch, format.ShardName(c.Index.Rank), level.Room{Most: c.At.N}, func(f vfs.File) error {
		err := r.s.writing(ctx, f, nil, func(w *shard.Writer) error { return r.s.copyBlocks(ctx, c.At, w) })
		if err != nil {
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
	sh, err := r.s.fetch(ctx, m.Epoch, rank, r.v.sources(m.Epoch, m.ID()))
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
				err := r.s.writing(ctx, f, nil, func(w *shard.Writer) error {
					info, _, err := shard.Write(ctx, w, spec)
					if err == nil && info.Index != want.Index {
						err = errStoredDifferently
					}
					return err
				})
				if err != nil {
					return err
				}
				return verifyFile(ctx, sh.copies[0].At.Name+" (copy)", f, &want)
			})
			if !errors.Is(err, errStoredDifferently) {
				return err
			}
		}
	}
	return errStoredDifferently
}

// spec is how a shard that is read is to be written: whole, with nothing left out.
func (r *repairer) spec(ctx context.Context, sh *Shard, node string, compress bool) *shard.Spec {
	spec := r.s.spec(sh.epoch, sh.rank, sh.asSections(ctx))
	spec.Head.Node, spec.Wanted = node, sh.shape
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
		if _, idx, err := level.Uncommitted(d, o, want.Rank); err == nil {
			out = append(out, idx)
		}
	}
	return out
}

// stripe computes the rows of parity again that a rank had encoded. All members of the group must be good: what is
// encoded from a damaged one would look right.
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
	ids := r.v.contentsOf(e)
	if len(ids) == 0 || len(rows) == 0 {
		return ErrNotCommitted
	}
	from := &goodParity{viewParity{r.v, e, ids[0]}}
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
			if err := r.canRead(ctx, e, member, ids[0]); err != nil {
				return err
			}
		}
		return nil
	}
	return redundancy.Encode(ctx, from, m, redundancy.NewGroup(m, st), r.s.opt.FlushCores, rows,
		func(ctx context.Context, j int, secs []Section) error {
			spec := r.s.spec(e, rank, secs)
			spec.Head.Node, spec.Name = m.Shards[rank].Node, format.RowName(rank, j)
			d := homes[j]
			return d.Replace(e, spec.Name, level.RoomOf(spec), func(f vfs.File) error {
				return r.s.writing(ctx, f, nil, func(w *shard.Writer) error {
					_, _, err := shard.Write(ctx, w, spec)
					return err
				})
			})
		})
}

// goodParity is the directories as a place of parity groups whose members are read before they are used.
type goodParity struct{ viewParity }

// Member opens a shard that is right in all its bytes.
func (p *goodParity) Member(ctx context.Context, e Epoch, info ShardInfo) (*shard.Extent, error) {
	return eachOf(p.v, func(t Traits) bool { return t.Data }, func(d level.Epochs) (*shard.Extent, error) {
		c, err := openGood(ctx, d, e, info)
		if err != nil {
			return nil, err
		}
		return c.At, nil
	})
}

// sharedEpoch repairs an epoch in a directory that all ranks share. A shard of which the same bytes can be made again
// gets them. The others, and all that lie in a pack with them, get files under names that the manifest does not have;
// then a new manifest takes the old one's place in one step, and what it does not name goes.
func (r *repairer) sharedEpoch(ctx context.Context, e Epoch, dir string, found []Finding) error {
	d := r.v.dir(dir)
	if d == nil {
		return fmt.Errorf("nothing says in which directory of the level %s it was", LevelGlobal)
	}
	m, err := d.ReadManifest(e)
	known := err == nil
	if !known {
		if m, err = r.plan(ctx, d, e); err != nil {
			return err
		}
	}
	bad, err := r.badShards(ctx, d, m, found)
	if err != nil {
		return err
	}
	if r.dry {
		for _, rank := range bad {
			if err := r.canRead(ctx, e, rank, m.ID()); err != nil {
				return fmt.Errorf("rank %d: %w", rank, err)
			}
		}
		return nil
	}
	return r.rewriteShared(ctx, d, m, bad, known, known)
}

// rewriteShared writes the shards of ranks, as they were if that can be and same asks for it, and the manifest if they
// are not what it says, or if it is not there.
func (r *repairer) rewriteShared(ctx context.Context, d *viewDir, was *format.Manifest, ranks []int, there,
	same bool) error {
	m := *was
	m.Shards = slices.Clone(was.Shards)
	changed := !there
	for _, rank := range ranks {
		want := &was.Shards[rank]
		err := errStoredDifferently
		if want.Pack == format.NoPack && same && !d.Traits().Single { // an object cannot be read before it has its name
			err = r.writeAgain(ctx, d, was, rank)
		}
		if errors.Is(err, errStoredDifferently) {
			changed = true
			m.Shards[rank], err = r.writeNew(ctx, d, was, rank, there)
		}
		if err != nil {
			return fmt.Errorf("rank %d: %w", rank, err)
		}
	}
	if changed {
		if err := d.Recommit(&m); err != nil {
			return err
		}
	}
	return r.removeUnnamed(d, &m)
}

// detach makes the later epochs of a directory that refer to chunks of a rank's shard whole, the newest first: the
// chunks are about to lie elsewhere.
func (r *repairer) detach(ctx context.Context, d *viewDir, e Epoch, rank int) error {
	epochs, err := d.Epochs()
	if err != nil {
		return err
	}
	for _, later := range epochs {
		m, err := d.ReadManifest(later)
		if err != nil || later <= e || !slices.Contains(m.Shards[rank].Origins, e) {
			continue
		}
		if err := r.rewriteShared(ctx, d, m, withPack(m, rank), true, false); err != nil {
			return fmt.Errorf("epoch %d refers to it: %w", later, err)
		}
	}
	return nil
}

// withPack lists a rank and those in one pack with it.
func withPack(m *format.Manifest, rank int) (ranks []int) {
	for other := range m.Shards {
		if p := m.Shards[rank].Pack; other == rank || p != format.NoPack && m.Shards[other].Pack == p {
			ranks = append(ranks, other)
		}
	}
	return ranks
}

// plan is a manifest for a directory whose own cannot be read: what lies there if it is good, and the rest as another
// level's manifest has it, to be written.
func (r *repairer) plan(ctx context.Context, d *viewDir, e Epoch) (*format.Manifest, error) {
	ids := r.v.contentsOf(e)
	if len(ids) == 0 {
		return nil, fmt.Errorf("no directory has a manifest of epoch %d that can be read", e)
	}
	ref := r.v.manifestWith(e, ids[0])
	if ref == nil {
		return nil, ErrNotCommitted
	}
	m := &format.Manifest{Epoch: e, Size: ref.Size, Job: ref.Job, Level: d.Name(), Shards: slices.Clone(ref.Shards)}
	for rank := range m.Shards {
		if info, err := r.lying(ctx, d.Name(), e, &ref.Shards[rank]); err == nil {
			m.Shards[rank] = info
		} else {
			m.Shards[rank].Pack, m.Shards[rank].Base, m.Shards[rank].Holders = format.NoPack, 0, nil
		}
	}
	return m, ctx.Err()
}

// badShards lists the ranks whose shards are to be written: those that are not right, and those in a pack with one, or
// in a pack that is not right.
func (r *repairer) badShards(ctx context.Context, d *viewDir, m *format.Manifest, found []Finding) ([]int, error) {
	bad, packs := map[int]bool{}, map[int]bool{}
	for rank := range m.Shards {
		err := readBack(ctx, d, m.Epoch, m.Shards[rank])
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if err != nil {
			bad[rank] = true
			packs[m.Shards[rank].Pack] = true
		}
	}
	for i := range found {
		if first, ok := format.ParsePackName(found[i].Part); ok && found[i].Dir.Dir == d.Path() {
			packs[first] = true
		}
	}
	delete(packs, format.NoPack)
	for rank := range m.Shards {
		if packs[m.Shards[rank].Pack] {
			bad[rank] = true
		}
	}
	return slices.Sorted(maps.Keys(bad)), nil
}

// writeNew writes a shard whole and under a name that the manifest, if it is there, does not have: one from a pack as a
// file of its own, and one from such a file as a pack of one. It reads back what it wrote.
func (r *repairer) writeNew(ctx context.Context, d *viewDir, m *format.Manifest, rank int, there bool) (info ShardInfo,
	err error) {
	want := &m.Shards[rank]
	sh, err := r.s.fetch(ctx, m.Epoch, rank, r.v.sources(m.Epoch, m.ID()))
	if err != nil {
		return info, err
	}
	defer func() { err = errors.Join(err, sh.Close()) }()
	if err := sh.Verify(ctx); err != nil {
		return info, err
	}
	if err := r.detach(ctx, d, m.Epoch, rank); err != nil {
		return info, err
	}
	spec := r.spec(ctx, sh, want.Node, false)
	f := copyFile{name: format.ShardName(rank), pack: format.NoPack, shards: []*Shard{sh}}
	if want.Pack == format.NoPack && there {
		f.name, f.pack = format.PackName(rank), rank
	}
	err = d.Replace(m.Epoch, f.name, level.RoomOf(spec), func(to vfs.File) error {
		return r.s.writing(ctx, to, nil, func(w *shard.Writer) error {
			infos, _, err := f.write(ctx, w, []*shard.Spec{spec})
			if err == nil {
				info = infos[0]
			}
			return err
		})
	})
	if err == nil {
		err = readBack(ctx, d, m.Epoch, info)
	}
	return info, err
}

// removeUnnamed removes the shards and packs of an epoch that its manifest does not name.
func (r *repairer) removeUnnamed(d *viewDir, m *format.Manifest) error {
	named := map[string]bool{}
	for i := range m.Shards {
		named[m.Shards[i].FileName()] = true
	}
	files, err := d.Files(m.Epoch)
	for _, f := range files {
		_, _, isShard := format.ParseName(f.Name)
		if _, isPack := format.ParsePackName(f.Name); (isShard || isPack) && !named[f.Name] && !f.Dir {
			err = errors.Join(err, d.RemoveFile(m.Epoch, f.Name))
		}
	}
	return err
}

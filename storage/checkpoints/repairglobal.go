package checkpoints

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-hpc/holdfast/internal/vfs"
	"github.com/holdfast-hpc/holdfast/storage/internal/catalog"
	"github.com/holdfast-hpc/holdfast/storage/internal/fetch"
	"github.com/holdfast-hpc/holdfast/storage/internal/format"
	"github.com/holdfast-hpc/holdfast/storage/internal/level"
	"github.com/holdfast-hpc/holdfast/storage/internal/shard"
)

// sharedEpoch repairs an epoch in a directory that all ranks share. A shard of which the same bytes can be made again
// gets them. The others, and all that lie in a pack with them, get files under names that the manifest does not have;
// then a new manifest takes the old one's place in one step, and files that it does not name are removed.
func (r *repairer) sharedEpoch(ctx context.Context, e Epoch, dir string, found []Finding) error {
	d := r.v.dir(dir)
	if d == nil {
		return fmt.Errorf("nothing says in which directory of the level %s it was", format.LevelGlobal)
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

// rewriteShared writes the shards of ranks, with the old bytes if possible and same asks for it. It writes the manifest
// if that is missing or differs from the shards.
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
// chunks are about to move.
func (r *repairer) detach(ctx context.Context, d *viewDir, e Epoch, rank int) error {
	epochs, err := d.Epochs()
	if err != nil {
		return err
	}
	for _, later := range epochs {
		m, err := d.ReadManifest(later)
		if errors.As(err, new(*format.VersionError)) {
			return fmt.Errorf("epoch %d may refer to it: %w", later, err)
		}
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

// plan returns a manifest for a directory whose own cannot be read: the good files there, and the rest by another
// level's manifest, to be written.
func (r *repairer) plan(ctx context.Context, d *viewDir, e Epoch) (*format.Manifest, error) {
	ref, err := r.v.reference(e)
	if err != nil {
		return nil, err
	}
	m := &format.Manifest{Epoch: e, Size: ref.Size, Job: ref.Job, Level: d.Name(), Shards: slices.Clone(ref.Shards),
		Run: ref.Run}
	for rank := range m.Shards {
		info, err := r.lying(ctx, d.Name(), e, &ref.Shards[rank])
		if err == nil {
			err = level.SyncFile(d, e, info.FileName()) // no manifest says that it is durable
		}
		if err == nil {
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
// file of its own, and one from such a file as a pack of one. It reads its files back.
func (r *repairer) writeNew(ctx context.Context, d *viewDir, m *format.Manifest, rank int, there bool) (info ShardInfo,
	err error) {
	want := &m.Shards[rank]
	sh, err := r.open(ctx, m.Epoch, rank, m.ID())
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
	spec.Digest = sh.Digest()
	name, pack := format.ShardName(rank), format.NoPack
	if want.Pack == format.NoPack && there {
		name, pack = format.PackName(rank), rank
	}
	err = d.Replace(m.Epoch, name, fetch.RoomOf(spec), func(to vfs.File) error {
		return shard.WriteTo(ctx, to, r.pool, nil, func(w *shard.Writer) (err error) {
			info, _, err = shard.Write(ctx, w, spec)
			if err != nil || pack == format.NoPack {
				return err
			}
			info.Pack = pack
			return shard.EndPack(w, m.Epoch, pack, []ShardInfo{info})
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

// notes repairs the files next to the epochs, after these: a file in the place of an epoch may have been moved aside.
func (r *repairer) notes(ctx context.Context) ([]Repaired, error) {
	v := r.v
	return r.rounds(ctx, func() (found []Finding, err error) {
		if v == nil {
			if v, err = Inspect(ctx, r.dirs...); err != nil {
				return nil, err
			}
		}
		found, v = v.VerifyDirs(), nil
		return found, nil
	}, func(found []Finding) map[place]error {
		done := map[place]error{}
		for i := range found {
			done[placeOfFinding(&found[i])] = r.note(&found[i])
		}
		return done
	})
}

// note repairs one of them.
func (r *repairer) note(f *Finding) error {
	d := r.v.dir(f.Dir.Dir)
	_, isEpoch := format.ParseEpochName(f.Part)
	pinned, isPin := format.ParsePinName(f.Part)
	var b []byte
	switch {
	case f.Kind == Newer:
		return f.Err
	case d == nil:
		return fmt.Errorf("nothing says what belongs into this directory, or it is refused: %w; make it yours, or "+
			"start the job, which restores it from the others", f.Err)
	case isEpoch:
		return fmt.Errorf("%w; remove it if it is not needed", f.Err)
	case f.Part == format.MarkerName:
		b = (&format.Marker{Job: d.info.Job, Size: d.info.Size, Level: d.Name(), Run: d.info.Run}).Encode()
	case f.Part == format.HistoryName:
		b = r.history().Encode()
	case isPin: // its name is lost; but the epoch stays
		b = (&format.Pin{Epoch: pinned, Time: time.Now().UnixNano()}).Encode()
	case format.IsLedger(f.Part), strings.HasPrefix(f.Part, format.AttemptsPrefix): // the job writes it again
	default:
		return f.Err
	}
	if r.dry {
		return nil
	}
	return d.ReplaceNote(f.Part, b)
}

// history returns the newest record of the job's past in the directories, by their notes or by committed epochs.
func (r *repairer) history() *format.History {
	best := &format.History{}
	for _, d := range r.v.dirs {
		if b, err := level.ReadHistory(d); err == nil && b.Epoch >= best.Epoch {
			best = b
		}
	}
	for _, d := range r.v.dirs {
		if e, err := catalog.NewestReadable(d); err == nil && e > best.Epoch {
			best = &format.History{Epoch: e, Level: d.Name(), Run: d.info.Run}
		}
	}
	return best
}

// SetAside lists the files and directories that repairs have moved aside, because something else belongs in their
// place, and have not removed: directories that are not empty, or were refused. It lists the directories, and changes
// nothing.
func SetAside(ctx context.Context, dirs ...string) (out []string, err error) {
	for _, path := range distinct(dirs) {
		if perr := level.CheckPath(path); perr != nil {
			err = errors.Join(err, perr)
			continue
		}
		list, lerr := level.Aside(levelOf(ctx, path, nil))
		out, err = append(out, list...), errors.Join(err, lerr)
	}
	return out, err
}

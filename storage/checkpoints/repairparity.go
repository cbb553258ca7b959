package checkpoints

import (
	"context"
	"maps"

	"github.com/holdfast-hpc/holdfast/internal/vfs"
	"github.com/holdfast-hpc/holdfast/storage/internal/format"
	"github.com/holdfast-hpc/holdfast/storage/internal/level"
	"github.com/holdfast-hpc/holdfast/storage/internal/redundancy"
	"github.com/holdfast-hpc/holdfast/storage/internal/shard"
)

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
		return level.ErrNotCommitted
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
	return redundancy.Encode(ctx, from, m, redundancy.NewGroup(m, st), readers, rows,
		func(ctx context.Context, j int, secs []shard.Section) error {
			spec := specOf(&r.v.dirs[0].info, e, rank, m.Shards[rank].Node, secs)
			spec.Name = format.RowName(rank, j)
			d := homes[j]
			return d.Replace(e, spec.Name, level.RoomOf(spec), func(f vfs.File) error {
				return shard.WriteTo(ctx, f, r.pool, nil, func(w *shard.Writer) error {
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
	return eachOf(p.v, func(t level.Traits) bool { return t.Data }, func(d level.Epochs) (*shard.Extent, error) {
		c, err := openGood(ctx, d, e, info)
		if err != nil {
			return nil, err
		}
		return c.At, nil
	})
}

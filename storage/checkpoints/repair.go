package checkpoints

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/holdfast-hpc/holdfast/internal/random"
	"github.com/holdfast-hpc/holdfast/storage/internal/fetch"
	"github.com/holdfast-hpc/holdfast/storage/internal/format"
	"github.com/holdfast-hpc/holdfast/storage/internal/level"
	"github.com/holdfast-hpc/holdfast/storage/internal/shard"
)

// RepairRules select the epochs and faults that Repair looks at.
type RepairRules struct {
	Epoch    Epoch // 0: all that should be there
	Complete bool  // as of View
	DryRun   bool  // only report what could be repaired
	Jobs     int   // shards read and written at once; 0 means 4
}

// Repaired is a fault and the result of its repair.
type Repaired struct {
	Finding
	Err  error // why it was not repaired; nil: it was, or by DryRun could be
	Done bool  // it is good now
}

// Repair mends the faults that Verify finds in the directories of a job that is not running. While it runs, the error
// is a *BusyError. It takes shards from any directory with good copies, chunk by chunk, or computes them from parity.
// It computes rows from shards. It takes a manifest from another directory of its level, or from the shards that it
// names and a manifest of another level.
//
// It writes only data that was committed. At levels with a directory for each rank, a repaired file has its old bytes.
// At a level that all ranks share, if the old bytes cannot be had, the epoch gets new files and a new manifest, in one
// step. A damaged file stays in its place until the new file is durable. A crash leaves the old or the new, and the
// next call does the rest.
//
// Epochs with files of a later release are not touched: the error is a *VersionError.
//
// Each epoch is verified before and after. The result lists everything that was wrong, oldest epoch first after the
// directories themselves. Epochs that verify calls elsewhere are not among them. It reads every byte of the epochs at
// least twice.
func Repair(ctx context.Context, dirs []string, rules RepairRules) (out []Repaired, err error) {
	v, err := Inspect(ctx, dirs...)
	if err != nil {
		return nil, err
	}
	if len(v.dirs) == 0 {
		return nil, errNoDirs
	}
	if !rules.DryRun {
		release, err := v.lock(ctx, "repair "+random.Text(), false)
		if err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, release()) }()
		if v, err = Inspect(ctx, dirs...); err != nil { // the job may have been at work until now
			return nil, err
		}
	}
	v.Complete = rules.Complete
	r := &repairer{v: v, dirs: dirs, pool: poolFor(rules.Jobs), dry: rules.DryRun}
	defer func() { err = errors.Join(err, r.pool.Close()) }()
	epochs, err := v.Expected()
	if err != nil {
		return nil, err
	}
	if rules.Epoch != 0 {
		if !slices.Contains(epochs, rules.Epoch) {
			return nil, fmt.Errorf("epoch %d: %w", rules.Epoch, level.ErrNotCommitted)
		}
		epochs = []Epoch{rules.Epoch}
	}
	if len(epochs) == 0 {
		none := errors.New("no epoch is committed in these directories")
		out = append(out, Repaired{Finding: Finding{Rank: -1, Kind: Missing, Err: none, Lost: true}, Err: none})
	}
	slices.Reverse(epochs) // later epochs refer to earlier ones
	for _, e := range epochs {
		list, err := r.epoch(ctx, e)
		if out = append(out, list...); err != nil {
			return out, err
		}
	}
	notes, err := r.notes(ctx)
	return append(notes, out...), err
}

// repairer is one Repair under way.
type repairer struct {
	v    *View
	dirs []string // of the call
	pool *shard.Pool
	dry  bool
}

// place is the file of a finding.
type place struct {
	epoch     Epoch
	dir, part string
	level     string
	rank      int
}

func placeOfFinding(f *Finding) place {
	return place{f.Epoch, f.Dir.Dir, f.Part, f.Dir.Level, f.Rank}
}

// mostRounds bounds how often an epoch is looked at again.
const mostRounds = 4

func (r *repairer) epoch(ctx context.Context, e Epoch) ([]Repaired, error) {
	return r.rounds(ctx, func() ([]Finding, error) {
		found, err := r.v.Verify(ctx, e)
		return slices.DeleteFunc(found, func(f Finding) bool { return f.Kind == Elsewhere }), err
	}, func(found []Finding) map[place]error { return r.once(ctx, e, found) })
}

// rounds repairs until nothing is wrong, or nothing more can be repaired: a repair may reveal more.
func (r *repairer) rounds(ctx context.Context, find func() ([]Finding, error),
	repair func(found []Finding) map[place]error) (out []Repaired, err error) {
	var order []place
	all := map[place]*Repaired{}
	failed := map[place]error{}
	before := 0
	for range mostRounds {
		found, err := find()
		if err != nil {
			return nil, err
		}
		for _, x := range all {
			x.Done = true
		}
		fresh := len(found) < before // a repair that has failed may work with the files that are good now
		before = len(found)
		for _, f := range found {
			p := placeOfFinding(&f)
			if all[p] == nil {
				all[p], order = &Repaired{Finding: f}, append(order, p)
			}
			all[p].Done = false
			fresh = fresh || failed[p] == nil
		}
		if len(found) == 0 || !fresh {
			break
		}
		for p, err := range repair(found) {
			if err == nil && !r.dry {
				err = errStillBad
			}
			failed[p] = err
		}
		if ctx.Err() != nil || r.dry {
			break
		}
	}
	for _, p := range order {
		x := all[p]
		x.Done = x.Done && !r.dry
		if !x.Done {
			x.Err = failed[p]
		}
		if !x.Done && !r.dry {
			x.Err = cmp.Or(x.Err, ctx.Err(), errStillBad)
		}
		out = append(out, *x)
	}
	return out, ctx.Err()
}

var errStillBad = errors.New("it was rewritten, and verify still finds it wrong: check the disk")

// once tries to repair each of the findings of an epoch: shards, then rows, which are computed from them, then
// manifests, which commit them.
func (r *repairer) once(ctx context.Context, e Epoch, found []Finding) map[place]error {
	done := map[place]error{}
	if i := slices.IndexFunc(found, func(f Finding) bool { return f.Kind == Newer }); i >= 0 {
		for k := range found {
			done[placeOfFinding(&found[k])] = found[i].Err
		}
		return done
	}
	shared := map[string]bool{} // directories of the level global, whose files and manifest go together
	rows := map[int][]Finding{}
	for stage := range 3 {
		for i := range found {
			f := &found[i]
			p := placeOfFinding(f)
			if _, twice := done[p]; twice || ctx.Err() != nil {
				continue
			}
			switch of := r.stageOf(f); {
			case of != stage:
			case level.TraitsOf(f.Dir.Level).Shared:
				if !shared[f.Dir.Dir] {
					shared[f.Dir.Dir] = true
					err := r.sharedEpoch(ctx, e, f.Dir.Dir, found)
					for k := range found {
						if found[k].Dir.Dir == f.Dir.Dir {
							done[placeOfFinding(&found[k])] = err
						}
					}
				}
			case stage == 0:
				done[p] = r.shard(ctx, e, f)
			case stage == 1:
				rows[f.Rank] = append(rows[f.Rank], *f)
				done[p] = nil
			default:
				done[p] = r.manifest(ctx, e, f)
			}
		}
		if stage == 1 {
			for rank, list := range rows {
				for p, err := range r.stripe(ctx, e, rank, list) {
					done[p] = err
				}
			}
		}
	}
	return done
}

// stageOf says in which step something is repaired.
func (r *repairer) stageOf(f *Finding) int {
	_, row, ok := format.ParseName(f.Part)
	switch {
	case f.Rank < 0:
		return 2
	case ok && row >= 0:
		return 1
	}
	return 0
}

// dir finds a directory of the view.
func (v *View) dir(path string) *viewDir {
	for _, d := range v.dirs {
		if d.Path() == path {
			return d
		}
	}
	return nil
}

// homeOf returns the directory in which a file should be: the one that is named, or the one of the level that has a
// file of the name of another epoch, or lists one.
func (v *View) homeOf(f *Finding, name string) (*viewDir, error) {
	if d := v.dir(f.Dir.Dir); d != nil && !f.Absent {
		return d, nil
	}
	var homes []*viewDir
	for _, d := range v.dirs {
		if d.Name() == f.Dir.Level && d.hadFile(name) && !d.hasFile(f.Epoch, name) {
			homes = append(homes, d)
		}
	}
	if len(homes) == 0 {
		return nil, fmt.Errorf("nothing says in which directory of the level %s %s was: start the job, which restores "+
			"it from the others", f.Dir.Level, name)
	}
	return homes[0], nil
}

func (d *viewDir) hadFile(name string) bool {
	for _, l := range d.ledgers {
		if at := l.At(d.Name()); at != nil {
			for _, e := range at.Epochs {
				if slices.Contains(e.Files, name) {
					return true
				}
			}
		}
	}
	epochs, err := d.Epochs()
	return err == nil && slices.ContainsFunc(epochs, func(e Epoch) bool { return d.hasFile(e, name) })
}

func (d *viewDir) hasFile(e Epoch, name string) bool {
	names, err := level.NamesOf(d, e)
	return err == nil && names[name]
}

// manifest puts the manifest of a directory of its own back in its place.
func (r *repairer) manifest(ctx context.Context, e Epoch, f *Finding) error {
	d := r.v.dir(f.Dir.Dir)
	if d == nil {
		return f.Err
	}
	if _, err := d.ReadManifest(e); err == nil {
		return errOtherAttempt
	}
	m, err := r.v.manifestAt(d, e)
	if err != nil {
		m, err = r.fromShards(ctx, d.Name(), e)
	}
	if err != nil || r.dry {
		return err
	}
	return d.Recommit(m)
}

var errOtherAttempt = errors.New("it is good and commits something else than the other directories do: it is of " +
	"another run or attempt, and repair cannot tell which is wanted; remove the epoch where it is not")

// fromShards makes a manifest of a level again, of which all are damaged, from the shards that lie there: they must be
// those that the manifest of another level names.
func (r *repairer) fromShards(ctx context.Context, name string, e Epoch) (*format.Manifest, error) {
	ref, err := r.v.reference(e)
	if err != nil {
		return nil, err
	}
	if t := level.TraitsOf(name); t.Copies || t.Rows {
		return nil, fmt.Errorf("no directory of the level %s has its manifest of epoch %d: start the job, which "+
			"copies the newest epoch there again", name, e)
	}
	m := &format.Manifest{Epoch: e, Size: ref.Size, Job: ref.Job, Level: name, Run: ref.Run}
	for rank := range ref.Shards {
		info, err := r.lying(ctx, name, e, &ref.Shards[rank])
		if err != nil {
			return nil, fmt.Errorf("rank %d: %w", rank, err)
		}
		m.Shards = append(m.Shards, info)
	}
	return m, nil
}

// reference returns a manifest with the contents that most directories commit as the epoch.
func (v *View) reference(e Epoch) (*format.Manifest, error) {
	for _, id := range v.contentsOf(e) {
		if m := v.manifestWith(e, id); m != nil { // else it was removed meanwhile
			return m, nil
		}
	}
	return nil, fmt.Errorf("no directory has a manifest of epoch %d that can be read: %w", e, level.ErrNotCommitted)
}

func (v *View) manifestWith(e Epoch, id [16]byte) *format.Manifest {
	for _, d := range v.dirs {
		if m, err := d.ReadManifest(e); err == nil && m.ID() == id {
			return m
		}
	}
	return nil
}

// lying finds a good shard with the contents that want names in the directories of a level, in a file of its own or in
// a pack.
func (r *repairer) lying(ctx context.Context, name string, e Epoch, want *ShardInfo) (ShardInfo, error) {
	err := error(fmt.Errorf("no good shard of it lies at the level %s", name))
	for _, d := range r.v.dirs {
		if d.Name() != name {
			continue
		}
		var infos []ShardInfo
		if info, _, uerr := fetch.Uncommitted(d, e, want.Rank); uerr == nil {
			infos = append(infos, info)
		}
		files, _ := d.Files(e)
		for _, f := range files {
			if _, ok := format.ParsePackName(f.Name); ok {
				list, _ := level.ReadPack(d, e, f.Name)
				infos = append(infos, list...)
			}
		}
		for _, info := range infos {
			if info.Rank != want.Rank || info.Digest != want.Digest {
				continue
			}
			info.Node, info.Layout = want.Node, want.Layout // packs do not repeat layouts
			rerr := readBack(ctx, d, e, info)
			if rerr == nil {
				return info, nil
			}
			err = errors.Join(err, rerr)
		}
	}
	return ShardInfo{}, err
}

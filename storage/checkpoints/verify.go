package checkpoints

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"syscall"

	"github.com/holdfast-hpc/holdfast/storage/internal/fetch"
	"github.com/holdfast-hpc/holdfast/storage/internal/format"
	"github.com/holdfast-hpc/holdfast/storage/internal/level"
	"github.com/holdfast-hpc/holdfast/storage/internal/redundancy"
	"github.com/holdfast-hpc/holdfast/storage/internal/shard"
)

// Finding is something that Verify found wrong.
type Finding struct {
	Epoch  Epoch
	Dir    DirInfo
	Rank   int    // -1: the manifest
	Part   string // file, if it is not the rank's shard: a pack's index or a parity row
	Kind   Kind
	Err    error
	GoodAt []string // directories with a good copy of the damaged part; or a level from which it can be computed
	Lost   bool     // no good copy of the shard or manifest was found
	Absent bool     // it is in none of the directories given, and may be elsewhere
}

// Verify reads all parts of an epoch in the directories and reports each fault, with the directories that have a good
// copy. Its error is the reason why directories could not be read.
//
// A shard is missed in a directory of the level "global", which has all, and, by a View of Inspect, where the
// directory's ledgers say that it was. It may else lie in a directory that was not given, and is reported as Absent if
// no directory given has it. It reads every byte of the epoch.
func (v *View) Verify(ctx context.Context, e Epoch) ([]Finding, error) {
	c := &check{view: v, epoch: e, good: map[int][]string{}, at: map[string]*format.Manifest{},
		ids: map[[16]byte][]DirInfo{}, there: map[placed]int{}, reported: map[placed]bool{},
		parity: parityParts{members: map[int]bool{}, rows: map[format.RowID]bool{}}}
	for _, d := range v.dirs {
		if err := c.dir(ctx, d); err != nil {
			return nil, err
		}
	}
	return c.report(), nil
}

// check is one Verify under way.
type check struct {
	view      *View
	epoch     Epoch
	committed []DirInfo
	size      int      // ranks, by a manifest; 0 without one
	manifests []string // directories with a good one
	at        map[string]*format.Manifest
	ids       map[[16]byte][]DirInfo // contents by the manifests
	there     map[placed]int         // how often a file was found
	reported  map[placed]bool        // reported as missing from a directory
	good      map[int][]string
	parity    parityParts
	found     []Finding
}

// add reports a fault of a rank's shard, or of another part.
func (c *check) add(dir DirInfo, rank int, part string, err error) {
	c.found = append(c.found, Finding{Epoch: c.epoch, Dir: dir, Rank: rank, Part: part, Err: err})
}

func (c *check) dir(ctx context.Context, d *viewDir) error {
	have, err := level.HasManifest(d, c.epoch)
	_, due := d.due[c.epoch]
	if err == nil && !have && !due {
		return nil
	}
	var m *format.Manifest
	switch {
	case err != nil:
	case have:
		m, err = d.ReadManifest(c.epoch)
	default:
		err = fmt.Errorf("manifest %w", errMissing)
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if errors.Is(err, fs.ErrPermission) {
		return fmt.Errorf("manifest of epoch %d in %s: %w", c.epoch, d.Path(), err)
	}
	if level.OfOtherRun(err) { // VerifyDirs says so
		return nil
	}
	if !d.Traits().Rows {
		c.committed = append(c.committed, d.info)
	}
	if err != nil {
		c.add(d.info, -1, "", err)
		if m, err = c.view.manifestAt(d, c.epoch); err != nil {
			names, err := level.NamesOf(d, c.epoch)
			c.missed(d, names)
			return err
		}
	} else {
		c.manifests = append(c.manifests, d.Path())
		c.ids[m.ID()] = append(c.ids[m.ID()], d.info)
	}
	c.size, c.at[d.Name()] = m.Size, m
	return c.contents(ctx, d, m)
}

// contents looks at everything that a directory holds of the epoch.
func (c *check) contents(ctx context.Context, d *viewDir, m *format.Manifest) error {
	names, err := level.NamesOf(d, c.epoch)
	if err != nil {
		return err
	}
	for name := range names {
		c.there[placed{d.Name(), name}]++
	}
	c.missed(d, names)
	if d.Traits().Rows {
		c.parity.manifest = m
	} else {
		for r := range m.Shards {
			if err := c.shard(ctx, d, r, names[m.Shards[r].FileName()]); err != nil {
				return err
			}
		}
	}
	return c.others(ctx, d, m)
}

// others looks at the packs and parity rows in a directory.
func (c *check) others(ctx context.Context, d *viewDir, m *format.Manifest) error {
	files, err := d.Files(c.epoch)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, f := range files {
		var faults []error
		rank, j, ok := format.ParseName(f.Name)
		if ok && j >= 0 {
			faults, err = redundancy.VerifyRow(ctx, d, m, format.RowID{Rank: rank, J: j})
			c.parity.rows[format.RowID{Rank: rank, J: j}] = len(faults) == 0
		} else if rank, ok = format.ParsePackName(f.Name); ok {
			faults = fetch.VerifyPack(d, m, f.Name)
		}
		if err != nil {
			return err
		}
		for _, fault := range faults {
			c.add(d.info, rank, f.Name, fault)
		}
	}
	return nil
}

func (c *check) shard(ctx context.Context, d *viewDir, rank int, here bool) error {
	if !here {
		if d.Traits().Shared {
			c.add(d.info, rank, "", fmt.Errorf("shard is missing: %w", fs.ErrNotExist))
		}
		return nil
	}
	faults, err := shard.Verify(ctx, &contents{viewDir: d, v: c.view}, c.epoch, rank)
	if err != nil {
		return err
	}
	all := len(faults)
	faults = slices.DeleteFunc(faults, func(f error) bool {
		// An epoch that is there for some of its chunks has others in epochs that retention has removed.
		return errors.Is(f, level.ErrNotCommitted) && c.aged(d.Name())
	})
	for _, f := range faults {
		c.add(d.info, rank, "", f)
	}
	if len(faults) == 0 {
		if all == 0 || c.aged("") { // else another level has it whole
			c.good[rank] = append(c.good[rank], d.Path())
		}
		if d.Traits().Data {
			c.parity.members[rank], c.parity.data = true, d.Name()
		}
	}
	return nil
}

// goodAt lists where a good copy of a rank's shard is; the level with the rows if the
// good parts of its group are enough to compute it.
func (c *check) goodAt(rank int) []string {
	good, p := c.good[rank], &c.parity
	if len(good) == 0 && p.manifest != nil && redundancy.Computable(p.manifest, rank,
		func(r int) bool { return p.members[r] }, func(id format.RowID) bool { return p.rows[id] }) == nil {
		good = []string{p.manifest.Level}
	}
	return good
}

// parityParts has the good parts of parity groups.
type parityParts struct {
	manifest *format.Manifest // nil: no directory of the level was given
	members  map[int]bool     // at the level data
	data     string
	rows     map[format.RowID]bool
}

// encodable names the level from which a rank's rows can be encoded again, if
// all members of its group are good.
func (p *parityParts) encodable(rank int) []string {
	if p.manifest == nil {
		return nil
	}
	st, err := redundancy.StripeIn(p.manifest, rank)
	if err != nil || slices.ContainsFunc(st.Group, func(r int) bool { return !p.members[r] }) {
		return nil
	}
	return []string{p.data}
}

// report adds to each finding its kind and the places of good copies, and adds a
// finding for each part that no directory has.
func (c *check) report() []Finding {
	c.attempts()
	if c.view.Complete && !c.aged("") {
		c.incomplete()
	}
	bad := map[int]bool{}
	for i := range c.found {
		f := &c.found[i]
		_, row, named := format.ParseName(f.Part)
		switch {
		case f.Rank < 0:
			f.GoodAt = c.manifests
			f.Lost = len(f.GoodAt) == 0
		case f.Part == "":
			bad[f.Rank] = true
			f.GoodAt = c.goodAt(f.Rank)
			f.Lost = len(f.GoodAt) == 0
		case named && row >= 0:
			f.GoodAt = c.parity.encodable(f.Rank)
		default: // the index of a pack repeats the manifest's data
			f.GoodAt = c.manifests
		}
		f.Kind = kindOf(f.Err, len(f.GoodAt) > 0 || row >= 0 && named)
		f.Lost = f.Lost && f.Kind != Newer
	}
	if len(c.committed) == 0 && c.parity.manifest == nil {
		if len(c.found) == 0 {
			c.found = append(c.found, Finding{Epoch: c.epoch, Rank: -1, Kind: Missing, Err: level.ErrNotCommitted,
				Lost: true})
		}
		return c.found
	}
	var dir DirInfo
	if len(c.committed) > 0 {
		dir = c.committed[0]
	} else {
		dir = c.dirOf(c.parity.manifest.Level)
	}
	for r := range c.size {
		if c.aged("") {
			break
		}
		if !bad[r] && len(c.good[r]) == 0 {
			f := Finding{Epoch: c.epoch, Dir: dir, Rank: r, Kind: Elsewhere, Absent: true,
				GoodAt: c.goodAt(r), Err: errors.New("shard is in none of the directories given")}
			switch {
			case c.view.Complete && len(f.GoodAt) > 0:
				f.Kind = NotRedundant
			case c.view.Complete:
				f.Kind, f.Lost = Missing, true
			}
			c.found = append(c.found, f)
		}
	}
	return c.found
}

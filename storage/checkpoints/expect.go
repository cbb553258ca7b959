package checkpoints

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"

	"github.com/holdfast-hpc/holdfast/storage/internal/format"
	"github.com/holdfast-hpc/holdfast/storage/internal/level"
)

// Kind classifies a finding.
type Kind string

// Kinds of findings.
const (
	Damaged      Kind = "damaged"       // it is there and differs from the written bytes, or is refused
	Missing      Kind = "missing"       // it should be there, and no directory given has the data
	NotRedundant Kind = "not redundant" // it should be there, and other directories given have the data
	Elsewhere    Kind = "elsewhere"     // no directory given has it, and it may be in another: see View.Complete
	Newer        Kind = "newer version" // a later release has written it, and this one cannot read it
	OtherRun     Kind = "other run"     // it belongs to another run, and is nothing of this one; see OtherRunError
)

// kindOf classifies damage; had reports whether other places have the data.
func kindOf(err error, had bool) Kind {
	switch {
	case errors.As(err, new(*format.VersionError)):
		return Newer
	case level.OfOtherRun(err):
		return OtherRun
	case !level.Absent(err):
		return Damaged
	case had:
		return NotRedundant
	}
	return Missing
}

var errMissing = fmt.Errorf("was committed here and is missing: %w", fs.ErrNotExist)

// Expected lists the epochs that are committed in the directories or should be, newest first. Epochs that retention has
// removed are not among them. It reads manifests and what Inspect has read, and no shard.
func (v *View) Expected() ([]Epoch, error) {
	return expectedIn(v.dirs...)
}

func expectedIn(dirs ...*viewDir) ([]Epoch, error) {
	set := map[Epoch]bool{}
	for _, d := range dirs {
		for e := range d.due {
			set[e] = true
		}
		epochs, err := d.committed()
		if err != nil {
			return nil, err
		}
		for _, e := range epochs {
			set[e] = true
		}
	}
	return format.NewestFirst(maps.Keys(set)), nil
}

// committed lists the epochs of the directory's run that have a manifest here, readable or not, newest first.
func (d *viewDir) committed() ([]Epoch, error) {
	epochs, err := d.Epochs()
	return slices.DeleteFunc(epochs, func(e Epoch) bool {
		if have, err := level.HasManifest(d, e); !have && err == nil {
			return true
		}
		_, err := d.ReadManifest(e)
		return level.OfOtherRun(err)
	}), err
}

// expect finds the epochs that the keep rules leave of those in a directory's ledgers. The ledgers of other directories
// know the epochs at global, which all ranks share; at the other levels each directory has its own.
func (v *View) expect(d *viewDir) error {
	d.due = map[Epoch][]string{}
	keep, every, newest := 0, Epoch(0), Epoch(0)
	take := func(l *format.LedgerLevel) {
		if l == nil {
			return
		}
		for _, p := range l.Epochs {
			d.due[p.Epoch] = append(d.due[p.Epoch], p.Files...)
			if p.Epoch >= newest {
				newest, keep, every = p.Epoch, l.Keep, Epoch(l.KeepEvery)
			}
		}
	}
	for _, l := range d.ledgers {
		if d.info.Run.Owns(l.Run) { // else of the run that this one has replaced
			take(l.At(d.Name()))
		}
	}
	if d.Traits().Shared {
		for _, other := range v.dirs {
			for _, l := range other.ledgers {
				if other != d && d.info.Run.Owns(l.Run) {
					take(l.At(d.Name()))
				}
			}
		}
	}
	all, err := expectedIn(d)
	if err != nil {
		return err
	}
	for i, e := range all {
		if i >= keep && (every == 0 || e%every != 0) {
			delete(d.due, e)
		}
	}
	return nil
}

// aged reports that no keep rule holds the epoch at a level, or without a name at any: later epochs refer to it, or it
// is about to be removed; a missing file is no finding. A wider level may keep it.
func (c *check) aged(level string) bool {
	known := false
	for _, d := range c.view.dirs {
		if level != "" && d.Name() != level {
			continue
		}
		if _, due := d.due[c.epoch]; due {
			return false
		}
		for e := range d.due {
			known = known || e > c.epoch
		}
	}
	return known
}

// missed reports files that should be in a directory and are not.
func (c *check) missed(d *viewDir, have map[string]bool) {
	files := slices.Clone(d.due[c.epoch])
	slices.Sort(files)
	for _, name := range slices.Compact(files) {
		rank, row, ok := format.ParseName(name)
		if !ok || have[name] {
			continue
		}
		part := name
		if row < 0 {
			part = ""
		}
		c.add(d.info, rank, part, fmt.Errorf("%s %w", name, errMissing))
		c.reported[placed{d.Name(), name}] = true
	}
}

// placed is a file at a level, in any directory.
type placed struct{ level, name string }

// incomplete reports files that are in no directory of a level although all were given.
func (c *check) incomplete() {
	for _, l := range slices.Sorted(maps.Keys(c.at)) {
		m, t := c.at[l], level.TraitsOf(l)
		if t.Shared || t.Rows { // where every shard was looked for already, or there is none
			continue
		}
		for r := range m.Shards {
			copies := 1
			if t.Copies {
				copies = len(m.Shards[r].Holders)
			}
			name := placed{l, format.ShardName(r)}
			if c.there[name] < copies && !c.reported[name] && len(c.good[r]) > 0 {
				c.add(c.dirOf(l), r, "", fmt.Errorf("%d of %d at level %s: %w", c.there[name], copies, l, errMissing))
			}
		}
	}
	if m := c.parity.manifest; m != nil {
		for r := range m.Shards {
			for j := range m.Parity {
				name := placed{m.Level, format.RowName(r, j)}
				if c.there[name] == 0 && !c.reported[name] {
					c.add(c.dirOf(m.Level), r, name.name, fmt.Errorf("%s %w", name.name, errMissing))
				}
			}
		}
	}
}

// dirOf describes a level if the directory of a missing file is not known.
func (c *check) dirOf(level string) DirInfo {
	for _, d := range c.view.dirs {
		if d.Name() == level {
			return DirInfo{Level: level, Job: d.info.Job, Size: d.info.Size}
		}
	}
	return DirInfo{Level: level}
}

// attempts reports the manifests that commit other contents than most others do: they are of another attempt at the
// epoch, or of another place.
func (c *check) attempts() {
	var most [16]byte
	for id, dirs := range c.ids {
		if n := len(c.ids[most]); len(dirs) > n || len(dirs) == n && string(id[:]) < string(most[:]) {
			most = id
		}
	}
	for id, dirs := range c.ids {
		for _, d := range dirs {
			if id != most {
				c.add(d, -1, "", &format.CorruptError{
					File:   filepath.Join(d.Dir, format.EpochName(c.epoch), format.ManifestName),
					Reason: "differs from the manifests in the other directories"})
			}
		}
	}
}

// manifestAt reads the manifest of an epoch from the directory or from another one
// of its level. That of the level parity describes the shards of the level local, too.
func (v *View) manifestAt(d *viewDir, e Epoch) (*format.Manifest, error) {
	m, err := d.ReadManifest(e)
	if err == nil || errors.Is(err, fs.ErrPermission) {
		return m, err
	}
	for _, o := range v.dirs {
		if o != d && o.Name() == d.Name() {
			if m, oerr := o.ReadManifest(e); oerr == nil {
				return m, nil
			}
		}
	}
	for _, o := range v.dirs {
		if !d.Traits().Data || !o.Traits().Rows {
			continue
		}
		if m, oerr := o.ReadManifest(e); oerr == nil {
			return m.OfData(d.Name()), nil
		}
	}
	return nil, err
}

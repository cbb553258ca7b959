package checkpoints

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/holdfast-hpc/holdfast/internal/vfs"
	"github.com/holdfast-hpc/holdfast/storage/internal/format"
	"github.com/holdfast-hpc/holdfast/storage/internal/level"
)

// Inspect opens directories as Open does, and continues if one is damaged. It then takes the job file from the
// manifests. It leaves out a directory that is refused, empty, or has no record of its job. VerifyDirs reports the
// findings. It fails when no directory is left. It reads the ledgers and job files, and no shard.
func Inspect(ctx context.Context, dirs ...string) (*View, error) {
	v := &View{}
	var refused error
	for _, path := range distinct(dirs) {
		if err := level.CheckPath(path); err != nil {
			return nil, err
		}
		d := &viewDir{Level: levelOf(ctx, path, nil)}
		err := d.Trusted()
		if errors.Is(err, vfs.ErrUnsafe) {
			refused = errors.Join(refused, d.Unusable(err))
			v.found = append(v.found, Finding{Dir: DirInfo{Dir: path}, Rank: -1, Kind: Damaged, Err: err})
			continue
		}
		if err := d.identify(ctx); errors.Is(err, errNoMarker) {
			refused = errors.Join(refused, err)
			v.found = append(v.found, Finding{Dir: DirInfo{Dir: path}, Rank: -1, Kind: Missing, Err: err})
			continue
		} else if errors.Is(err, format.ErrCorrupt) || errors.Is(err, vfs.ErrUnsafe) {
			refused = errors.Join(refused, err)
			v.found = append(v.found, Finding{Dir: DirInfo{Dir: path}, Rank: -1, Part: format.MarkerName, Kind: Damaged,
				Err: err})
			continue
		} else if err != nil {
			return nil, err
		}
		if err := v.add(d); err != nil {
			return nil, err
		}
		if err := v.look(d); err != nil {
			return nil, err
		}
	}
	if len(v.dirs) == 0 && refused != nil {
		return nil, refused
	}
	for _, d := range v.dirs {
		if err := v.expect(d); err != nil {
			return nil, err
		}
	}
	return v, nil
}

// identify finds out whose the directory is: from the job file, or else from the
// newest manifest that can be read.
func (d *viewDir) identify(ctx context.Context) error {
	m, err := level.ReadMarker(d)
	if err != nil {
		if errors.Is(err, fs.ErrPermission) || errors.As(err, new(*format.VersionError)) {
			return d.Unusable(err)
		}
		if m = d.markerByManifest(); m == nil && errors.Is(err, fs.ErrNotExist) {
			return d.noJob()
		} else if m == nil {
			return d.Unusable(err)
		}
		d.markerErr = err
	}
	d.used = level.OwnerOf(d.Level).HasEpochs
	d.info = DirInfo{Dir: d.Path(), Level: m.Level, Job: m.Job, Size: m.Size, Run: m.Run}
	if d.markerErr != nil {
		d.info.Fault = fmt.Errorf("directory %s: %s cannot be used (%w); the manifests name the job, and its next run "+
			"rewrites the file", d.Path(), format.MarkerName, d.markerErr)
	}
	d.Level = levelOf(ctx, d.Path(), m)
	return nil
}

func (d *viewDir) markerByManifest() *format.Marker {
	epochs, err := d.Epochs()
	if err != nil {
		return nil
	}
	for _, e := range epochs {
		if m, err := d.ReadManifest(e); err == nil {
			return &format.Marker{Job: m.Job, Size: m.Size, Level: m.Level, Run: m.Run}
		}
	}
	return nil
}

// look reads the directory's own files.
func (v *View) look(d *viewDir) error {
	bad := func(file string, err error) {
		if err != nil {
			v.found = append(v.found, Finding{Dir: d.info, Rank: -1, Part: file, Kind: kindOf(err, false), Err: err})
		}
	}
	if d.markerErr != nil { // its text was read off a manifest
		v.found = append(v.found, Finding{Dir: d.info, Rank: -1, Part: format.MarkerName,
			Kind: kindOf(d.markerErr, true), Err: d.markerErr})
	}
	if err := d.Check(bad); err != nil {
		return err
	}
	epochs, err := d.Epochs()
	if err != nil {
		return err
	}
	for _, e := range epochs {
		var other *level.OtherRunError
		if _, err := d.ReadManifest(e); errors.As(err, &other) && !other.Replaced() {
			bad(format.EpochName(e), err)
		}
	}
	books, problems, err := level.ReadLedgers(d)
	if err != nil {
		return err
	}
	d.ledgers = books
	for name, err := range problems {
		bad(name, err)
	}
	return nil
}

// VerifyDirs reports faults of the directories themselves: job files, ledgers, files in the place of an epoch. Epoch is
// 0 in these findings. It reads nothing again.
func (v *View) VerifyDirs() []Finding { return append([]Finding(nil), v.found...) }

// Counts describes the obstacles to a restore of an epoch by another number of ranks, as far as its manifest shows
// them. Ranks ascend.
type Counts struct {
	Undeclared []int // ranks that wrote it without coordinated.Options.Elastic: they say nothing of arrays
	PerRank    []int // ranks with state that is protected per rank
	NotQuiet   []int // ranks with messages in flight
}

// Counts reads the obstacles from the manifest. Without Shards it knows nothing, and names nothing.
func (i *EpochInfo) Counts() (c Counts) {
	for r := range i.Shards {
		switch l := i.Shards[r].Layout; {
		case l == nil:
			c.Undeclared = append(c.Undeclared, r)
		default:
			if l.PerRank {
				c.PerRank = append(c.PerRank, r)
			}
			if !l.Quiet {
				c.NotQuiet = append(c.NotQuiet, r)
			}
		}
	}
	return c
}

// Any reports whether any number of ranks can restore the epoch: there is no obstacle.
func (c *Counts) Any() bool { return len(c.Undeclared)+len(c.PerRank)+len(c.NotQuiet) == 0 }

// Short names the obstacles in a few words; empty: there is none.
func (c *Counts) Short() string {
	var why []string
	for _, w := range []struct {
		ranks []int
		word  string
	}{{c.Undeclared, "not elastic"}, {c.PerRank, "per rank"}, {c.NotQuiet, "in flight"}} {
		if len(w.ranks) > 0 {
			why = append(why, w.word)
		}
	}
	return strings.Join(why, ", ")
}

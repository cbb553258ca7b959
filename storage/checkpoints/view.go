package checkpoints

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-hpc/holdfast/internal/vfs"
	"github.com/holdfast-hpc/holdfast/storage/internal/format"
	"github.com/holdfast-hpc/holdfast/storage/internal/level"
)

// View looks at checkpoint directories from outside the job. It never writes. Its calls are local. It needs no Close.
type View struct {
	// Complete: the directories are all that the job has. Verify then reports parts that none of them has.
	Complete bool

	dirs  []*viewDir
	found []Finding // by Inspect
}

// DirInfo says whose checkpoints a directory holds.
type DirInfo struct {
	Dir   string
	Level string
	Job   string
	Size  int      // number of ranks
	Run   Identity // the run that it belongs to; zero: an older release has written it
	Fault error    // why this is known from the manifests alone; nil: the directory says it
}

// Identity tells one run from all others; see storage.Identity.
type Identity = format.Identity

type viewDir struct {
	level.Level
	info      DirInfo
	used      bool // epochs of its run are or were there
	markerErr error
	ledgers   []*format.Ledger
	due       map[Epoch][]string // epochs that should be here, with files that should; by Inspect
}

// EpochInfo describes one directory's part of an epoch.
type EpochInfo struct {
	Epoch     Epoch
	Dir       DirInfo
	Committed bool
	Size      int         // of how many ranks it is, by the manifest; 0 without one
	Time      time.Time   // when the manifest was written, or the directory changed
	ID        [16]byte    // identifies the committed contents
	Shards    []ShardInfo // of all ranks, from the manifest; nil without one
	Here      []int       // ranks whose shards lie in this directory, ascending
	Disk      int64       // bytes of the epoch's files in this directory
	InPart    bool        // it is here for chunks that later epochs refer to; others that it had are gone
	Pin       *Pin        // that it stays here; nil: no more than the keep rules say
	OtherRun  bool        // it belongs to another run than the directory, and counts as none of its epochs
	Run       Identity    // that it belongs to
	Err       error       // why the manifest cannot be read
}

// Open opens the directories of one run of a job: its global one, the local ones of its nodes, or both. Directories of
// different jobs (*JobError) and runs (*RunError) are refused. So are those of different numbers of ranks (*SizeError),
// unless the job has epochs that any number can restore: then each has the number that last committed there.
//
// It reads job files and manifests, and no shard. Requests to an object store end with this ctx, even those of later
// calls of the View: so ctx lives as long as the View.
func Open(ctx context.Context, dirs ...string) (*View, error) {
	v := &View{}
	for _, path := range distinct(dirs) {
		if err := level.CheckPath(path); err != nil {
			return nil, err
		}
		d := &viewDir{Level: levelOf(ctx, path, nil)}
		if err := d.Trusted(); errors.Is(err, vfs.ErrUnsafe) {
			return nil, d.Unusable(err)
		}
		if err := d.identify(ctx); err != nil {
			return nil, err
		}
		if err := d.markerErr; err != nil && !errors.Is(err, format.ErrCorrupt) && !errors.Is(err, fs.ErrNotExist) {
			return nil, d.Unusable(err) // it may not be looked at
		}
		if err := v.add(d); err != nil {
			return nil, err
		}
	}
	return v, nil
}

// filesOf returns the file system of a tool.
func filesOf(ctx context.Context) vfs.FS { return vfs.OrOS(vfs.From(ctx)) }

// levelOf returns the level at a path, as of level.Of. Requests to an object store end with ctx.
func levelOf(ctx context.Context, path string, m *format.Marker) level.Level {
	return level.Until(ctx, level.Of(filesOf(ctx), path, m))
}

// distinct leaves out directories that are given again: a copy there would count as two.
func distinct(dirs []string) (out []string) {
	last := map[string]int{}
	for i, d := range dirs {
		last[placeOf(d)] = i
	}
	for i, d := range dirs {
		if last[placeOf(d)] == i {
			out = append(out, d)
		}
	}
	return out
}

// placeOf returns the same for all paths to a directory, as far as the system can tell.
func placeOf(dir string) string {
	if level.IsStore(dir) {
		return strings.TrimRight(dir, "/")
	}
	if real, err := filepath.EvalSymlinks(dir); err == nil {
		dir = real
	}
	if abs, err := filepath.Abs(dir); err == nil {
		dir = abs
	}
	return filepath.Clean(dir)
}

// errNoMarker marks a directory that is there and holds no checkpoints.
var errNoMarker = errors.New("it is not a checkpoint directory: it has no " + format.MarkerName)

// noJob returns an error with the reason why a directory has no marker.
func (d *viewDir) noJob() error {
	why := errNoMarker
	remedy := "give a directory that was the HOLDFAST_GLOBAL or HOLDFAST_LOCAL of a job"
	if _, err := d.Epochs(); errors.Is(err, fs.ErrNotExist) {
		why = errors.New("it does not exist")
		if _, number := strconv.ParseUint(d.Path(), 10, 64); number == nil {
			remedy = "an epoch is named by -e " + d.Path()
		} else if strings.HasPrefix(d.Path(), "~") {
			remedy = "only the shell knows ~, and not within quotes: write the path in full"
		}
	} else if err != nil && level.IsStore(d.Path()) { // there is no bucket, say
		return err
	}
	return &level.DirError{Dir: d.Path(), Err: why, Remedy: remedy}
}

func (v *View) add(d *viewDir) error {
	if len(v.dirs) > 0 {
		first := v.dirs[0].info
		if d.info.Job != first.Job {
			return &level.JobError{Level: d.Name(), Dir: d.Path(), Have: d.info.Job, Want: first.Job,
				Other: "directory " + first.Dir}
		}
		// A directory may not have epochs of another run than another one has.
		for _, o := range v.dirs {
			switch a, b := o.info.Run, d.info.Run; {
			case a.Owns(b), b.Owns(a), !o.used, !d.used:
				continue
			}
			return &level.RunError{Level: d.Name(), Dir: d.Path(), Have: d.info.Run, Want: o.info.Run,
				Other: "level " + o.Name() + " in " + o.Path(), Remedy: "give the directories of one run"}
		}
		if d.info.Size != first.Size && !d.resizable() && !slices.ContainsFunc(v.dirs, (*viewDir).resizable) {
			return &level.SizeError{Level: d.Name(), Dir: d.Path(), Have: d.info.Size, Want: first.Size,
				Other: "directory " + first.Dir}
		}
	}
	v.dirs = append(v.dirs, d)
	return nil
}

// resizable reports whether the directory has an epoch of a job whose number of ranks may change.
func (d *viewDir) resizable() bool {
	epochs, err := d.Epochs()
	return err == nil && slices.ContainsFunc(epochs, func(e Epoch) bool {
		m, err := d.ReadManifest(e)
		return err == nil && m.HasLayouts()
	})
}

// Dirs describes the directories in the order given.
func (v *View) Dirs() []DirInfo {
	var out []DirInfo
	for _, d := range v.dirs {
		out = append(out, d.info)
	}
	return out
}

// Epochs lists each directory's part of each epoch, newest epoch first. It reads the manifests, and no shard.
func (v *View) Epochs(ctx context.Context) ([]EpochInfo, error) {
	var out []EpochInfo
	for _, d := range v.dirs {
		epochs, err := d.Epochs()
		if err != nil {
			return nil, err
		}
		pins, err := level.PinsAt(d)
		if err != nil {
			return nil, err
		}
		for _, e := range epochs {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			info, err := d.epochInfo(e)
			if errors.Is(err, fs.ErrNotExist) {
				continue // a running job has removed it meanwhile
			}
			if err != nil {
				return nil, err
			}
			if k, ok := pins[e]; ok {
				info.Pin = &k.Pin
			}
			out = append(out, info)
		}
	}
	slices.SortStableFunc(out, func(a, b EpochInfo) int { return cmp.Compare(b.Epoch, a.Epoch) })
	return out, nil
}

func (d *viewDir) epochInfo(e Epoch) (EpochInfo, error) {
	info := EpochInfo{Epoch: e, Dir: d.info}
	entry, err := d.Stat(e, format.ManifestName)
	if errors.Is(err, fs.ErrNotExist) {
		entry, err = d.Stat(e, "")
		info.Time = entry.ModTime
		return info, err
	}
	if err != nil && !errors.Is(err, fs.ErrPermission) {
		info.Committed, info.Err = true, err // something is there
		return info, nil
	}
	if err != nil {
		return info, err
	}
	info.Time, info.Committed = entry.ModTime, true
	m, err := d.ReadManifest(e)
	var other *level.OtherRunError
	if errors.As(err, &other) { // of which no more is said than whose it is
		info.Committed, info.OtherRun = false, true
		info.Run, info.Size = other.Manifest.Run, other.Manifest.Size
		return info, nil
	}
	if err != nil {
		info.Err = err
		return info, nil
	}
	info.ID, info.Shards, info.Size, info.Run = m.ID(), m.Shards, m.Size, m.Run
	info.InPart = errors.Is(level.CheckOrigins(d, m.Origins()), level.ErrNotCommitted)
	list, err := d.Files(e)
	for i := 0; i < len(list) && err == nil; i++ {
		entry, serr := d.Stat(e, list[i].Name)
		if !errors.Is(serr, fs.ErrNotExist) { // removed meanwhile
			info.Disk, err = info.Disk+entry.Size, serr
		}
	}
	if err == nil {
		info.Here, err = level.RanksHere(d, m)
	}
	return info, err
}

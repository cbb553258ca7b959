package level

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/holdfast-hpc/holdfast/storage/internal/format"
)

// Leftover is something that was not removed, or that keeps its epoch.
type Leftover struct {
	Path string
	Err  error // why
}

// LeftError reports what checkpoints.Prune could not remove, or could not read of an epoch
// that it keeps.
type LeftError struct{ Left []Leftover }

// Error lists the files, each with the reason.
func (e *LeftError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d file(s) not removed:", len(e.Left))
	for _, l := range e.Left {
		fmt.Fprintf(&b, "\n  %s: %v", l.Path, l.Err)
	}
	return b.String()
}

// Unwrap gives the reasons.
func (e *LeftError) Unwrap() []error {
	var out []error
	for _, l := range e.Left {
		out = append(out, l.Err)
	}
	return out
}

var (
	errForeign  = errors.New("not a checkpoint file; remove it by hand if nobody needs it")
	errNotEmpty = errors.New("its epoch is removed, except files that other processes have open or are writing")
)

// RemoveEpoch removes the manifest for good before anything it names, so that
// a crash leaves garbage and never half an epoch. What is no file of a checkpoint
// stays, and the directory with it.
func (d *Dir) RemoveEpoch(e format.Epoch) (left []Leftover, err error) {
	dir := d.epochPath(e)
	if err := removeIfThere(d.fs, filepath.Join(dir, format.ManifestName)); err != nil {
		if entry, serr := d.fs.Stat(filepath.Join(dir, format.ManifestName)); serr != nil || !entry.Dir {
			return nil, err
		} // a directory commits nothing
	}
	if err := ignoreMissing(d.fs.SyncDir(dir)); err != nil {
		return nil, err
	}
	list, err := d.fs.ReadDir(dir)
	if err != nil {
		return nil, ignoreMissing(err)
	}
	for _, f := range list {
		path := filepath.Join(dir, f.Name)
		if f.Dir || !ours(f.Name) {
			left = append(left, Leftover{path, errForeign})
			continue
		}
		err = errors.Join(err, removeIfThere(d.fs, path))
	}
	if err != nil || len(left) > 0 {
		return left, err
	}
	d.known.drop(e)
	if err := removeIfThere(d.fs, dir); err != nil {
		if list, rerr := d.fs.ReadDir(dir); rerr == nil && len(list) > 0 {
			return []Leftover{{dir, errNotEmpty}}, nil
		}
		return nil, err
	}
	return nil, nil
}

// ours says whether a name in an epoch's directory is one that a store gives.
func ours(name string) bool {
	if _, ok := TempRank(name); ok {
		name, _, _ = strings.Cut(name, ".r")
	}
	if _, _, ok := format.ParseName(name); ok {
		return true
	}
	_, ok := format.ParsePackName(name)
	return ok || name == format.ManifestName
}

// TempRank reads the rank back from the name of a file in the making.
func TempRank(name string) (rank int, ok bool) {
	stem, ok := strings.CutSuffix(name, format.TempSuffix)
	if !ok {
		return 0, false
	}
	parts := strings.Split(stem, ".")
	if len(parts) < 3 || !strings.HasPrefix(parts[len(parts)-2], "r") {
		return 0, false
	}
	v, err := strconv.ParseUint(parts[len(parts)-2][1:], 10, 31)
	return int(v), err == nil
}

func ignoreMissing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

package level

import (
	"context"
	"encoding/binary"
	"errors"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/holdfast-hpc/holdfast/storage/internal/format"
)

// Leftover is something that was not removed, or that keeps its epoch.
type Leftover struct {
	Path string
	Err  error // why
}

var (
	errForeign  = errors.New("unexpected file; remove it if it is not needed")
	errNotEmpty = errors.New("its epoch is removed, except files that other processes have open or are writing")
)

// RemoveEpoch permanently removes the manifest before its files, so that a crash leaves garbage and never half an
// epoch. Files that are not part of a checkpoint are left, and the directory with them.
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
	d.known.Delete(e)
	if err := removeIfThere(d.fs, dir); err != nil {
		if list, rerr := d.fs.ReadDir(dir); rerr == nil && len(list) > 0 {
			return []Leftover{{dir, errNotEmpty}}, nil
		}
		return nil, err
	}
	return nil, nil
}

// ours reports whether a name in an epoch's directory is one that a store gives.
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

// A user keeps epochs next to a job that holds the run lock. So pruning and keeping exclude each other by notes: each
// side leaves one, and then looks for the other's.
//
//  1. A pruner announces the epochs that will go, then reads the list of those that stay, and stops if one was added.
//  2. A keeper writes that an epoch is to stay, then reads the announcements, and waits for their end.
//
// Whichever note is there first is seen by the other. An announcement has the name of a temporary file: that of a
// process which has died goes with the next start of the job, or with the next tool that has the lock.
const announcement = "prune"

// Announce records that epochs of a shared level are about to be removed. done removes the record.
func Announce(l Level, epochs []format.Epoch) (done func() error, err error) {
	if len(epochs) == 0 || !l.Traits().Shared {
		return func() error { return nil }, nil
	}
	b := binary.LittleEndian.AppendUint64(nil, uint64(len(epochs)))
	for _, e := range epochs {
		b = binary.LittleEndian.AppendUint64(b, uint64(e))
	}
	name := TempName(announcement, 0)
	if err := l.putAnnouncement(name, b); err != nil {
		return nil, err
	}
	return func() error { return l.removeSmall(name, false) }, nil
}

// Announced reports whether any of the epochs is about to be removed. One that cannot be read may be of any.
func Announced(l Level, epochs ...format.Epoch) (bool, error) {
	names, err := announcements(l)
	if err != nil {
		return false, err
	}
	for _, name := range names {
		b, _, err := l.readSmall(name)
		if err != nil {
			if ignoreMissing(err) == nil {
				continue
			}
			return false, err
		}
		if len(b) < 8 || uint64(len(b)) != 8+8*binary.LittleEndian.Uint64(b) { // it is being written
			return true, nil
		}
		for b = b[8:]; len(b) > 0; b = b[8:] {
			if slices.Contains(epochs, format.Epoch(binary.LittleEndian.Uint64(b))) {
				return true, nil
			}
		}
	}
	return false, nil
}

// DropAnnouncements removes those of dead processes. The caller has the run lock.
func DropAnnouncements(l Level) error {
	if !l.Traits().Shared {
		return nil
	}
	names, err := announcements(l)
	for _, name := range names {
		err = errors.Join(err, l.removeSmall(name, false))
	}
	return err
}

// putAnnouncement need not be durable: it concerns living processes.
func (d *Dir) putAnnouncement(name string, b []byte) error {
	f, err := d.fs.Create(filepath.Join(d.path, name), false)
	if err != nil {
		return d.Unusable(err)
	}
	_, err = f.WriteAt(b, 0)
	if err = errors.Join(err, f.Close()); err != nil {
		return errors.Join(d.Unusable(err), d.removeSmall(name, false))
	}
	return nil
}

func announcements(l Level) (out []string, err error) {
	list, err := l.entries()
	if err != nil {
		return nil, l.Unusable(err)
	}
	for _, f := range list {
		if _, temp := TempRank(f.Name); temp && strings.HasPrefix(f.Name, announcement+".r") {
			out = append(out, f.Name)
		}
	}
	return out, nil
}

func (l *Bucket) putAnnouncement(name string, b []byte) error {
	_, err := l.b.Put(context.Background(), name, b, "")
	return unusableIf(l, err)
}

package storage

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/holdfast-hpc/holdfast/internal/vfs"
	"github.com/holdfast-hpc/holdfast/storage/internal/format"
)

// levelDir is the directory of a level:
//
//	<dir>/holdfast.job                      job marker
//	<dir>/epoch-0000000007/rank-000003.shard
//	<dir>/epoch-0000000007/manifest         commits the epoch
type levelDir struct {
	fs    vfs.FS
	name  string // of the level; empty: not known
	path  string
	of    *DirInfo // whose it is, where manifests of others are damage; nil: the caller looks
	owner int      // rank whose store the directory belongs to; it clears away temporary files
}

// unusable wraps what the system said about the directory with the remedy.
func (d *levelDir) unusable(err error) error {
	remedy := "check that the file system is mounted and healthy"
	switch {
	case errors.Is(err, fs.ErrNotExist):
		remedy = "create it, mount it, or correct the path"
	case errors.Is(err, fs.ErrPermission):
		remedy = "give this user write permission, or choose another directory"
	case errors.Is(err, syscall.EROFS):
		remedy = "have it mounted for writing, or choose another directory"
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		remedy = "make room there: files of other jobs, older epochs by 'holdfast prune'; or choose another directory"
	case errors.Is(err, syscall.ENOTDIR):
		remedy = "name a directory, not a file"
	case errors.Is(err, vfs.ErrUnsafe):
		remedy = "use a directory of your own that nobody else can write to"
	case errors.Is(err, ErrCorrupt):
		remedy = "remove " + format.MarkerName + " if this is the right directory"
	}
	return &DirError{Level: d.name, Dir: d.path, Remedy: remedy, Err: err}
}

// prepare tries whether the directory is there and can be written. create
// makes it if only its last element is missing.
func (d *levelDir) prepare(rank int, create bool) error {
	if create {
		if err := d.makeDir(d.path, filepath.Dir(d.path)); err != nil {
			return d.unusable(err)
		}
	}
	if err := d.fs.CheckDir(d.path, true); err != nil {
		return d.unusable(err)
	}
	probe := join(d.path, tempName("probe", rank))
	if err := writeFile(d.fs, probe, nil); err != nil {
		return d.unusable(err)
	}
	if err := d.fs.Remove(probe); err != nil {
		return d.unusable(err)
	}
	return nil
}

// makeDir makes a directory that other ranks may be making too, and makes its
// name durable in parent. Who finds it made syncs as well: its maker may not
// have got that far.
func (d *levelDir) makeDir(path, parent string) error {
	err := d.fs.Mkdir(path)
	if errors.Is(err, fs.ErrExist) {
		err = d.fs.CheckDir(path, path == d.path)
	}
	if err != nil {
		return err
	}
	return d.fs.SyncDir(parent)
}

func (d *levelDir) epochPath(e Epoch) string { return join(d.path, format.EpochName(e)) }

// epochFile is the path of a file of an epoch. It fails where the epoch's
// directory is not one that this user alone can have filled.
func (d *levelDir) epochFile(e Epoch, name string) (string, error) {
	dir := d.epochPath(e)
	if err := d.fs.CheckDir(dir, false); err != nil {
		return "", err
	}
	return join(dir, name), nil
}

func (d *levelDir) ensureEpoch(e Epoch) error { return d.makeDir(d.epochPath(e), d.path) }

// epochs lists the epoch directories, newest first, committed or not.
func (d *levelDir) epochs() ([]Epoch, error) {
	list, err := d.fs.ReadDir(d.path)
	if err != nil {
		return nil, d.unusable(err)
	}
	var out []Epoch
	for _, entry := range list {
		if e, ok := format.ParseEpochName(entry.Name); ok && entry.Dir {
			out = append(out, e)
		}
	}
	slices.Sort(out)
	slices.Reverse(out)
	return out, nil
}

// readManifest reads an epoch's manifest. An absent one is ErrNotCommitted.
func (d *levelDir) readManifest(e Epoch) (*format.Manifest, error) {
	file, err := d.epochFile(e, format.ManifestName)
	var b []byte
	if err == nil {
		b, err = readRecord(d.fs, file)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil, ErrNotCommitted
	}
	if err != nil {
		return nil, err
	}
	m, err := format.DecodeManifest(file, b)
	if err != nil {
		return nil, err
	}
	bad := func(format string, args ...any) (*format.Manifest, error) {
		return nil, &CorruptError{File: file, Len: int64(len(b)), Reason: fmt.Sprintf(format, args...)}
	}
	switch {
	case m.Epoch != e:
		return bad("manifest of epoch %d", m.Epoch)
	case d.name != "" && m.Level != d.name:
		return bad("manifest of level %s in a directory of level %s", m.Level, d.name)
	case d.of != nil && m.Job != d.of.Job:
		return bad("manifest of job %q in a directory of job %q", m.Job, d.of.Job)
	case d.of != nil && m.Size != d.of.Size:
		return bad("manifest of %d ranks in a directory of %d", m.Size, d.of.Size)
	}
	return m, nil
}

// hasManifest says whether an epoch is committed here, readable or not.
func (d *levelDir) hasManifest(e Epoch) (bool, error) {
	_, err := d.fs.Stat(join(d.epochPath(e), format.ManifestName))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// publish gives a complete, synced temporary file its final name for good. If
// that cannot be made durable, no name is left.
func (d *levelDir) publish(e Epoch, temp, final string) error {
	dir := d.epochPath(e)
	if err := d.fs.Rename(join(dir, temp), join(dir, final)); err != nil {
		return err
	}
	if err := d.fs.SyncDir(dir); err != nil {
		return errors.Join(err, removeIfThere(d.fs, join(dir, final)))
	}
	return nil
}

// clearTemps removes what an earlier run of this rank left unfinished.
func (d *levelDir) clearTemps(rank int) error {
	if err := d.clearTempsIn(d.path, rank); err != nil {
		return err
	}
	epochs, err := d.epochs()
	if err != nil {
		return err
	}
	for _, e := range epochs {
		if err := d.clearTempsIn(d.epochPath(e), rank); err != nil {
			return err
		}
	}
	return nil
}

func (d *levelDir) clearTempsIn(dir string, rank int) error {
	return d.clear(dir, func(name string) bool { return isTempOf(name, rank) })
}

// clearTempsOf removes what was to become a file.
func (d *levelDir) clearTempsOf(dir, final string) error {
	return d.clear(dir, func(name string) bool {
		return strings.HasPrefix(name, final+".r") && strings.HasSuffix(name, format.TempSuffix)
	})
}

// clear removes the files that match.
func (d *levelDir) clear(dir string, match func(name string) bool) error {
	list, err := d.fs.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // pruned by another rank meanwhile
	}
	if err != nil {
		return d.unusable(err)
	}
	for _, entry := range list {
		if entry.Dir || !match(entry.Name) {
			continue
		}
		if err := removeIfThere(d.fs, join(dir, entry.Name)); err != nil {
			return d.unusable(err)
		}
	}
	return nil
}

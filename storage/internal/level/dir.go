package level

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

// Dir is the directory of a level:
//
//	<dir>/holdfast.job                      job marker
//	<dir>/epoch-0000000007/rank-000003.shard
//	<dir>/epoch-0000000007/manifest         commits the epoch
type Dir struct {
	FS    vfs.FS
	Name  string // of the level; empty: not known
	Path  string
	Of    *format.Marker // whose it is, where manifests of others are damage; nil: the caller looks
	Owner int            // rank whose store the directory belongs to; it clears away temporary files
}

// Unusable wraps what the system said about the directory with the remedy.
func (d *Dir) Unusable(err error) error {
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
	case errors.Is(err, format.ErrCorrupt):
		remedy = "remove " + format.MarkerName + " if this is the right directory"
	}
	return &DirError{Level: d.Name, Dir: d.Path, Remedy: remedy, Err: err}
}

// unusableIf is Unusable for an error, and nil for none.
func (d *Dir) unusableIf(err error) error {
	if err == nil {
		return nil
	}
	return d.Unusable(err)
}

// Prepare tries whether the directory is there and can be written. create
// makes it if only its last element is missing.
func (d *Dir) Prepare(rank int, create bool) error {
	if create {
		if err := d.makeDir(d.Path, filepath.Dir(d.Path)); err != nil {
			return d.Unusable(err)
		}
	}
	if err := d.FS.CheckDir(d.Path, true); err != nil {
		return d.Unusable(err)
	}
	probe := filepath.Join(d.Path, TempName("probe", rank))
	if err := WriteFile(d.FS, probe, nil); err != nil {
		return d.Unusable(err)
	}
	if err := d.FS.Remove(probe); err != nil {
		return d.Unusable(err)
	}
	return nil
}

// makeDir makes a directory that other ranks may be making too, and makes its
// name durable in parent. Who finds it made syncs as well: its maker may not
// have got that far.
func (d *Dir) makeDir(path, parent string) error {
	err := d.FS.Mkdir(path)
	if errors.Is(err, fs.ErrExist) {
		err = d.FS.CheckDir(path, path == d.Path)
	}
	if err != nil {
		return err
	}
	return d.FS.SyncDir(parent)
}

// EpochPath is the directory of an epoch.
func (d *Dir) EpochPath(e format.Epoch) string { return filepath.Join(d.Path, format.EpochName(e)) }

// EpochFile is the path of a file of an epoch. It fails where the epoch's
// directory is not one that this user alone can have filled.
func (d *Dir) EpochFile(e format.Epoch, name string) (string, error) {
	dir := d.EpochPath(e)
	if err := d.FS.CheckDir(dir, false); err != nil {
		return "", err
	}
	return filepath.Join(dir, name), nil
}

// Open opens a file of an epoch for reading and says where it is.
func (d *Dir) Open(e format.Epoch, name string) (f vfs.File, file string, err error) {
	if file, err = d.EpochFile(e, name); err != nil {
		return nil, "", err
	}
	f, err = d.FS.Open(file)
	return f, file, err
}

// Has says whether an epoch has a file.
func (d *Dir) Has(e format.Epoch, name string) bool {
	_, err := d.FS.Stat(filepath.Join(d.EpochPath(e), name))
	return err == nil
}

// Files lists the files of an epoch.
func (d *Dir) Files(e format.Epoch) ([]vfs.Entry, error) { return d.FS.ReadDir(d.EpochPath(e)) }

// SyncEpoch makes the names of an epoch's files durable.
func (d *Dir) SyncEpoch(e format.Epoch) error { return d.FS.SyncDir(d.EpochPath(e)) }

// Edit opens a file in the making that several ranks write to.
func (d *Dir) Edit(e format.Epoch, temp string) (vfs.File, error) {
	return d.FS.Edit(filepath.Join(d.EpochPath(e), temp), true)
}

// Join is Edit for who may be the first: it makes the file.
func (d *Dir) Join(e format.Epoch, temp string) (vfs.File, error) {
	f, err := d.Edit(e, temp)
	if !errors.Is(err, fs.ErrNotExist) {
		return f, err
	}
	f, err = d.FS.Create(filepath.Join(d.EpochPath(e), temp), true)
	if errors.Is(err, fs.ErrExist) {
		return d.Edit(e, temp)
	}
	return f, err
}

// RemoveFile removes a file of an epoch that may be gone.
func (d *Dir) RemoveFile(e format.Epoch, name string) error {
	return removeIfThere(d.FS, filepath.Join(d.EpochPath(e), name))
}

// EnsureEpoch makes the directory of an epoch.
func (d *Dir) EnsureEpoch(e format.Epoch) error { return d.makeDir(d.EpochPath(e), d.Path) }

// Epochs lists the epoch directories, newest first, committed or not.
func (d *Dir) Epochs() ([]format.Epoch, error) {
	list, err := d.FS.ReadDir(d.Path)
	if err != nil {
		return nil, d.Unusable(err)
	}
	var out []format.Epoch
	for _, entry := range list {
		if e, ok := format.ParseEpochName(entry.Name); ok && entry.Dir {
			out = append(out, e)
		}
	}
	slices.Sort(out)
	slices.Reverse(out)
	return out, nil
}

// ReadManifest reads an epoch's manifest. An absent one is ErrNotCommitted.
func (d *Dir) ReadManifest(e format.Epoch) (*format.Manifest, error) {
	file, err := d.EpochFile(e, format.ManifestName)
	var b []byte
	if err == nil {
		b, err = readRecord(d.FS, file)
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
	bad := func(text string, args ...any) (*format.Manifest, error) {
		return nil, &format.CorruptError{File: file, Len: int64(len(b)), Reason: fmt.Sprintf(text, args...)}
	}
	switch {
	case m.Epoch != e:
		return bad("manifest of epoch %d", m.Epoch)
	case d.Name != "" && m.Level != d.Name:
		return bad("manifest of level %s in a directory of level %s", m.Level, d.Name)
	case d.Of != nil && m.Job != d.Of.Job:
		return bad("manifest of job %q in a directory of job %q", m.Job, d.Of.Job)
	case d.Of != nil && m.Size != d.Of.Size:
		return bad("manifest of %d ranks in a directory of %d", m.Size, d.Of.Size)
	}
	return m, nil
}

// HasManifest says whether an epoch is committed here, readable or not.
func (d *Dir) HasManifest(e format.Epoch) (bool, error) {
	_, err := d.FS.Stat(filepath.Join(d.EpochPath(e), format.ManifestName))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// RefuseCommitted is ErrCommitted for an epoch that is committed here.
func (d *Dir) RefuseCommitted(e format.Epoch) error {
	have, err := d.HasManifest(e)
	if have && err == nil {
		err = ErrCommitted
	}
	return err
}

// Shared says whether all ranks see one directory of the level.
func (d *Dir) Shared() bool { return d.Name == format.LevelGlobal }

// Lent says whether the level's files are written by other ranks than the one whose directory it is.
func (d *Dir) Lent() bool { return d.Name == format.LevelPartner || d.Name == format.LevelParity }

// Publish gives a complete, synced temporary file its final name for good. If
// that cannot be made durable, no name is left.
func (d *Dir) Publish(e format.Epoch, temp, final string) error {
	dir := d.EpochPath(e)
	if err := d.FS.Rename(filepath.Join(dir, temp), filepath.Join(dir, final)); err != nil {
		return err
	}
	if err := d.FS.SyncDir(dir); err != nil {
		return errors.Join(err, removeIfThere(d.FS, filepath.Join(dir, final)))
	}
	return nil
}

// ClearTemps removes what an earlier run of this rank left unfinished.
func (d *Dir) ClearTemps(rank int) error {
	if err := d.clearTempsIn(d.Path, rank); err != nil {
		return err
	}
	epochs, err := d.Epochs()
	if err != nil {
		return err
	}
	for _, e := range epochs {
		if err := d.clearTempsIn(d.EpochPath(e), rank); err != nil {
			return err
		}
	}
	return nil
}

func (d *Dir) clearTempsIn(dir string, rank int) error {
	return d.clear(dir, func(name string) bool { return isTempOf(name, rank) })
}

// clearTempsOf removes what was to become a file.
func (d *Dir) clearTempsOf(dir, final string) error {
	return d.clear(dir, func(name string) bool {
		return strings.HasPrefix(name, final+".r") && strings.HasSuffix(name, format.TempSuffix)
	})
}

// clear removes the files that match.
func (d *Dir) clear(dir string, match func(name string) bool) error {
	list, err := d.FS.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // pruned by another rank meanwhile
	}
	if err != nil {
		return d.Unusable(err)
	}
	for _, entry := range list {
		if entry.Dir || !match(entry.Name) {
			continue
		}
		if err := removeIfThere(d.FS, filepath.Join(dir, entry.Name)); err != nil {
			return d.Unusable(err)
		}
	}
	return nil
}

// RanksHere lists the ranks whose shards lie in this directory.
func (d *Dir) RanksHere(m *format.Manifest) ([]int, error) {
	names, err := d.NamesOf(m.Epoch)
	var out []int
	for r := range m.Shards {
		if names[m.Shards[r].FileName()] {
			out = append(out, r)
		}
	}
	return out, err
}

// NamesOf lists what lies in an epoch's directory; nothing if it is not there.
func (d *Dir) NamesOf(e format.Epoch) (map[string]bool, error) {
	list, err := d.Files(e)
	if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ENOTDIR) {
		return nil, err
	}
	names := map[string]bool{}
	for _, f := range list {
		names[f.Name] = true
	}
	return names, nil
}

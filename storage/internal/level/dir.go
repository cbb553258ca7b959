package level

import (
	"errors"
	"io/fs"
	"path/filepath"
	"slices"
	"sync"
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
	place
	fs     vfs.FS
	remote func() bool // other machines may see it
	cached manifests   // where all ranks have one directory, and the manifests are the largest
	// known has the epochs whose directories this process has made or looked at: no other user can have put others in
	// their place, since no other may write to the directory that they are in. Readers of data there look again.
	known sync.Map
	run   string // that has the directory, which all ranks share; may be empty
}

// NewDir returns the directory of a level at path, which belongs to the store of a rank.
func NewDir(fsys vfs.FS, name, path string, owner int) *Dir {
	return newDir(fsys, place{name: name, path: path, owner: owner})
}

func newDir(fsys vfs.FS, p place) *Dir {
	return &Dir{place: p, fs: fsys, remote: sync.OnceValue(func() bool {
		r, ok := fsys.(interface{ Remote(dir string) bool })
		return ok && r.Remote(p.path)
	})}
}

// Unusable wraps the system's error about the directory with the remedy.
func (d *Dir) Unusable(err error) error {
	remedy := "check that the file system is mounted and healthy"
	var unsafe *vfs.UnsafeError
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
	case errors.As(err, &unsafe) && !unsafe.Foreign:
		remedy = "remove it, or use another directory"
	case errors.Is(err, vfs.ErrUnsafe):
		remedy = "use a directory of your own that nobody else can write to"
	case errors.Is(err, format.ErrCorrupt):
		remedy = "remove " + format.MarkerName + " if this is the right directory"
	}
	return &DirError{Level: d.name, Dir: d.path, Remedy: remedy, Err: err}
}

// Prepare tries whether the directory is there and can be written.
func (d *Dir) Prepare(create bool) error {
	if create {
		_, err := d.findDir(d.path)
		if err == nil { // even if it existed: its maker may not have synced it yet
			err = d.fs.SyncDir(filepath.Dir(d.path))
		}
		if err != nil {
			return d.Unusable(err)
		}
	}
	err := d.Trusted()
	if err == nil {
		probe := filepath.Join(d.path, TempName("probe", d.owner))
		if err = WriteFile(d.fs, probe, nil); err == nil {
			err = d.fs.Remove(probe)
		}
	}
	return unusableIf(d, err)
}

// Trusted returns an error if the contents of the directory must not be believed.
func (d *Dir) Trusted() error { return d.fs.CheckDir(d.path, true) }

// findDir makes a directory that other ranks may be making too. fresh reports that it did not exist.
func (d *Dir) findDir(path string) (fresh bool, err error) {
	err = d.fs.Mkdir(path)
	if errors.Is(err, fs.ErrExist) {
		return false, d.fs.CheckDir(path, path == d.path)
	}
	return err == nil, err
}

func (d *Dir) epochPath(e format.Epoch) string { return filepath.Join(d.path, format.EpochName(e)) }

// epochFile returns the path of a file of an epoch. It fails unless only this user can have filled the epoch's
// directory.
func (d *Dir) epochFile(e format.Epoch, name string) (string, error) {
	dir := d.epochPath(e)
	if err := d.fs.CheckDir(dir, false); err != nil {
		return "", err
	}
	d.known.Store(e, true)
	return filepath.Join(dir, name), nil
}

// Open opens a file of an epoch for reading and returns its place.
func (d *Dir) Open(e format.Epoch, name string) (f vfs.File, file string, err error) {
	if file, err = d.epochFile(e, name); err != nil {
		return nil, "", err
	}
	f, err = d.fs.Open(file)
	return f, file, err
}

// Stat describes a file of an epoch, or with no name its directory.
func (d *Dir) Stat(e format.Epoch, name string) (vfs.Entry, error) {
	return d.fs.Stat(filepath.Join(d.epochPath(e), name))
}

// Files lists the files of an epoch.
func (d *Dir) Files(e format.Epoch) ([]vfs.Entry, error) { return d.fs.ReadDir(d.epochPath(e)) }

// SyncEpoch makes the names of an epoch's files durable.
func (d *Dir) SyncEpoch(e format.Epoch) error { return d.fs.SyncDir(d.epochPath(e)) }

// findEpoch makes the directory of an epoch if it is not there. Its name need not be durable.
func (d *Dir) findEpoch(e format.Epoch) (fresh bool, err error) {
	if fresh, err = d.findDir(d.epochPath(e)); err != nil {
		return false, d.Unusable(err)
	}
	d.known.Store(e, true)
	return fresh, nil
}

// ensureEpoch makes the directory of an epoch durable, and also the names of its files if ranks on other nodes have
// made some.
func (d *Dir) ensureEpoch(e format.Epoch) error {
	if _, known := d.known.Load(e); !known {
		if _, err := d.findEpoch(e); err != nil {
			return err
		}
	}
	err := d.fs.SyncDir(d.path)
	if err == nil && d.Traits().Shared {
		err = d.fs.SyncDir(d.epochPath(e))
	}
	return unusableIf(d, err)
}

// Epochs lists the epoch directories, newest first, committed or not.
func (d *Dir) Epochs() ([]format.Epoch, error) {
	list, err := d.fs.ReadDir(d.path)
	if err != nil {
		return nil, d.Unusable(err)
	}
	var out []format.Epoch
	for _, entry := range list {
		if e, ok := format.ParseEpochName(entry.Name); ok && entry.Dir {
			out = append(out, e)
		}
	}
	return format.NewestFirst(slices.Values(out)), nil
}

// ReadManifest reads an epoch's manifest. An absent one is ErrNotCommitted. The caller must not change it.
func (d *Dir) ReadManifest(e format.Epoch) (*format.Manifest, error) {
	file, err := d.epochFile(e, format.ManifestName)
	switch {
	case err != nil:
		return nil, absent(err)
	case d.Traits().Shared:
		return d.cached.read(d, file, e)
	}
	return d.readManifest(file, e)
}

// ReadFresh is ReadManifest past the cache, and without another look at the owner of the epoch's directory.
func ReadFresh(l Level, e format.Epoch) (*format.Manifest, error) {
	d, ok := l.(*Dir)
	if !ok {
		return l.ReadManifest(e)
	}
	if _, known := d.known.Load(e); !known {
		if _, err := d.epochFile(e, format.ManifestName); err != nil {
			return nil, absent(err)
		}
	}
	return d.readManifest(filepath.Join(d.epochPath(e), format.ManifestName), e)
}

func (d *Dir) readManifest(file string, e format.Epoch) (*format.Manifest, error) {
	b, err := readRecord(d.fs, file)
	if err != nil {
		return nil, absent(err)
	}
	return d.manifest(file, b, e)
}

// absent makes that a manifest is not there ErrNotCommitted.
func absent(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return ErrNotCommitted
	}
	return err
}

// ClearTemps removes files that an earlier run of the owner left unfinished.
func (d *Dir) ClearTemps() error {
	if err := d.clear(d.path, d.ownTemp); err != nil {
		return err
	}
	epochs, err := d.Epochs()
	if err != nil {
		return err
	}
	for _, e := range epochs {
		if err := d.clear(d.epochPath(e), d.ownTemp); err != nil {
			return err
		}
	}
	return nil
}

// clear removes the files that match.
func (d *Dir) clear(dir string, match func(name string) bool) error {
	list, err := d.fs.ReadDir(dir)
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
		if err := removeIfThere(d.fs, filepath.Join(dir, entry.Name)); err != nil {
			return d.Unusable(err)
		}
	}
	return nil
}

// mostManifests is how many manifests are cached. That of 100,000 ranks takes some 20 MB.
const mostManifests = 6

// manifests caches the manifests that were read last: a restart reads the same few repeatedly, and they do not change.
// Length and time of the file show whether the cached one is current. They do not show that the file has rotted:
// decisions on removal use a Look.
type manifests struct {
	mu   sync.Mutex
	list []cachedManifest // guarded by mu: the last used one is the last
}

type cachedManifest struct {
	m     *format.Manifest
	entry vfs.Entry // of the file, before it was read
}

// read reads the manifest of an epoch, which is in file.
func (k *manifests) read(d *Dir, file string, e format.Epoch) (*format.Manifest, error) {
	entry, err := d.fs.Stat(file)
	if err != nil {
		return nil, absent(err)
	}
	if m := k.use(e, entry, nil); m != nil {
		return d.belongs(file, m, entry.Size, e)
	}
	m, err := d.readManifest(file, e)
	if err == nil {
		k.use(e, entry, m)
	}
	return m, err
}

// use returns the manifest used last: m, which was read from the file that entry describes, or without m the cached
// one, or nil.
func (k *manifests) use(e format.Epoch, entry vfs.Entry, m *format.Manifest) *format.Manifest {
	k.mu.Lock()
	defer k.mu.Unlock()
	i := slices.IndexFunc(k.list, func(x cachedManifest) bool { return x.m.Epoch == e })
	if m == nil && i >= 0 && k.list[i].entry == entry {
		m = k.list[i].m
	}
	if m == nil {
		return nil
	}
	if i < 0 && len(k.list) == mostManifests {
		i = 0
	}
	if i >= 0 {
		k.list = slices.Delete(k.list, i, i+1)
	}
	k.list = append(k.list, cachedManifest{m, entry})
	return m
}

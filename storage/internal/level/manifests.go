package level

import (
	"slices"
	"sync"

	"github.com/holdfast-hpc/holdfast/internal/vfs"
	"github.com/holdfast-hpc/holdfast/storage/internal/format"
)

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

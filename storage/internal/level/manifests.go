package level

import (
	"errors"
	"io/fs"
	"slices"
	"sync"

	"github.com/holdfast-hpc/holdfast/internal/vfs"
	"github.com/holdfast-hpc/holdfast/storage/internal/format"
)

// mostManifests is how many manifests are kept. That of 100,000 ranks takes some 20 MB.
const mostManifests = 6

// manifests keeps the manifests that were read last: a restart asks for the same few again and again, and they do not
// change. A look at length and time of the file says whether what was read is still there. It does not show that the
// file has rotted: who decides what is removed takes a Look.
type manifests struct {
	mu   sync.Mutex
	list []keptManifest // guarded by mu: the last used one is the last
}

type keptManifest struct {
	m     *format.Manifest
	entry vfs.Entry // of the file, before it was read
}

// read reads the manifest of an epoch, which is in file.
func (k *manifests) read(d *Dir, file string, e format.Epoch) (*format.Manifest, error) {
	entry, err := d.fs.Stat(file)
	if errors.Is(err, fs.ErrNotExist) {
		k.drop(e)
		return nil, ErrNotCommitted
	}
	if err != nil {
		return nil, err
	}
	if m := k.find(e, entry); m != nil {
		return d.belongs(file, m, entry.Size, e)
	}
	m, err := d.readManifest(file, e)
	if err == nil {
		k.keep(keptManifest{m, entry})
	}
	return m, err
}

// find returns a manifest that was read from the file as it is now.
func (k *manifests) find(e format.Epoch, entry vfs.Entry) *format.Manifest {
	k.mu.Lock()
	defer k.mu.Unlock()
	i := k.index(e)
	if i < 0 || k.list[i].entry != entry {
		return nil
	}
	x := k.list[i]
	k.list = append(slices.Delete(k.list, i, i+1), x)
	return x.m
}

func (k *manifests) keep(x keptManifest) {
	k.drop(x.m.Epoch)
	k.mu.Lock()
	defer k.mu.Unlock()
	k.list = append(k.list, x)
	if len(k.list) > mostManifests {
		k.list = slices.Delete(k.list, 0, 1)
	}
}

func (k *manifests) drop(e format.Epoch) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if i := k.index(e); i >= 0 {
		k.list = slices.Delete(k.list, i, i+1)
	}
}

func (k *manifests) index(e format.Epoch) int {
	return slices.IndexFunc(k.list, func(x keptManifest) bool { return x.m.Epoch == e })
}

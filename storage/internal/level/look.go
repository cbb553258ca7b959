package level

import (
	"errors"
	"io/fs"
	"slices"

	"github.com/holdfast-hpc/holdfast/internal/vfs"
	"github.com/holdfast-hpc/holdfast/storage/internal/format"
)

// Look is one look at the epochs of a level, for a decision on what counts there and what goes: the list is taken once,
// and each manifest read once and from the file, since one that has rotted must not count. It belongs to one goroutine,
// and to the moment: what others change after it began is not seen.
type Look struct {
	Level
	epochs []format.Epoch
	read   map[format.Epoch]readManifest
}

// readManifest is what came of reading one.
type readManifest struct {
	m   *format.Manifest
	err error
}

// NewLook begins one.
func NewLook(l Level) (*Look, error) {
	epochs, err := l.Epochs()
	if err != nil {
		return nil, err
	}
	return &Look{Level: l, epochs: epochs, read: map[format.Epoch]readManifest{}}, nil
}

// Epochs lists those that were there, newest first, less those that RemoveEpoch has removed.
func (k *Look) Epochs() ([]format.Epoch, error) { return slices.Clone(k.epochs), nil }

// ReadManifest reads the manifest of an epoch, the first time.
func (k *Look) ReadManifest(e format.Epoch) (*format.Manifest, error) {
	x, found := k.read[e]
	if !found {
		if l, keeps := k.Level.(interface {
			readAnew(e format.Epoch) (*format.Manifest, error)
		}); keeps {
			x.m, x.err = l.readAnew(e)
		} else {
			x.m, x.err = k.Level.ReadManifest(e)
		}
		k.read[e] = x
	}
	return x.m, x.err
}

// Stat knows without asking whether there is a manifest that was read.
func (k *Look) Stat(e format.Epoch, name string) (vfs.Entry, error) {
	x, found := k.read[e]
	switch {
	case !found || name != format.ManifestName:
		return k.Level.Stat(e, name)
	case errors.Is(x.err, ErrNotCommitted):
		return vfs.Entry{}, fs.ErrNotExist
	}
	return vfs.Entry{Name: name}, nil
}

// RemoveEpoch removes an epoch, which the look then no longer has.
func (k *Look) RemoveEpoch(e format.Epoch) (left []Leftover, err error) {
	left, err = k.Level.RemoveEpoch(e)
	if err == nil {
		k.epochs = slices.DeleteFunc(k.epochs, func(x format.Epoch) bool { return x == e })
		k.read[e] = readManifest{err: ErrNotCommitted}
	}
	return left, err
}

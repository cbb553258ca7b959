package catalog

import (
	"errors"
	"io/fs"
	"slices"

	"github.com/holdfast-hpc/holdfast/internal/vfs"
	"github.com/holdfast-hpc/holdfast/storage/internal/format"
	"github.com/holdfast-hpc/holdfast/storage/internal/level"
)

// Look is one look at the epochs of a level, for a decision which of them count and which are removed: the list is read
// once, and each manifest once and from the file, since a rotten one must not count. It belongs to one goroutine, and
// to the moment: it does not show later changes by others.
type Look struct {
	level.Level
	epochs []format.Epoch
	read   map[format.Epoch]readManifest
}

// readManifest is the outcome of reading a manifest.
type readManifest struct {
	m   *format.Manifest
	err error
}

// NewLook begins one.
func NewLook(l level.Level) (*Look, error) {
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
		x.m, x.err = level.ReadFresh(k.Level, e)
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
	case errors.Is(x.err, level.ErrNotCommitted):
		return vfs.Entry{}, fs.ErrNotExist
	}
	return vfs.Entry{Name: name}, nil
}

// RemoveEpoch removes an epoch, which the look then no longer has.
func (k *Look) RemoveEpoch(e format.Epoch) (left []level.Leftover, err error) {
	left, err = k.Level.RemoveEpoch(e)
	if err == nil {
		k.epochs = slices.DeleteFunc(k.epochs, func(x format.Epoch) bool { return x == e })
		k.read[e] = readManifest{err: level.ErrNotCommitted}
	}
	return left, err
}

// Inventory lists the committed epochs of a level, for its ledger, oldest first.
func Inventory(l level.Epochs) ([]format.LedgerEpoch, error) {
	epochs, err := l.Epochs()
	if err != nil {
		return nil, err
	}
	var out []format.LedgerEpoch
	for _, e := range slices.Backward(epochs) {
		p := format.LedgerEpoch{Epoch: e}
		have, err := level.HasManifest(l, e)
		if err != nil || !have {
			continue
		}
		if _, merr := l.ReadManifest(e); level.OfOtherRun(merr) {
			continue
		}
		if !l.Traits().Shared { // there the manifest names all that there is
			list, err := l.Files(e)
			if err != nil {
				continue // pruned by another rank meanwhile
			}
			for _, f := range list {
				if _, _, ok := format.ParseName(f.Name); ok {
					p.Files = append(p.Files, f.Name)
				}
			}
		}
		out = append(out, p)
	}
	return out, nil
}

// keepLook keeps a look for the decision that it was taken for: the Prune that follows.
func (l *Level) keepLook(look *Look) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.look = look
}

// DropLook makes the next Prune look again: an epoch is about to be committed.
func (l *Level) DropLook() { l.keepLook(nil) }

// takeLook returns the look that was kept, once, or a new one.
func (l *Level) takeLook() (*Look, error) {
	l.mu.Lock()
	look := l.look
	l.look = nil
	l.mu.Unlock()
	if look != nil {
		return look, nil
	}
	return NewLook(l.Level)
}

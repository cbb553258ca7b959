package storage

import (
	"context"
	"errors"
	"io/fs"
	"slices"
)

// Prune removes from every level what its keep rules do not hold, and returns
// the epochs that went from any level. It keeps at each level
//
//   - the newest Keep committed epochs, and every KeepEvery-th;
//   - of those newer than the newest committed at the last level, which still
//     has to get them, the newest 8: a global file system that is down must not
//     fill the local disks;
//   - all that hold chunks of an epoch that is kept;
//   - everything newer than the newest committed epoch: it may be in the making.
//
// Epochs without a manifest that are older than that are garbage and go too.
// Ranks that share a directory may all call it. Flushes of older epochs to a
// level must have ended or been given up once a newer one is committed there.
func (s *Store) Prune(ctx context.Context) (removed []Epoch, err error) {
	leave, err := s.enter()
	if err != nil {
		return nil, err
	}
	defer leave()
	gone := map[Epoch]bool{}
	widest, err := s.levels[len(s.levels)-1].newestReadable()
	if err != nil {
		return nil, err
	}
	for _, l := range s.levels {
		dead, err := l.prunable(widest)
		if err != nil {
			return sortedEpochs(gone), err
		}
		for _, e := range dead {
			if err := ctx.Err(); err != nil {
				return sortedEpochs(gone), err
			}
			if err := l.removeEpoch(e); err != nil {
				return sortedEpochs(gone), s.fault("prune", e, l.name, err)
			}
			gone[e] = true
			s.log.Info("epoch removed", "epoch", e, "level", l.name, "keep", l.cfg.Keep)
		}
	}
	return sortedEpochs(gone), nil
}

// newestCommitted is 0 when nothing is committed.
func (d *levelDir) newestCommitted() (Epoch, error) {
	epochs, err := d.epochs()
	if err != nil {
		return 0, err
	}
	for _, e := range epochs {
		have, err := d.hasManifest(e)
		if have || err != nil {
			return e, err
		}
	}
	return 0, nil
}

// newestReadable is newestCommitted but for epochs whose manifests cannot be
// read: what was to be copied there is not there.
func (d *levelDir) newestReadable() (Epoch, error) {
	epochs, err := d.epochs()
	if err != nil {
		return 0, err
	}
	for _, e := range epochs {
		if _, err := d.readManifest(e); err == nil {
			return e, nil
		}
	}
	return 0, nil
}

// prunable lists the epochs that no rule keeps. widest is the newest epoch
// committed at the last level.
func (l *level) prunable(widest Epoch) ([]Epoch, error) {
	epochs, err := l.epochs()
	if err != nil {
		return nil, err
	}
	var committed, garbage []Epoch
	for _, e := range epochs {
		have, err := l.hasManifest(e)
		switch {
		case have || err != nil: // a manifest that cannot be looked at is one
			committed = append(committed, e)
		case len(committed) > 0 && !l.putting(e):
			garbage = append(garbage, e)
		}
	}
	kept, err := l.keptOf(committed, widest)
	if err != nil {
		return nil, err
	}
	dead := slices.DeleteFunc(committed, func(e Epoch) bool { return kept[e] })
	return append(dead, garbage...), nil
}

// putting says whether this rank has an uncommitted shard of e.
func (l *level) putting(e Epoch) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.puts[e]) > 0
}

// maxPending is how many epochs wait at a level for the last one.
const maxPending = 8

// keptOf applies the keep rules to the committed epochs, newest first.
func (l *level) keptOf(committed []Epoch, widest Epoch) (map[Epoch]bool, error) {
	kept := map[Epoch]bool{}
	for i, e := range committed {
		every := Epoch(l.cfg.KeepEvery)
		if i < l.cfg.Keep || e > widest && i < maxPending || every > 0 && e%every == 0 {
			kept[e] = true
		}
	}
	for _, e := range sortedEpochs(kept) {
		m, err := l.readManifest(e)
		if errors.Is(err, ErrNotCommitted) {
			continue // removed by another rank meanwhile
		}
		if err != nil {
			// What it refers to cannot be known: keep everything.
			for _, e := range committed {
				kept[e] = true
			}
			return kept, nil
		}
		for _, o := range m.origins() {
			kept[o] = true
		}
	}
	return kept, nil
}

// removeEpoch removes the manifest for good before anything it names, so that
// a crash leaves garbage and never half an epoch.
func (d *levelDir) removeEpoch(e Epoch) error {
	dir := d.epochPath(e)
	if err := removeIfThere(d.fs, join(dir, manifestName)); err != nil {
		return err
	}
	if err := ignoreGone(d.fs.SyncDir(dir)); err != nil {
		return err
	}
	list, err := d.fs.ReadDir(dir)
	if err != nil {
		return ignoreGone(err)
	}
	for _, f := range list {
		if err := removeIfThere(d.fs, join(dir, f.Name)); err != nil {
			return err
		}
	}
	return removeIfThere(d.fs, dir)
}

func ignoreGone(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

package catalog

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"

	"github.com/holdfast-hpc/holdfast/internal/vfs"
	"github.com/holdfast-hpc/holdfast/storage/internal/format"
	"github.com/holdfast-hpc/holdfast/storage/internal/level"
)

// NewestReadable returns the newest epoch whose manifest can be read, or 0. Epochs of other runs do not count.
func NewestReadable(l level.Epochs) (format.Epoch, error) {
	epochs, err := l.Epochs()
	if err != nil {
		return 0, err
	}
	for _, e := range epochs {
		if _, err := l.ReadManifest(e); err == nil {
			return e, nil
		}
	}
	return 0, nil
}

// KeepRules are the rules of one look at a level for epochs to remove.
type KeepRules struct {
	Keep, Every int
	Widest      format.Epoch              // newest epoch committed at the last level
	Counts      func(e format.Epoch) bool // all ranks have it
	Failed      func(e format.Epoch) bool // a vote gave it up
	InUse       func(e format.Epoch) bool // it is in use
	Making      func(name string) bool    // a file that will get its final name
	DryRun      bool                      // nothing is removed
	// Stays is called with the reason for which an epoch is kept that Keep does not cover; may be nil.
	Stays func(e format.Epoch, why string)

	pins map[format.Epoch]level.Pin // that are to stay
}

// maxPending is how many epochs are kept at a level for the last one, which does not have them.
const maxPending = 8

// Prune removes the epochs that no rule keeps. After an error, which failed describes, it goes on with the next epoch;
// left lists files that it has not removed, and oddities of epochs that are kept.
func (k *Look) Prune(ctx context.Context, r *KeepRules, failed func(e format.Epoch, err error) error) (
	removed []format.Epoch, left []level.Leftover, err error) {
	if r.pins, err = level.PinsAt(k); err != nil {
		return nil, nil, err // the epochs to keep are not known
	}
	dead, left := k.prunable(r)
	var problems []error
	announced := func() error { return nil }
	if !r.DryRun { // before the pins are read again
		if announced, err = level.Announce(k, dead); err != nil {
			return nil, left, errors.Join(append(problems, err)...)
		}
	}
	for _, e := range dead {
		if ctx.Err() != nil {
			problems = append(problems, ctx.Err())
			break
		}
		if same, err := level.SamePins(k, r.pins); !same {
			problems = append(problems, err)
			break // the next call decides again
		}
		if !r.DryRun {
			more, err := k.RemoveEpoch(e)
			left = append(left, more...)
			if err != nil {
				problems = append(problems, failed(e, err))
				continue
			}
		}
		removed = append(removed, e)
	}
	return removed, left, errors.Join(append(problems, announced())...)
}

// prunable lists the epochs that no rule keeps, and oddities of the others.
func (k *Look) prunable(r *KeepRules) (dead []format.Epoch, left []level.Leftover) {
	var committed, garbage []format.Epoch
	for _, e := range k.epochs {
		have, err := level.HasManifest(k, e)
		switch {
		case have || err != nil: // a manifest that cannot be looked at is one
			committed = append(committed, e)
		case len(committed) > 0:
			garbage = append(garbage, e)
		}
	}
	kept, left := keptOf(k, committed, r)
	k.explain(r, committed, kept)
	for _, e := range committed {
		if !kept[e] {
			dead = append(dead, e)
		}
	}
	for _, e := range garbage {
		if !kept[e] && !r.InUse(e) && !hasTemp(k, e, r.Making) {
			dead = append(dead, e)
		}
	}
	return dead, left
}

// explain calls r.Stays with the reasons for which committed epochs are kept that are older than the newest Keep.
func (k *Look) explain(r *KeepRules, committed []format.Epoch, kept map[format.Epoch]bool) {
	if r.Stays == nil {
		return
	}
	by := map[format.Epoch]format.Epoch{} // the newest that refers to an epoch
	for _, e := range committed {
		m, err := k.ReadManifest(e)
		if !kept[e] || level.OfOtherRun(err) {
			continue
		}
		if older := slices.Index(k.epochs, e) >= r.Keep; older && r.pins[e].Epoch == e {
			r.Stays(e, "it is kept (holdfast keep)")
		} else if older && by[e] != 0 {
			r.Stays(e, fmt.Sprintf("epoch %d refers to it", by[e]))
		}
		if err != nil {
			continue
		}
		for _, o := range m.Origins() {
			by[o] = cmp.Or(by[o], e)
		}
	}
}

// hasTemp reports whether a file of the epoch is in the making. An epoch that
// cannot be looked at has one.
func hasTemp(l level.Epochs, e format.Epoch, making func(name string) bool) bool {
	files, err := l.Files(e)
	if err != nil {
		return !errors.Is(err, fs.ErrNotExist)
	}
	return slices.ContainsFunc(files, func(f vfs.Entry) bool { return making(f.Name) })
}

// keptOf applies the keep rules to the committed epochs, newest first.
func keptOf(l level.Epochs, committed []format.Epoch, r *KeepRules) (kept map[format.Epoch]bool,
	left []level.Leftover) {
	kept = map[format.Epoch]bool{}
	counted, extra := 0, 0 // epochs that count; others that are kept and older than one that does
	failed := 0            // given up and newer than all that count
	unknown := false       // a later release has written an epoch that is kept; it may refer to any older one
	for _, e := range committed {
		if unknown {
			kept[e] = true
			continue
		}
		var other *level.OtherRunError
		_, err := l.ReadManifest(e)
		due := counted < r.Keep || e > r.Widest && counted < maxPending
		switch {
		case errors.As(err, &other) && !other.Replaced(): // neither of this run nor of the one that it has replaced:
			// only a person may remove it
		case r.InUse(e) || r.pins[e].Epoch == e || r.Every > 0 && e%format.Epoch(r.Every) == 0 && !r.Failed(e):
		case !due, r.Failed(e) && counted > 0:
			continue
		case r.Failed(e):
			// A restart may find all of its shards; but votes may go on failing.
			if failed++; failed > r.Keep {
				continue
			}
		case counted > 0 && !r.Counts(e):
			// It replaces an epoch that counts, if there is none.
			if extra++; counted+extra > r.Keep {
				continue
			}
		}
		origins, err := originsOf(l, e)
		if errors.Is(err, level.ErrNotCommitted) {
			continue // removed by another rank meanwhile
		}
		unknown = errors.As(err, new(*format.VersionError))
		if err != nil {
			left = append(left, level.Leftover{Path: level.FileOf(l, e, format.ManifestName),
				Err: fmt.Errorf("epoch %d cannot be restored and is not removed: %w", e, err)})
		}
		kept[e] = true
		for _, o := range origins {
			kept[o] = true
		}
		if err == nil && r.Counts(e) {
			counted++
		}
	}
	return kept, left
}

// originsOf lists the epochs that an epoch here refers to. If its manifest cannot be read, it returns an error and the
// epochs that the shards here refer to.
func originsOf(l level.Epochs, e format.Epoch) ([]format.Epoch, error) {
	m, err := l.ReadManifest(e)
	var other *level.OtherRunError
	switch {
	case err == nil:
		return m.Origins(), nil
	case errors.As(err, &other) && other.Replaced():
		return other.Manifest.Origins(), nil
	case errors.As(err, &other):
		return other.Manifest.Origins(), other
	case errors.Is(err, level.ErrNotCommitted):
		return nil, err
	}
	files, rerr := l.Files(e)
	if rerr != nil {
		return nil, errors.Join(err, rerr)
	}
	set := map[format.Epoch]bool{}
	for _, f := range files {
		for _, o := range originsIn(l, e, f.Name) {
			set[o] = true
		}
	}
	return slices.Sorted(maps.Keys(set)), err
}

// originsIn reads the origins of a shard or pack; none if it cannot be read.
func originsIn(l level.Epochs, e format.Epoch, name string) (out []format.Epoch) {
	if _, ok := format.ParsePackName(name); ok {
		infos, err := level.ReadPack(l, e, name)
		if err != nil {
			return nil
		}
		for i := range infos {
			out = append(out, infos[i].Origins...)
		}
		return out
	}
	if _, row, ok := format.ParseName(name); !ok || row >= 0 {
		return nil
	}
	return level.OriginsIn(l, e, name)
}

// RanksWithManifest lists the ranks whose shards or parity rows lie beside a manifest.
func RanksWithManifest(l level.Epochs, e format.Epoch) []int {
	m, err := l.ReadManifest(e)
	if err != nil {
		return nil
	}
	ranks, err := level.RanksHere(l, m)
	if err != nil {
		return nil
	}
	files, err := l.Files(e)
	if err != nil {
		return nil
	}
	for _, f := range files {
		if rank, row, ok := format.ParseName(f.Name); ok && row >= 0 {
			ranks = append(ranks, rank)
		}
	}
	return ranks
}

// keepRules returns the rules of a run at a level at which files of some epochs are being put. An epoch on its way to
// another level is held; none waits for long, since a newer one replaces it.
func (c *Catalog) keepRules(l *Level, writing map[format.Epoch]bool) *KeepRules {
	l.mu.Lock()
	defer l.mu.Unlock()
	agreed := agreement{all: maps.Clone(l.agreed.all), unsure: maps.Clone(l.agreed.unsure),
		failed: maps.Clone(l.agreed.failed), newest: l.agreed.newest}
	nothing := c.voted.Load() && agreed.unknown() && !l.Traits().Shared
	return &KeepRules{Keep: l.Keep, Every: l.KeepEvery, Widest: format.MaxCounted,
		Counts: func(e format.Epoch) bool { return !nothing && agreed.counts(e) },
		Failed: func(e format.Epoch) bool { return agreed.failed[e] },
		InUse:  func(e format.Epoch) bool { return writing[e] || c.used(e) },
		Making: func(name string) bool { return c.making(l, name) },
	}
}

// making reports whether a name is that of a file in the making. Every rank clears away its own at its start, in the
// directories that it sees; those of ranks that now run elsewhere are left over.
func (c *Catalog) making(l *Level, name string) bool {
	rank, ok := level.TempRank(name)
	if !ok || rank >= c.Size {
		return false
	}
	if l.Traits().Shared || len(c.Nodes) != c.Size {
		return true
	}
	return c.Nodes[rank] == c.Nodes[c.Rank]
}

// Prune removes the epochs of a level that the rules of the run do not keep, by look. writing lists the epochs whose
// files are being put there; it is called after the look, which may have seen some of them.
func (c *Catalog) Prune(ctx context.Context, l *Level, writing func() map[format.Epoch]bool,
	failed func(e format.Epoch, err error) error) (removed []format.Epoch, look *Look, err error) {
	look, err = l.takeLook()
	if err != nil {
		return nil, nil, err
	}
	removed, left, err := look.Prune(ctx, c.keepRules(l, writing()), failed)
	for _, e := range removed {
		c.Log.Info("holdfast: epoch removed", "epoch", e, "level", l.Name(), "keep", l.Keep)
	}
	for _, x := range left {
		if c.FirstTime(x.Path) {
			c.Log.Warn("holdfast: file not removed by prune", "path", x.Path, "why", x.Err, "level", l.Name())
		}
	}
	return removed, look, err
}

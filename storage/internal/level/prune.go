package level

import (
	"errors"
	"fmt"
	"slices"

	"github.com/holdfast-hpc/holdfast/storage/internal/format"
)

// NewestCommitted is 0 when nothing is committed. Epochs of other runs do not count.
func NewestCommitted(l Epochs) (format.Epoch, error) {
	epochs, err := l.Epochs()
	if err != nil {
		return 0, err
	}
	for _, e := range epochs {
		have, err := HasManifest(l, e)
		if have {
			if _, merr := l.ReadManifest(e); OfOtherRun(merr) {
				continue
			}
		}
		if have || err != nil {
			return e, err
		}
	}
	return 0, nil
}

// NewestReadable is newestCommitted but for epochs whose manifests cannot be
// read: what was to be copied there is not there.
func NewestReadable(l Epochs) (format.Epoch, error) {
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

// KeepRules is what one look at a level for epochs to remove goes by.
type KeepRules struct {
	Keep, Every int
	Kept        map[format.Epoch]KeptEpoch // that are to stay
	Widest      format.Epoch               // newest epoch committed at the last level
	Counts      func(e format.Epoch) bool  // all ranks have it
	Failed      func(e format.Epoch) bool  // a vote gave it up
	Held        func(e format.Epoch) bool  // it is in use
	Making      func(name string) bool     // a file that will get its final name
}

// MaxPending is how many epochs are kept at a level for the last one, which does not have them.
const MaxPending = 8

// Prunable lists the epochs that no rule keeps, and what is odd about those that
// stay.
func Prunable(l Epochs, r *KeepRules) (dead []format.Epoch, left []Leftover, err error) {
	epochs, err := l.Epochs()
	if err != nil {
		return nil, nil, err
	}
	var committed, garbage []format.Epoch
	for _, e := range epochs {
		have, err := HasManifest(l, e)
		switch {
		case have || err != nil: // a manifest that cannot be looked at is one
			committed = append(committed, e)
		case len(committed) > 0:
			garbage = append(garbage, e)
		}
	}
	kept, left := keptOf(l, committed, r)
	for _, e := range committed {
		if !kept[e] {
			dead = append(dead, e)
		}
	}
	for _, e := range garbage {
		if !kept[e] && !r.Held(e) && !hasTemp(l, e, r.Making) {
			dead = append(dead, e)
		}
	}
	return dead, left, nil
}

// hasTemp says whether a file of the epoch is in the making. An epoch that
// cannot be looked at has one.
func hasTemp(l Epochs, e format.Epoch, making func(name string) bool) bool {
	files, err := l.Files(e)
	if err != nil {
		return ignoreMissing(err) != nil
	}
	for _, f := range files {
		if making(f.Name) {
			return true
		}
	}
	return false
}

// keptOf applies the keep rules to the committed epochs, newest first.
func keptOf(l Epochs, committed []format.Epoch, r *KeepRules) (kept map[format.Epoch]bool, left []Leftover) {
	kept = map[format.Epoch]bool{}
	counted, extra := 0, 0 // epochs that count; others that are kept and older than one that does
	failed := 0            // given up and newer than all that count
	unknown := false       // a later release has written an epoch that is kept; it may refer to any older one
	for _, e := range committed {
		if unknown {
			kept[e] = true
			continue
		}
		due := counted < r.Keep || e > r.Widest && counted < MaxPending
		switch {
		case isStray(l, e): // nobody but a person may remove it
		case r.Held(e) || r.Kept[e].Epoch == e || r.Every > 0 && e%format.Epoch(r.Every) == 0 && !r.Failed(e):
		case !due, r.Failed(e) && counted > 0:
			continue
		case r.Failed(e):
			// A restart may find all of its shards; but votes may go on failing.
			if failed++; failed > r.Keep {
				continue
			}
		case counted > 0 && !r.Counts(e):
			// In place of one that counts, should there be none.
			if extra++; counted+extra > r.Keep {
				continue
			}
		}
		origins, err := originsOf(l, e)
		if errors.Is(err, ErrNotCommitted) {
			continue // removed by another rank meanwhile
		}
		var newer *format.VersionError
		unknown = errors.As(err, &newer)
		if err != nil {
			left = append(left, Leftover{Path: FileOf(l, e, format.ManifestName),
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

// isStray reports whether an epoch was written neither by this run nor by the one that it has replaced.
func isStray(l Epochs, e format.Epoch) bool {
	_, err := l.ReadManifest(e)
	var other *OtherRunError
	return errors.As(err, &other) && !other.Replaced()
}

// originsOf lists the epochs that an epoch here refers to. When its manifest
// cannot be read the error says so, and they are those that the shards here
// refer to.
func originsOf(l Epochs, e format.Epoch) ([]format.Epoch, error) {
	m, err := l.ReadManifest(e)
	var other *OtherRunError
	switch {
	case err == nil:
		return m.Origins(), nil
	case errors.As(err, &other) && other.Replaced():
		return other.Manifest.Origins(), nil
	case errors.As(err, &other):
		return other.Manifest.Origins(), other
	case errors.Is(err, ErrNotCommitted):
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
	return format.SortedEpochs(set), err
}

// originsIn reads them from a shard or pack; none if it cannot be read.
func originsIn(l Epochs, e format.Epoch, name string) (out []format.Epoch) {
	if _, ok := format.ParsePackName(name); ok {
		infos, err := ReadPack(l, e, name)
		if err != nil {
			return nil
		}
		for i := range infos {
			out = append(out, infos[i].Origins...)
		}
		return out
	}
	rank, row, ok := format.ParseName(name)
	if !ok || row >= 0 {
		return nil
	}
	info, _, err := Uncommitted(l, e, rank)
	if err != nil {
		return nil
	}
	return slices.Clone(info.Origins)
}

// RanksWithManifest lists the ranks of which shards or parity rows lie beside a
// manifest.
func RanksWithManifest(l Epochs, e format.Epoch) []int {
	m, err := l.ReadManifest(e)
	if err != nil {
		return nil
	}
	ranks, err := RanksHere(l, m)
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

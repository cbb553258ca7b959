package node

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/holdfast-hpc/holdfast/coordinated"
	"github.com/holdfast-hpc/holdfast/internal/node/wire"
	"github.com/holdfast-hpc/holdfast/internal/program"
)

// versions finds the epochs of a name and the versions that all ranks read there.
func (s *session) versions(ctx context.Context, n *named) (list []coordinated.SavedEpoch, versions []int64, err error) {
	if list, err = n.ck.SavedEpochs(ctx); err != nil || len(list) == 0 {
		return nil, nil, err
	}
	var mine []byte
	for _, e := range list {
		v := int64(noVersion)
		if at := e.Saved[versionArray].Inline; e.Err == nil && len(at) == 8 {
			v = int64(binary.LittleEndian.Uint64(at))
		}
		if e.Err != nil {
			s.log.Warn("holdfast node: a checkpoint cannot be read", "name", n.name, "epoch", e.Epoch, "error", e.Err)
		}
		mine = binary.LittleEndian.AppendUint64(mine, uint64(v))
	}
	all, err := s.ck.Gather(fmt.Sprintf("the search for a checkpoint %q", n.name), mine)
	if err != nil {
		return nil, nil, err
	}
	for i := range list {
		at := mine[8*i:][:8]
		v := int64(binary.LittleEndian.Uint64(at))
		for _, b := range all {
			if len(b) != len(mine) || !bytes.Equal(b[8*i:][:8], at) {
				v = noVersion
			}
		}
		versions = append(versions, v)
	}
	return list, versions, nil
}

// find looks for the highest version, not above a limit, that all ranks have read whole; a negative limit is none. It
// reads only the epoch that it returns, and damaged ones before it.
func (s *session) find(ctx context.Context, m wire.Message) (code int32, value uint64, err error) {
	n, err := s.openNamed(ctx, m, true)
	if err != nil {
		return 0, 0, err
	}
	list, versions, err := s.versions(ctx, n)
	if err != nil {
		return 0, 0, err
	}
	for {
		best := -1
		for i, v := range versions { // newest first: of the same version the newest counts
			if v >= 0 && (m.Version < 0 || v <= m.Version) && (best < 0 || v > versions[best]) {
				best = i
			}
		}
		if best < 0 {
			return 0, 0, nil
		}
		op := fmt.Sprintf("version %d of %q is passed over", versions[best], n.name)
		err := s.ck.Agree(op, n.ck.Verify(ctx, list[best].Epoch))
		if err == nil {
			n.verified = list[best].Epoch
			return 1, uint64(versions[best]), nil
		}
		if s.lost.Load() || s.isDisconnected() {
			return 0, 0, err
		}
		if s.rank.rank == 0 {
			s.log.Warn("holdfast node: a checkpoint is damaged at all levels", "name", n.name, "version",
				versions[best], "epoch", list[best].Epoch, "error", err)
		}
		versions[best] = noVersion
	}
}

// beginRestart reads a version into the arenas.
func (s *session) beginRestart(ctx context.Context, m wire.Message) error {
	s.restart = nil
	n, err := s.openNamed(ctx, m, true)
	if err != nil {
		return err
	}
	list, versions, err := s.versions(ctx, n)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(list, func(e coordinated.SavedEpoch) bool { return e.Epoch == n.verified })
	if i < 0 || versions[i] != m.Version {
		i = slices.Index(versions, m.Version) // newest first
	}
	if i < 0 {
		have := slices.DeleteFunc(slices.Clone(versions), func(v int64) bool { return v == noVersion })
		if len(have) == 0 {
			return fmt.Errorf("there is no version %d of %q, and no other that all ranks can read", m.Version, n.name)
		}
		return fmt.Errorf("there is no version %d of %q that all ranks can read; they can read %v", m.Version, n.name,
			have)
	}
	n.used = true
	if _, ok := list[i].Saved[sharesArray]; ok {
		n.shares = []byte{}
		err = n.ck.Protect(sharesArray, &n.shares)
	}
	if err == nil {
		err = n.selectSaved(list[i])
	}
	if err = s.ck.Agree(fmt.Sprintf("restart from %q", n.name), err); err != nil {
		return err
	}
	restored, err := n.ck.RestoreEpoch(ctx, list[i].Epoch)
	if err == nil && !restored {
		err = fmt.Errorf("version %d of %q was removed meanwhile", m.Version, n.name)
	}
	if err != nil {
		return err
	}
	n.loaded = map[string]load{}
	for name, a := range n.arrays {
		if a.count.Load() == 0 {
			n.loaded[name] = load{Array: &a.Array}
		}
		for _, l := range n.loads {
			if l.Array == &a.Array {
				n.loaded[name] = l
			}
		}
	}
	n.loads = nil
	s.restart = n
	return nil
}

// selectSaved makes the arrays of a checkpoint those that are restored.
func (n *named) selectSaved(e coordinated.SavedEpoch) error {
	for name, a := range e.Saved {
		if reserved(name) {
			continue
		}
		elem := wire.ElemBytes(wire.ElemOf(a.Layout))
		if elem == 0 {
			return fmt.Errorf("%q is not an array of numbers: a program in Go wrote it", name)
		}
		to, err := n.array(name, a.Layout, elem)
		if err != nil {
			return err
		}
		to.count.Store(a.Bytes / int64(elem))
	}
	return nil
}

// sizeInRestart returns the element type and count of an array in the epoch that the program restarts from.
func (s *session) sizeInRestart(name string) (code int32, value uint64, err error) {
	if s.restart == nil {
		return s.sizeInNewest(name)
	}
	l, ok := s.restart.loaded[name]
	if !ok {
		return 0, 0, nil
	}
	return int32(wire.ElemOf(l.Layout)), uint64(l.Count()), nil
}

// recover has the client copy from a restart. All is checked before anything is copied.
func (s *session) recover(m wire.Message) error {
	if s.restart == nil {
		return errNotBegun
	}
	loaded := s.restart.loaded
	var to []*array
	for _, id := range m.Picked {
		if s.arrays[id] == nil {
			return fmt.Errorf("%w: array %d is not protected", wire.ErrMalformed, id)
		}
		to = append(to, s.arrays[id])
	}
	if m.All {
		byName := map[string]*array{}
		for _, a := range s.arrays {
			byName[a.name] = a
		}
		for name := range loaded {
			a := byName[name]
			if a == nil || a.Absent() {
				return fmt.Errorf("the checkpoint has %q, which is not protected; protect it, or name the arrays "+
					"to be recovered", name)
			}
			to = append(to, a)
		}
	}
	var items []wire.Item
	for _, a := range to {
		l, ok := loaded[a.name]
		share := shareIn(s.restart.shares, a.name)
		switch {
		case !ok:
			return fmt.Errorf("the checkpoint has no %q", a.name)
		case (share != "") != (a.kind == wire.KindDivided):
			return fmt.Errorf("%q is a global array (hf_protect_global) either in the checkpoint or here, and not in "+
				"both; protect it as it was", a.name)
		case share != "" && share != a.share():
			return fmt.Errorf("the checkpoint has another division of the global array %q than this rank has now; "+
				"declare it as it was, or go back by hf_restore, to a checkpoint without a name, which can be "+
				"divided anew", a.name)
		case !program.SameElements(l.Layout, a.Layout):
			return fmt.Errorf("the checkpoint has %q with elements of type %s, it is protected with %s", a.name,
				l.Layout, a.Layout)
		case l.Bytes() > a.Bytes() && !a.AnySize:
			return fmt.Errorf("the checkpoint has %d elements of %q, it is protected with %d; hf_saved tells "+
				"the number", l.Count(), a.name, a.count.Load())
		}
		if l.Bytes() > 0 {
			l.item.Array = a.ID
			items = append(items, l.item)
		} else if a.AnySize {
			items = append(items, wire.Item{Array: a.ID, Arena: wire.NoArena})
		}
	}
	return s.restart.copy(true, items)
}

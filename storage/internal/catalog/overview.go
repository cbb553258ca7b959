package catalog

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/holdfast-hpc/holdfast/storage/internal/format"
	"github.com/holdfast-hpc/holdfast/storage/internal/level"
)

// Overview has the findings of rank 0 in the directories that all ranks share, for one rank. It holds until a rank
// commits an epoch.
type Overview struct {
	Common []byte // the same for all ranks
	Own    []byte // this rank's
}

const (
	// Ranks get their entries of this number of manifests. They read others themselves.
	maxEntries = 16
	// This number of newest epochs has entries together with all epochs that they refer to.
	completeEpochs = 2
)

// States of an epoch in a Listing.
const (
	stateAbsent = 0 // it has no manifest
	stateGood   = 1
	stateFaulty = 2
)

// Listing has the findings of rank 0 at a level.
type Listing struct {
	epochs []listed // newest first
}

// listed is an epoch of a Listing.
type listed struct {
	epoch format.Epoch
	id    [16]byte
	size  int               // of how many ranks it is
	err   error             // why it cannot be restored; ErrNotCommitted: no manifest
	shard *format.ShardInfo // of this rank; nil: read the manifest
}

// Overview looks once at the directories that all ranks share. Rank 0 calls it and gives every rank its Overview:
// common is for all, own makes the part of one rank.
func (c *Catalog) Overview(ctx context.Context) (common []byte, own func(rank int) []byte, err error) {
	var list format.Encoder
	var manifests []*format.Manifest
	var of []string // levels of the manifests
	for _, l := range c.levels {
		if !l.Traits().Shared || l.Unwritable != nil {
			continue // each rank looks for itself
		}
		epochs, ms, err := c.list(ctx, l)
		if err != nil {
			return nil, nil, err
		}
		list.Str(l.Name())
		listedFields(format.Appending(&list), &epochs)
		for _, m := range ms {
			manifests, of = append(manifests, m), append(of, l.Name())
		}
	}
	own = func(rank int) []byte {
		var e format.Encoder
		for i, m := range manifests {
			if m.Size != c.Size { // the manifest has it
				continue
			}
			b, err := m.Shards[rank].MarshalBinary()
			if err != nil {
				continue
			}
			e.Str(of[i])
			e.U64(uint64(m.Epoch))
			e.U32(uint32(len(b)))
			e.B = append(e.B, b...)
		}
		return e.B
	}
	return list.B, own, nil
}

// list describes the epochs of a level, newest first, and returns the manifests whose entries the ranks get.
func (c *Catalog) list(ctx context.Context, l *Level) (out []listed, manifests []*format.Manifest, err error) {
	epochs, err := l.Epochs()
	if err != nil {
		return nil, nil, err
	}
	wanted := map[format.Epoch]bool{}
	good := 0
	for _, e := range epochs {
		if err := ctx.Err(); err != nil {
			return nil, nil, err
		}
		x := listed{epoch: e}
		m, err := l.ReadManifest(e)
		if level.OfOtherRun(err) {
			c.warnOther(e, l.Name(), err)
			err = level.ErrNotCommitted // for the other ranks, which do not read it
		}
		if err == nil {
			x.id, x.size, err = m.ID(), m.Size, c.fits(l, m)
		}
		x.err = err
		out = append(out, x)
		if err != nil {
			continue
		}
		if good++; good <= completeEpochs {
			wanted[e] = true
			for _, o := range m.Origins() {
				wanted[o] = true
			}
		}
		if wanted[e] && len(manifests) < maxEntries {
			manifests = append(manifests, m)
		}
	}
	return out, manifests, nil
}

// fits returns an error if a manifest is not of this job.
func (c *Catalog) fits(l *Level, m *format.Manifest) error {
	switch {
	case m.Size != c.Size && !c.Elastic:
		return &level.SizeError{Level: l.Name(), Dir: l.Path(), Have: m.Size, Want: c.Size}
	case m.Job != c.Name:
		return &level.JobError{Level: l.Name(), Dir: l.Path(), Have: m.Job, Want: c.Name}
	}
	return nil
}

func listedFields(f format.Fields, list *[]listed) {
	format.List(f, list, 9, func(x *listed) { x.fields(f) })
}

func (x *listed) fields(f format.Fields) {
	state, text := uint8(stateGood), ""
	switch {
	case errors.Is(x.err, level.ErrNotCommitted):
		state = stateAbsent
	case x.err != nil:
		state, text = stateFaulty, x.err.Error()
		text = text[:min(len(text), 1000)]
	}
	f.Epoch(&x.epoch)
	f.U8(&state)
	switch state {
	case stateGood:
		f.Sum(&x.id)
		f.Int(&x.size)
	case stateAbsent:
		x.err = level.ErrNotCommitted
	case stateFaulty:
		f.Str(&text)
		x.err = fmt.Errorf("rank 0 found: %s", text)
	default:
		f.Refuse(true)
	}
}

// ListingOf decodes the findings of rank 0 at a level; nil: none, so this rank looks for itself.
func ListingOf(t *Overview, name string) (*Listing, error) {
	if t == nil {
		return nil, nil
	}
	bad := func() (*Listing, error) {
		return nil, &level.OptionError{Field: "Overview", Reason: "is not what Overview made"}
	}
	var found *Listing
	for d := (&format.Decoder{B: t.Common}); len(d.B) > 0; {
		l := &Listing{}
		is := d.Str()
		listedFields(format.Taking(d), &l.epochs)
		if d.Bad {
			return bad()
		}
		if is == name {
			found = l
		}
	}
	for d := (&format.Decoder{B: t.Own}); len(d.B) > 0; {
		is, e := d.Str(), format.Epoch(d.U64())
		n := d.Count(1)
		if d.Bad || n > len(d.B) {
			return bad()
		}
		info := &format.ShardInfo{}
		if info.UnmarshalBinary(d.B[:n]) != nil {
			return bad()
		}
		d.B = d.B[n:]
		if x := found.find(e); x != nil && is == name {
			x.shard = info
		}
	}
	return found, nil
}

func (t *Listing) find(e format.Epoch) *listed {
	if t == nil {
		return nil
	}
	i := slices.IndexFunc(t.epochs, func(x listed) bool { return x.epoch == e })
	if i < 0 {
		return nil
	}
	return &t.epochs[i]
}

// Shard returns this rank's entry of an epoch that can be restored, and the ID of its manifest; nil: read the manifest.
func (t *Listing) Shard(e format.Epoch) (*format.ShardInfo, [16]byte) {
	x := t.find(e)
	if x == nil || x.err != nil {
		return nil, [16]byte{}
	}
	return x.shard, x.id
}

// newest returns the newest epoch that can be restored.
func (t *Listing) newest() format.Epoch {
	for i := range t.epochs {
		if t.epochs[i].err == nil {
			return t.epochs[i].epoch
		}
	}
	return 0
}

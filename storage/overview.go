package storage

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/holdfast-hpc/holdfast/storage/internal/format"
	"github.com/holdfast-hpc/holdfast/storage/internal/level"
)

// Told is what rank 0 found in the directories that all ranks share, for one rank; see
// Options.Together. It holds for as long as no rank has committed an epoch since.
type Told struct {
	Common []byte // the same for all ranks
	Own    []byte // this rank's
}

// mostTold is how many manifests the other ranks are told their entries of. They read the
// others themselves, should those be needed.
const mostTold = 16

// toldEpochs is how many epochs, newest first, are told with all that they refer to.
const toldEpochs = 2

// What is said of an epoch.
const (
	toldNone   = 0 // it has no manifest
	toldGood   = 1
	toldFaulty = 2
)

// toldLevel is what this rank was told of a level.
type toldLevel struct {
	epochs []toldEpoch // newest first
}

type toldEpoch struct {
	epoch Epoch
	id    [16]byte
	size  int        // of how many ranks it is
	err   error      // why it cannot be restored; ErrNotCommitted: no manifest
	shard *ShardInfo // of this rank; nil: the manifest says
}

// Overview looks once at the directories that all ranks share. Rank 0 calls it after Open and
// gives every rank its Told: common is for all, own makes the part of one rank.
func (s *Store) Overview(ctx context.Context) (common []byte, own func(rank int) []byte, err error) {
	leave, err := s.enter()
	if err != nil {
		return nil, nil, err
	}
	defer leave()
	var list format.Encoder
	var kept []*format.Manifest
	var of []string // levels of the manifests
	for _, l := range s.levels {
		if !l.Traits().Shared || l.out != nil {
			continue // each rank looks for itself
		}
		epochs, ms, err := s.overviewOf(ctx, l)
		if err != nil {
			return nil, nil, err
		}
		list.Str(l.Name())
		list.U32(uint32(len(epochs)))
		for i := range epochs {
			epochs[i].encode(&list)
		}
		for _, m := range ms {
			kept, of = append(kept, m), append(of, l.Name())
		}
	}
	own = func(rank int) []byte {
		var e format.Encoder
		for i, m := range kept {
			if m.Size != s.opt.Size { // the manifest says it
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

// overviewOf describes the epochs of a level, newest first, and has the manifests whose entries
// are told.
func (s *Store) overviewOf(ctx context.Context, l *levelState) (out []toldEpoch, kept []*format.Manifest, err error) {
	epochs, err := l.Epochs()
	if err != nil {
		return nil, nil, err
	}
	wanted := map[Epoch]bool{}
	good := 0
	for _, e := range epochs {
		if err := ctx.Err(); err != nil {
			return nil, nil, err
		}
		x := toldEpoch{epoch: e}
		m, err := l.ReadManifest(e)
		if level.OfOtherRun(err) {
			s.sayOther(e, l.Name(), err)
			err = ErrNotCommitted // for the others, who do not read it
		}
		if err == nil {
			x.id, x.size, err = m.ID(), m.Size, s.fits(l, m)
		}
		x.err = err
		out = append(out, x)
		if err != nil {
			continue
		}
		if good++; good <= toldEpochs {
			wanted[e] = true
			for _, o := range m.Origins() {
				wanted[o] = true
			}
		}
		if wanted[e] && len(kept) < mostTold {
			kept = append(kept, m)
		}
	}
	return out, kept, nil
}

// fits says why a manifest is none of this job.
func (s *Store) fits(l *levelState, m *format.Manifest) error {
	switch {
	case m.Size != s.opt.Size && !s.opt.Elastic:
		return &SizeError{Level: l.Name(), Dir: l.Path(), Have: m.Size, Want: s.opt.Size}
	case m.Job != s.opt.Job:
		return &JobError{Level: l.Name(), Dir: l.Path(), Have: m.Job, Want: s.opt.Job}
	}
	return nil
}

func (x *toldEpoch) encode(e *format.Encoder) {
	e.U64(uint64(x.epoch))
	switch {
	case x.err == nil:
		e.U8(toldGood)
		e.Sum(x.id)
		e.U32(uint32(x.size))
	case errors.Is(x.err, ErrNotCommitted):
		e.U8(toldNone)
	default:
		e.U8(toldFaulty)
		text := x.err.Error()
		e.Str(text[:min(len(text), 1000)])
	}
}

func (x *toldEpoch) decode(d *format.Decoder) {
	x.epoch = Epoch(d.U64())
	switch kind := d.U8(); kind {
	case toldGood:
		x.id = d.Sum()
		x.size = int(d.U32())
	case toldNone:
		x.err = ErrNotCommitted
	case toldFaulty:
		x.err = fmt.Errorf("rank 0 found: %s", d.Str())
	default:
		d.Bad = true
	}
}

// toldOf reads what this rank was told of a level; nil: nothing, so it looks for itself.
func (t *Told) toldOf(name string) (*toldLevel, error) {
	if t == nil {
		return nil, nil
	}
	bad := func() (*toldLevel, error) {
		return nil, &OptionError{Field: "Told", Reason: "is not what Overview made"}
	}
	var found *toldLevel
	for d := (&format.Decoder{B: t.Common}); len(d.B) > 0; {
		l := &toldLevel{}
		is := d.Str()
		for range d.Count(9) {
			var x toldEpoch
			x.decode(d)
			l.epochs = append(l.epochs, x)
		}
		if d.Bad {
			return bad()
		}
		if is == name {
			found = l
		}
	}
	for d := (&format.Decoder{B: t.Own}); len(d.B) > 0; {
		is, e := d.Str(), Epoch(d.U64())
		n := d.Count(1)
		if d.Bad || n > len(d.B) {
			return bad()
		}
		info := &ShardInfo{}
		if info.UnmarshalBinary(d.B[:n]) != nil {
			return bad()
		}
		d.B = d.B[n:]
		if x := found.at(e); x != nil && is == name {
			x.shard = info
		}
	}
	return found, nil
}

// at finds an epoch.
func (t *toldLevel) at(e Epoch) *toldEpoch {
	if t == nil {
		return nil
	}
	i := slices.IndexFunc(t.epochs, func(x toldEpoch) bool { return x.epoch == e })
	if i < 0 {
		return nil
	}
	return &t.epochs[i]
}

// newest is the newest epoch that can be restored.
func (t *toldLevel) newest() Epoch {
	if t == nil {
		return 0
	}
	for i := range t.epochs {
		if t.epochs[i].err == nil {
			return t.epochs[i].epoch
		}
	}
	return 0
}

// openTold opens a level that rank 0 has opened for all. The first rank of each node tries
// whether the node can write there.
func (s *Store) openTold(l *levelState, told *toldLevel) error {
	l.told = told
	if len(s.opt.Nodes) == s.opt.Size && slices.Index(s.opt.Nodes, s.opt.Nodes[s.opt.Rank]) != s.opt.Rank {
		return nil
	}
	return l.Prepare(false)
}

// stateTold is stateAt by what this rank was told.
func (s *Store) stateTold(l *levelState, e Epoch, memory *MemoryShard) LevelState {
	st := LevelState{Epoch: e, Level: l.Name(), Err: ErrNotCommitted}
	x := l.told.at(e)
	if x == nil {
		return st
	}
	st.ID, st.Size, st.Err = x.id, x.size, x.err
	if x.err == nil && x.shard != nil {
		st.Shard = *x.shard
		if !memory.holds(e, x.shard) {
			st.Err = level.ProbeShard(l, e, *x.shard)
		}
	}
	return st
}

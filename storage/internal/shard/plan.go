package shard

import (
	"math"

	"github.com/holdfast-hpc/holdfast/internal/invariants"
	"github.com/holdfast-hpc/holdfast/storage/internal/format"
)

// MaxOrigins bounds how many earlier epochs a shard may refer to, and so how
// many are kept for its sake.
const MaxOrigins = 8

// A shard does not refer to an epoch for at most littlePage bytes or one part in littlePart: it writes them again.
// Otherwise a counter that never changes would keep an epoch of any size beyond the keep rules.
const (
	littlePage = 4096
	littlePart = 256
)

// reuse selects the chunks of an earlier shard that a new one refers to.
type reuse struct {
	tooOld format.Epoch // not to chunks of this epoch and earlier ones
	little map[format.Epoch]bool
}

// reuse depends on the base only, so the room that a shard needs is known before it is written.
func (p *Spec) reuse() reuse {
	r := reuse{tooOld: oldestUseful(p.Base)}
	if p.Whole {
		r.tooOld = math.MaxUint64
	}
	if p.Base == nil || p.Whole {
		return r
	}
	lies, total := map[format.Epoch]int64{}, int64(0)
	for i := range p.Base.Chunks {
		c := &p.Base.Chunks[i]
		total += int64(c.Length)
		if c.Codec != format.CodecZero {
			lies[c.Origin] += int64(c.Length)
		}
	}
	r.little = map[format.Epoch]bool{}
	for e, n := range lies {
		r.little[e] = n <= max(littlePage, total/littlePart)
	}
	return r
}

// has reports whether an earlier chunk has the bytes, in an epoch that may be referred to.
func (r *reuse) has(old *format.Chunk, hash [16]byte, length uint32) bool {
	return old.Has(hash, length, r.tooOld) && !r.little[old.Origin]
}

// oldestUseful returns the newest epoch that a shard after base may no longer refer to, so that it refers to at most
// maxOrigins; chunks of that epoch are written again.
func oldestUseful(base *format.Index) format.Epoch {
	if base == nil {
		return 0
	}
	list := append(base.Origins(), base.Epoch)
	if len(list) <= MaxOrigins {
		return 0
	}
	return list[len(list)-MaxOrigins-1]
}

// An action is the treatment of a chunk, known before its bytes are read.
type action int

const (
	store action = iota // its bytes are read, and report whether it is stored
	refer               // the shard refers to the earlier one, which has it
	omit                // it is zeros, which are not stored
)

// step is an action on chunks of a section that follow each other; those to be read are a block at most.
type step struct {
	action
	from, to int
}

// plan is the treatment of the chunks of a section: each with the chunk of an earlier shard, the source's knowledge of
// it, and the expected result; entries of length 0 are unknown. A claimed one is old by the word of the source.
type plan struct {
	steps              []step
	old, known, wanted []format.Chunk
	claimed            []bool
}

// planner makes the plans for the sections of a shard.
type planner struct {
	spec  *Spec
	reuse reuse
	base  [16]byte // digest of the earlier shard, once a source is asked about it
}

// plan decides, in one pass over its chunks, how a section is written. It reads no byte.
func (p *planner) plan(sec *Section) *plan {
	const perBlock = BlockBytes / format.ChunkBytes
	n := int(format.ChunkCount(sec.Size, format.ChunkBytes))
	x := &plan{
		old:    format.PadChunks(p.spec.earlier(sec.Name), n),
		wanted: format.PadChunks(format.ChunksIn(p.spec.Wanted, sec.Name), n),
	}
	if k, ok := sec.Source.(chunkSource); ok {
		x.known = k.KnownChunks()
	}
	x.known = format.PadChunks(x.known, n)
	x.claimed = p.claims(sec, x.old)
	for i := range n {
		do := p.action(&x.known[i], &x.old[i])
		if x.claimed[i] && x.known[i].Length == 0 && !p.spec.Whole && !invariants.Enabled {
			do = p.action(&x.old[i], &x.old[i])
		}
		last := len(x.steps) - 1
		if last >= 0 && x.steps[last].action == do && (do != store || i-x.steps[last].from < perBlock) {
			x.steps[last].to++
		} else {
			x.steps = append(x.steps, step{do, i, i + 1})
		}
	}
	return x
}

// zeros returns the entry of a chunk that is omitted, as the source or the earlier shard knows it.
func (x *plan) zeros(i int, e format.Epoch) format.Chunk {
	k := &x.known[i]
	if k.Length == 0 {
		k = &x.old[i]
	}
	return format.Chunk{Origin: e, Length: k.Length, Codec: format.CodecZero, Hash: k.Hash}
}

// action returns the treatment of a chunk with the given knowledge.
func (p *planner) action(known, old *format.Chunk) action {
	switch {
	case known.Length == 0:
		return store
	case known.Codec == format.CodecZero:
		return omit
	case p.reuse.has(old, known.Hash, known.Length):
		return refer
	}
	return store
}

// claims returns which chunks the source claims to have the bytes of old.
func (p *planner) claims(sec *Section, old []format.Chunk) []bool {
	claimed := make([]bool, len(old))
	c, ok := sec.Source.(Comparer)
	if !ok || p.spec.Base == nil {
		return claimed
	}
	if p.base == ([16]byte{}) {
		p.base = p.spec.Base.Content()
	}
	unchanged := c.UnchangedSince(p.spec.Base.Epoch, p.base)
	if unchanged == nil {
		return claimed
	}
	for i := range claimed {
		length := min(format.ChunkBytes, sec.Size-int64(i)*format.ChunkBytes)
		claimed[i] = int64(old[i].Length) == length && unchanged(i)
	}
	return claimed
}

// chunkSource is a Source that has verified the bytes it yields against chunks
// cut like ours, so that they need not be hashed again.
type chunkSource interface {
	KnownChunks() []format.Chunk
}

package shard

import (
	"math"

	"github.com/holdfast-hpc/holdfast/storage/internal/format"
)

// MaxOrigins bounds how many earlier epochs a shard may refer to, and so how
// many are kept for its sake.
const MaxOrigins = 8

// A shard does not refer to an epoch that has at most littlePage bytes of it, or one part in littlePart:
// it writes them again. Else a counter that never changes would keep an epoch of any size beyond
// the keep rules.
const (
	littlePage = 4096
	littlePart = 256
)

// reuse says which chunks of an earlier shard a new one refers to.
type reuse struct {
	tooOld format.Epoch // not to chunks of this epoch and earlier ones
	little map[format.Epoch]bool
}

// reuse is decided by the base alone, so the room that a shard needs is known before it is written.
func (p *Spec) reuse() reuse {
	r := reuse{tooOld: oldestUseful(p.Base)}
	if p.Whole {
		r.tooOld = math.MaxUint64
	}
	if p.Base == nil || p.Whole || p.Little {
		return r
	}
	held, total := map[format.Epoch]int64{}, int64(0)
	for i := range p.Base.Chunks {
		c := &p.Base.Chunks[i]
		total += int64(c.Length)
		if c.Codec != format.CodecZero {
			held[c.Origin] += int64(c.Length)
		}
	}
	r.little = map[format.Epoch]bool{}
	for e, n := range held {
		r.little[e] = n <= max(littlePage, total/littlePart)
	}
	return r
}

// holds says whether an earlier chunk has the bytes, in an epoch that may be referred to.
func (r *reuse) holds(old *format.Chunk, hash [16]byte, length uint32) bool {
	return old.Holds(hash, length, r.tooOld) && !r.little[old.Origin]
}

// oldestUseful is the newest epoch that a shard after base may no longer refer
// to, so that it refers to at most maxOrigins; what lies there is written again.
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

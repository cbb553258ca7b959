package shard

import (
	"time"

	"github.com/holdfast-hpc/holdfast/storage/internal/format"
)

// compression is when chunks are compressed.
type compression int

// Whether chunks are compressed.
const (
	compressNever    compression = iota
	CompressIfFaster             // while samples show that it is faster than writing the bytes
	CompressAlways               // without samples
)

// sampleEvery is how many chunks are decided by one sample.
const sampleEvery = 64

// worthRatio is the stored part of a sample above which compressing is not worth
// the trouble.
const worthRatio = 0.9

// compressTrial decides whether compressing saves time. Compressing and writing
// overlap, so it does when it is faster than the target, which then gets less.
type compressTrial struct {
	on   bool
	left int // chunks until the next sample
}

// next reports whether the next chunk is to be a sample.
func (t *compressTrial) next() (sample bool) {
	if t.left > 0 {
		t.left--
		return false
	}
	t.left = sampleEvery - 1
	return true
}

// judge takes the outcome of a sample of n bytes: how many were stored, how long
// it took, and how many bytes per second the target takes.
func (t *compressTrial) judge(n, stored int, took time.Duration, rate float64) {
	speed := float64(n) / max(took.Seconds(), 1e-9)
	t.on = float64(stored) <= worthRatio*float64(n) && speed > rate
}

// tryCompress reports whether a chunk is to be compressed.
func (s *shardWriter) tryCompress(p []byte) bool {
	switch s.spec.Compress {
	case compressNever:
		return false
	case CompressAlways:
		return true
	}
	// Nothing is known of the target before the first block is written.
	if rate := s.w.rate(); rate > 0 && s.trial.next() {
		var c format.Chunk
		start := time.Now()
		stored := len(p)
		if q := s.pack.Compress(&c, p); q != nil {
			stored = len(q)
		}
		s.trial.judge(len(p), stored, time.Since(start), rate)
	}
	return s.trial.on
}

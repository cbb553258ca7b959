package shard

import (
	"context"
	"errors"
	"sort"

	"github.com/holdfast-hpc/holdfast/internal/vfs"
	"github.com/holdfast-hpc/holdfast/storage/internal/format"
)

// VerifyOwn reads the chunks that the shard holds itself.
func (c *Copy) VerifyOwn(ctx context.Context) error {
	return Parallel(len(c.Index.Chunks), Readers, func(i int, mem *Scratch) error {
		if c.Index.Chunks[i].Origin != c.Index.Epoch || ctx.Err() != nil {
			return ctx.Err()
		}
		return c.ReadChunk(ctx, i, mem.Whole(int(c.Index.Chunks[i].Length)), mem)
	})
}

// VerifyAlone is Verify without the chunks that other shards hold.
func (c *Copy) VerifyAlone(ctx context.Context) error {
	if err := c.VerifyOwn(ctx); err != nil {
		return err
	}
	return errors.Join(append(c.verifyHeader(), c.verifyGaps()...)...)
}

func (s *Copy) verifyHeader() (faults []error) {
	head := make([]byte, format.HeaderLen)
	if err := format.ReadFull(s.At, head, 0); err != nil {
		return []error{err}
	}
	h, err := format.DecodeHeader(s.At.Name, head)
	switch {
	case err != nil:
		faults = append(faults, err)
	case h.Epoch != s.Index.Epoch || h.Rank != s.Index.Rank || h.Size != s.Index.Size:
		faults = append(faults, &format.CorruptError{File: s.At.Name, Off: s.At.Base, Len: format.HeaderLen,
			Reason: "header belongs to another shard"})
	}
	return faults
}

// Verify reads every byte of a shard and returns all that is wrong with it, or
// the context's error. Padding is looked at as well: a flipped bit there does
// no harm, but a disk that flips bits does. Another epoch's shard that cannot be had is one fault, however
// many chunks it holds.
func (s *Copy) Verify(ctx context.Context) (faults []error, err error) {
	faults = s.verifyHeader()
	mem := Scratch{strict: true}
	missing := map[format.Epoch]bool{}
	for i := range s.Index.Chunks {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		c := &s.Index.Chunks[i]
		if c.Codec != format.CodecZero {
			if missing[c.Origin] {
				continue
			}
			if _, err := s.holder(ctx, c); err != nil {
				missing[c.Origin] = true
				faults = append(faults, err)
				continue
			}
		}
		if err := s.ReadChunk(ctx, i, mem.Whole(int(c.Length)), &mem); err != nil {
			faults = append(faults, err)
		}
	}
	return append(faults, s.verifyGaps()...), ctx.Err()
}

// verifyGaps checks that everything between header, chunks, index and footer
// is zero.
func (s *Copy) verifyGaps() (faults []error) {
	f, err := format.ReadFooter(s.At.Name, s.At, s.At.N)
	if err != nil {
		return []error{err}
	}
	used := []span{{0, format.HeaderLen}, {f.IndexOff, f.IndexOff + f.IndexLen}, {s.At.N - format.FooterLen, s.At.N}}
	for i := range s.Index.Chunks {
		if c := &s.Index.Chunks[i]; c.Origin == s.Index.Epoch && c.Stored > 0 {
			used = append(used, span{c.Off, c.Off + int64(c.Stored)})
		}
	}
	sort.Slice(used, func(i, j int) bool { return used[i].from < used[j].from })
	var at int64
	for _, u := range used {
		if u.from > at {
			faults = append(faults, s.At.checkZero(at, u.from)...)
		}
		at = max(at, u.to)
	}
	return faults
}

type span struct{ from, to int64 }

func (x *Extent) checkZero(from, to int64) []error {
	b := make([]byte, min(to-from, runBytes))
	for ; from < to; from += int64(len(b)) {
		b = b[:min(to-from, int64(len(b)))]
		if err := format.ReadFull(x, b, from); err != nil {
			return []error{err}
		}
		if i := format.NonZero(b); i >= 0 {
			return []error{&format.CorruptError{File: x.Name, Off: x.Base + from + int64(i), Len: 1,
				Reason: "padding is not zero"}}
		}
	}
	return nil
}

// VerifyTail checks the zeros between the index of a pack, which starts at end,
// and its footer.
func (x *Extent) VerifyTail(end int64) []error {
	f := x.Closer.(vfs.File)
	n, err := f.Size()
	if err != nil {
		return []error{err}
	}
	foot, err := format.ReadFooterOf(format.PackMagic, x.Name, f, n)
	if err != nil {
		return []error{err}
	}
	if foot.IndexOff != end {
		return []error{&format.CorruptError{File: x.Name, Off: end, Reason: "index is not directly behind the shards"}}
	}
	whole := &Extent{ReaderAt: f, Name: x.Name, N: n}
	return whole.checkZero(foot.IndexOff+foot.IndexLen, n-format.FooterLen)
}

// Verify opens and verifies one copy.
func Verify(ctx context.Context, from Source, e format.Epoch, rank int) (faults []error, err error) {
	c, err := Open(ctx, from, e, rank)
	if err != nil {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		return []error{err}, nil
	}
	faults, err = c.Verify(ctx)
	return faults, errors.Join(err, c.Close())
}

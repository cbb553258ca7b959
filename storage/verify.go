package storage

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"github.com/holdfast-hpc/holdfast/internal/vfs"
	"github.com/holdfast-hpc/holdfast/storage/internal/format"
)

// verify reads every byte of a shard and returns all that is wrong with it, or
// the context's error. Padding is looked at as well: a flipped bit there does
// no harm, but a disk that flips bits does.
func (s *shardCopy) verify(ctx context.Context) (faults []error, err error) {
	head := make([]byte, format.HeaderLen)
	if err := format.ReadFull(s.at, head, 0); err != nil {
		return []error{err}, nil
	}
	h, err := format.DecodeHeader(s.at.name, head)
	switch {
	case err != nil:
		faults = append(faults, err)
	case h.Epoch != s.idx.Epoch || h.Rank != s.idx.Rank || h.Size != s.idx.Size:
		faults = append(faults, &CorruptError{File: s.at.name, Off: s.at.base, Len: format.HeaderLen,
			Reason: "header is of another shard"})
	}
	mem := scratch{strict: true}
	for i := range s.idx.Chunks {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if err := s.readChunk(ctx, i, mem.whole(int(s.idx.Chunks[i].Length)), &mem); err != nil {
			faults = append(faults, err)
		}
	}
	return append(faults, s.verifyGaps()...), ctx.Err()
}

// verifyGaps checks that everything between header, chunks, index and footer
// is zero.
func (s *shardCopy) verifyGaps() (faults []error) {
	f, err := format.ReadFooter(s.at.name, s.at, s.at.n)
	if err != nil {
		return []error{err}
	}
	used := []span{{0, format.HeaderLen}, {f.IndexOff, f.IndexOff + f.IndexLen}, {s.at.n - format.FooterLen, s.at.n}}
	for i := range s.idx.Chunks {
		if c := &s.idx.Chunks[i]; c.Origin == s.idx.Epoch && c.Stored > 0 {
			used = append(used, span{c.Off, c.Off + int64(c.Stored)})
		}
	}
	slices.SortFunc(used, func(a, b span) int { return cmp.Compare(a.from, b.from) })
	var at int64
	for _, u := range used {
		if u.from > at {
			faults = append(faults, s.at.checkZero(at, u.from)...)
		}
		at = max(at, u.to)
	}
	return faults
}

type span struct{ from, to int64 }

func (x *extent) checkZero(from, to int64) []error {
	b := make([]byte, min(to-from, runBytes))
	for ; from < to; from += int64(len(b)) {
		b = b[:min(to-from, int64(len(b)))]
		if err := format.ReadFull(x, b, from); err != nil {
			return []error{err}
		}
		if i := format.NonZero(b); i >= 0 {
			return []error{&CorruptError{File: x.name, Off: x.base + from + int64(i), Len: 1,
				Reason: "padding is not zero"}}
		}
	}
	return nil
}

// verifyPack checks what a pack says of itself and that nothing else is in it.
func (d *levelDir) verifyPack(m *format.Manifest, name string) []error {
	infos, err := d.readPack(m.Epoch, name)
	if err != nil {
		return []error{err}
	}
	file := join(d.epochPath(m.Epoch), name)
	var end int64
	for i := range infos {
		entry, err := m.Shard(infos[i].Rank)
		if err != nil || entry.Index != infos[i].Index || entry.Base != infos[i].Base || entry.FileName() != name {
			return []error{&CorruptError{File: file, Reason: "pack index does not agree with the manifest"}}
		}
		end = max(end, entry.Base+entry.ShardBytes)
	}
	x, err := d.openExtent(m.Epoch, name, ShardInfo{ShardBytes: end, Pack: 0})
	if err != nil {
		return []error{err}
	}
	defer x.Close()
	return x.verifyTail(end)
}

// verifyTail checks the zeros between the index of a pack, which starts at end,
// and its footer.
func (x *extent) verifyTail(end int64) []error {
	f := x.Closer.(vfs.File)
	n, err := f.Size()
	if err != nil {
		return []error{err}
	}
	foot, err := format.ReadFooterOf(format.PackMagic, x.name, f, n)
	if err != nil {
		return []error{err}
	}
	if foot.IndexOff != end {
		return []error{&CorruptError{File: x.name, Off: end, Reason: "index does not follow the shards"}}
	}
	whole := &extent{ReaderAt: f, name: x.name, n: n}
	return whole.checkZero(foot.IndexOff+foot.IndexLen, n-format.FooterLen)
}

// verifyRow reads a whole file with a parity row.
func (d *levelDir) verifyRow(ctx context.Context, m *format.Manifest, id rowID) (faults []error, err error) {
	group, place, err := groupIn(m, id.rank)
	if err != nil {
		return []error{err}, nil
	}
	st := stripe{group: group, k: len(group) - m.Parity, m: m.Parity, i: place}
	c, err := d.openRow(m.Epoch, id, newParityGroup(m, st).record)
	if err != nil {
		return []error{err}, ctx.Err()
	}
	faults, err = c.verify(ctx)
	return faults, errors.Join(err, c.close())
}

// verifyShard opens and verifies one copy.
func verifyShard(ctx context.Context, from source, e Epoch, rank int) (faults []error, err error) {
	c, err := openCopy(ctx, from, e, rank)
	if err != nil {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		return []error{err}, nil
	}
	faults, err = c.verify(ctx)
	return faults, errors.Join(err, c.close())
}

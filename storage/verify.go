package storage

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"github.com/holdfast-hpc/holdfast/internal/vfs"
)

// verify reads every byte of a shard and returns all that is wrong with it, or
// the context's error. Padding is looked at as well: a flipped bit there does
// no harm, but a disk that flips bits does.
func (s *shardCopy) verify(ctx context.Context) (faults []error, err error) {
	head := make([]byte, shardHeaderLen)
	if err := readFull(s.at, head, 0); err != nil {
		return []error{err}, nil
	}
	h, err := decodeHeader(s.at.name, head)
	switch {
	case err != nil:
		faults = append(faults, err)
	case h.epoch != s.idx.epoch || h.rank != s.idx.rank || h.size != s.idx.size:
		faults = append(faults, &CorruptError{File: s.at.name, Off: s.at.base, Len: shardHeaderLen,
			Reason: "header is of another shard"})
	}
	mem := scratch{strict: true}
	for i := range s.idx.chunks {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if err := s.readChunk(ctx, i, mem.whole(int(s.idx.chunks[i].length)), &mem); err != nil {
			faults = append(faults, err)
		}
	}
	return append(faults, s.verifyGaps()...), ctx.Err()
}

// verifyGaps checks that everything between header, chunks, index and footer
// is zero.
func (s *shardCopy) verifyGaps() (faults []error) {
	f, err := readFooter(s.at.name, s.at, s.at.n)
	if err != nil {
		return []error{err}
	}
	used := []span{{0, shardHeaderLen}, {f.indexOff, f.indexOff + f.indexLen}, {s.at.n - footerLen, s.at.n}}
	for i := range s.idx.chunks {
		if c := &s.idx.chunks[i]; c.origin == s.idx.epoch && c.stored > 0 {
			used = append(used, span{c.off, c.off + int64(c.stored)})
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
		if err := readFull(x, b, from); err != nil {
			return []error{err}
		}
		if i := nonZero(b); i >= 0 {
			return []error{&CorruptError{File: x.name, Off: x.base + from + int64(i), Len: 1,
				Reason: "padding is not zero"}}
		}
	}
	return nil
}

// verifyPack checks what a pack says of itself and that nothing else is in it.
func (d *levelDir) verifyPack(m *manifest, name string) []error {
	infos, err := d.readPack(m.epoch, name)
	if err != nil {
		return []error{err}
	}
	file := join(d.epochPath(m.epoch), name)
	var end int64
	for i := range infos {
		entry, err := m.shard(infos[i].Rank)
		if err != nil || entry.index != infos[i].index || entry.base != infos[i].base || entry.fileName() != name {
			return []error{&CorruptError{File: file, Reason: "pack index does not agree with the manifest"}}
		}
		end = max(end, entry.base+entry.ShardBytes)
	}
	x, err := d.openExtent(m.epoch, name, ShardInfo{ShardBytes: end, pack: 0})
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
	foot, err := readFooterOf(packMagic, x.name, f, n)
	if err != nil {
		return []error{err}
	}
	if foot.indexOff != end {
		return []error{&CorruptError{File: x.name, Off: end, Reason: "index does not follow the shards"}}
	}
	whole := &extent{ReaderAt: f, name: x.name, n: n}
	return whole.checkZero(foot.indexOff+foot.indexLen, n-footerLen)
}

// verifyRow reads a whole file with a parity row.
func (d *levelDir) verifyRow(ctx context.Context, m *manifest, id rowID) (faults []error, err error) {
	group, place, err := m.group(id.rank)
	if err != nil {
		return []error{err}, nil
	}
	st := stripe{group: group, k: len(group) - m.parity, m: m.parity, i: place}
	c, err := d.openRow(m.epoch, id, newParityGroup(m, st).encode())
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

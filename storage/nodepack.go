package storage

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"slices"

	"github.com/holdfast-hpc/holdfast/internal/vfs"
	"github.com/holdfast-hpc/holdfast/storage/internal/fetch"
	"github.com/holdfast-hpc/holdfast/storage/internal/format"
	"github.com/holdfast-hpc/holdfast/storage/internal/level"
	"github.com/holdfast-hpc/holdfast/storage/internal/peer"
	"github.com/holdfast-hpc/holdfast/storage/internal/shard"
)

// The ranks of a node can write its packs together, each from its memory, which saves reading the shards back:
//
//  1. Each rank makes a Part and tells the others its Size; the flusher calls Lead before.
//  2. Each rank writes its Part to its place in the pack.
//  3. When all have, the flusher calls Seal, and the shards are as after
//     FlushNode. If anyone could not, it calls DropPacks, and FlushNode does
//     the work from the committed shards.
//  4. Each rank closes its Part.
//
// The flusher makes the pack and hands it to the others over a Unix socket (see Lead), so the metadata server knows of
// each pack once and not from every rank. It has its final name from the start: the manifest commits its contents. If a
// rank cannot be handed a file, each opens the pack by its name, which is a temporary one until it is sealed, so that
// none of them writes to the leftovers of an earlier attempt. If a file can only have one writer, as in an object
// store, each part is a file of its own instead: the rank's shard.

// NodePack says whose shards of an epoch are written together, and how long they
// are. It is the same on all ranks of the node.
type NodePack struct {
	Epoch Epoch
	From  string   // level at which the epoch is committed
	To    string   // level that gets the pack
	Ranks []int    // ascending; the first is the flusher
	Sizes [][]byte // of the ranks' parts, from their Size
}

// Part is this rank's share of a NodePack. Its calls are local: each rank of the node makes them for its own Part. It
// belongs to one goroutine; Close may be called by another.
type Part struct {
	store *Store
	to    *levelState
	epoch Epoch
	spec  *shard.Spec
	info  ShardInfo // as far as it is known before the part is written
	packs openPacks // of the flusher
}

// NewPart prepares to write this rank's shard of an epoch that is committed at from. secs are the sections that were
// put there; they must not change until Write returns. An epoch that is committed at to is ErrCommitted. With
// Options.Collective only rank 0 looks whether it is, and makes the place for all: no rank writes before rank 0 has its
// Part. Every rank of the node calls it. It reads the manifest and the index of the committed shard.
func (s *Store) NewPart(ctx context.Context, e Epoch, from, to string, secs []Section) (p *Part, err error) {
	err = s.flushTo(e, from, to, func(_, l *levelState) error {
		if l.Traits().WrittenByOthers {
			return errNoPacks(to)
		}
		sh, err := s.fetch(ctx, e, s.opt.Rank, s.sources(e, s.opt.Rank, from))
		if err != nil {
			return err
		}
		p = &Part{store: s, to: l, epoch: e, spec: s.copySpec(ctx, l, sh, secs),
			info: ShardInfo{Rank: sh.Rank(), Bytes: fetch.IndexOf(sh).Bytes(), Digest: sh.Digest()}}
		if err := sh.Close(); err != nil {
			return err
		}
		if p.spec.Room, err = p.spec.RoomNeeded(); err != nil || !s.catalog.Looks(l.Level) {
			return err
		}
		if fresh, err := l.Begin(e, p.spec.Room); fresh || err != nil {
			return err
		}
		return level.RefuseCommitted(l, e)
	})
	return p, err
}

// Size returns the bytes that the part has and takes, encoded, for the other ranks of the node. After Lead it has the
// address at which the packs are handed over, too.
func (p *Part) Size() []byte {
	size := partSize(p.info.Bytes, p.spec.Room)
	if p.store.noHandover.Load() {
		return append(size, withoutHandover)
	}
	p.packs.mu.Lock()
	defer p.packs.mu.Unlock()
	if p.packs.server != nil {
		size = append(size, p.packs.server.Address()...)
	}
	return size
}

const (
	sizeBytes       = 16
	withoutHandover = '-' // in place of an address: this rank can neither get nor pass a file
)

// byFlusher reports whether only the flusher opens the packs by their names.
func (n *NodePack) byFlusher() bool {
	for i, z := range n.Sizes {
		address := string(z[sizeBytes:])
		switch {
		case address == string(withoutHandover), i == 0 && address == "" && len(n.Sizes) > 1:
			return false
		}
	}
	return true
}

func partSize(bytes, room int64) []byte {
	return binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil, uint64(bytes)), uint64(room))
}

// Write writes the shard to its place in the pack, durably. A full level is a
// *SpaceError. When ctx ends, so does the writing: the sections are free when
// Write has returned. The result says how long the shard is, also after an error, and
// how many bytes of chunks were written: fewer where they were compressed.
func (p *Part) Write(ctx context.Context, n NodePack) (ShardInfo, error) {
	info := p.info
	err := p.store.flushTo(n.Epoch, n.From, n.To, func(_, _ *levelState) (err error) {
		info.Stored, err = p.write(ctx, &n)
		return err
	})
	return info, err
}

func (p *Part) write(ctx context.Context, n *NodePack) (stored int64, err error) {
	s := p.store
	pk, base, err := n.place(s.opt.Rank, p.to.cfg.PackBytes)
	if err != nil {
		return 0, err
	}
	done, err := s.turn(ctx)
	if err != nil {
		return 0, err
	}
	defer done()
	t := s.throttle(p.to)
	t.Share = len(n.Ranks)
	var idx *format.Index
	fill := func(f vfs.File) error {
		return shard.WriteTo(ctx, f, s.pools.Own, t, func(w *shard.Writer) error {
			w.Off, w.End = base, base+p.spec.Room
			info, x, err := shard.Write(ctx, w, p.spec)
			stored, idx = info.Stored, x
			return err
		})
	}
	if p.to.Traits().Single { // the part is a file of its own
		base = 0
		err = p.to.Put(n.Epoch, p.spec.FileName(), level.Room{Most: p.spec.Room}, fill)
	} else {
		err = p.to.Full(p.writeInto(ctx, n, pk, fill), p.spec.Room)
	}
	if err != nil {
		return 0, err
	}
	p.to.remember(n.Epoch, idx)
	return stored, nil
}

// nodePackFile is one of the packs of a NodePack: the ranks in it and the offsets
// of their shards.
type nodePackFile struct {
	ranks []int
	rooms []int64
	base  []int64
	end   int64
}

func (k *nodePackFile) first() int { return k.ranks[0] }

// files divides the ranks among packs of at most that many bytes.
func (n *NodePack) files(most int64) ([]nodePackFile, error) {
	if len(n.Ranks) == 0 || len(n.Sizes) != len(n.Ranks) || !slices.IsSorted(n.Ranks) {
		return nil, fmt.Errorf("node pack: got ranks %v and %d sizes, want sorted ranks and a size for each", n.Ranks,
			len(n.Sizes))
	}
	bytes := make([]int64, len(n.Sizes))
	rooms := make([]int64, len(n.Sizes))
	for i, z := range n.Sizes {
		if len(z) < sizeBytes || len(z) > sizeBytes+peer.MaxAddress {
			return nil, fmt.Errorf("rank %d says its size in %d bytes", n.Ranks[i], len(z))
		}
		bytes[i], rooms[i] = int64(binary.LittleEndian.Uint64(z)), int64(binary.LittleEndian.Uint64(z[8:]))
		if rooms[i] < format.HeaderLen+vfs.Align || rooms[i]%vfs.Align != 0 || bytes[i] < 0 {
			return nil, fmt.Errorf("rank %d reserves %d bytes, which is not a valid shard length", n.Ranks[i], rooms[i])
		}
	}
	var out []nodePackFile
	for _, run := range packRuns(bytes, most) {
		k := nodePackFile{ranks: n.Ranks[run.from:run.to], rooms: rooms[run.from:run.to]}
		for _, room := range k.rooms {
			k.base = append(k.base, k.end)
			k.end += room
		}
		out = append(out, k)
	}
	return out, nil
}

// place finds the pack of a rank and the offset of its shard there.
func (n *NodePack) place(rank int, most int64) (*nodePackFile, int64, error) {
	files, err := n.files(most)
	if err != nil {
		return nil, 0, err
	}
	for i := range files {
		if k := slices.Index(files[i].ranks, rank); k >= 0 {
			return &files[i], files[i].base[k], nil
		}
	}
	return nil, 0, fmt.Errorf("rank %d is not among %v", rank, n.Ranks)
}

// nameOf returns the name of a pack while it is written. All ranks of the node find a temporary one, and the flusher's
// next start removes it.
func (n *NodePack) nameOf(k *nodePackFile, run string) string {
	if n.byFlusher() {
		return format.PackName(k.first())
	}
	h := fnv.New64a() // a rank of an earlier run that wakes up must not write to this one's
	fmt.Fprint(h, uint64(n.Epoch), run)
	return fmt.Sprintf("%s.r%06d.%012x%s", format.PackName(k.first()), n.Ranks[0], h.Sum64()>>16, format.TempSuffix)
}

// Seal completes the packs of a node when all of its ranks have written their parts: it checks each, adds the index,
// syncs and publishes. The flusher calls it. The result is in the order of ranks; the shards are durable and not yet
// committed. It reads the indices of the parts, not their bytes. A part that is not the committed shard matches
// ErrCorrupt.
func (p *Part) Seal(ctx context.Context, n NodePack) (infos []ShardInfo, err error) {
	s := p.store
	err = s.flushTo(n.Epoch, n.From, n.To, func(from, to *levelState) error {
		m, err := s.catalog.Manifest(ctx, from.Level, n.Epoch)
		if err != nil {
			return err
		}
		files, err := n.files(to.cfg.PackBytes)
		for i := 0; i < len(files) && err == nil; i++ {
			var part []ShardInfo
			if to.Traits().Single {
				part, err = sealedParts(&files[i], m, to)
			} else {
				part, err = p.sealPack(ctx, &n, &files[i], m)
			}
			infos = append(infos, part...)
		}
		return err
	})
	return infos, err
}

// sealedParts is sealPack where each part is a file of its own.
func sealedParts(k *nodePackFile, m *format.Manifest, to *levelState) (infos []ShardInfo, err error) {
	var idxs []*format.Index
	for i, r := range k.ranks {
		want, err := m.Shard(r)
		if err != nil {
			return nil, err
		}
		info, idx, err := fetch.Uncommitted(to, m.Epoch, r)
		if err != nil {
			return nil, err
		}
		if idx.Rank != r || info.Digest != want.Digest || info.ShardBytes != k.rooms[i] {
			return nil, fmt.Errorf("the part of rank %d is not the committed one: %w", r, ErrCorrupt)
		}
		info.Node = want.Node
		infos, idxs = append(infos, info), append(idxs, idx)
	}
	to.remember(m.Epoch, idxs...)
	return infos, nil
}

func (p *Part) sealPack(ctx context.Context, n *NodePack, k *nodePackFile,
	m *format.Manifest) (infos []ShardInfo, err error) {
	s, to, name := p.store, p.to, n.nameOf(k, p.store.opt.Run)
	var idxs []*format.Index
	f, err := p.open(k.first(), n.byFlusher(), name)
	if err != nil {
		return nil, err
	}
	defer func() {
		p.packs.mu.Lock()
		defer p.packs.mu.Unlock()
		delete(p.packs.files, k.first())
	}()
	err = to.packs().Seal(n.Epoch, f, name, format.PackName(k.first()), func(f vfs.File) (err error) {
		if infos, idxs, err = readParts(f, name, k, m); err != nil {
			return err
		}
		if name == format.PackName(k.first()) && f.Direct() {
			// A restart that finds the footer takes the pack for complete: it must not come to the disk first.
			if err := f.Sync(); err != nil {
				return err
			}
		}
		return shard.WriteTo(ctx, f, s.pools.Own, s.throttle(to), func(w *shard.Writer) error {
			w.Off = k.end
			return shard.EndPack(w, n.Epoch, k.first(), infos)
		})
	})
	if err != nil {
		return nil, err
	}
	to.remember(n.Epoch, idxs...)
	return infos, nil
}

// readParts describes the shards that the ranks have written, which must be
// those of m.
func readParts(f vfs.File, name string, k *nodePackFile, m *format.Manifest) (infos []ShardInfo, idxs []*format.Index,
	err error) {
	for i, r := range k.ranks {
		want, err := m.Shard(r)
		if err != nil {
			return nil, nil, err
		}
		room := k.rooms[i]
		at := io.NewSectionReader(f, k.base[i], room)
		foot, idx, err := format.ReadShardIndex(name, at, room)
		if err != nil {
			return nil, nil, err
		}
		info := idx.Info(foot.IndexHash, room)
		if idx.Epoch != m.Epoch || idx.Rank != r || info.Digest != want.Digest {
			return nil, nil, fmt.Errorf("the part of rank %d is not the committed one: %w", r, ErrCorrupt)
		}
		info.Node, info.Layout, info.Pack, info.Base = want.Node, want.Layout, k.first(), k.base[i]
		infos, idxs = append(infos, info), append(idxs, idx)
	}
	return infos, idxs, nil
}

// DropPacks removes the ranks' parts of packs that will not be sealed. The flusher calls it when no rank writes any
// more.
func (s *Store) DropPacks(n NodePack) error {
	return s.on("discard", n.Epoch, n.To, func(to *levelState) error {
		files, err := n.files(to.cfg.PackBytes)
		for i := range files {
			switch name := n.nameOf(&files[i], s.opt.Run); {
			case to.Traits().Single:
				for _, r := range files[i].ranks {
					err = errors.Join(err, to.Discard(n.Epoch, format.ShardName(r)))
				}
			case n.byFlusher():
				err = errors.Join(err, to.Discard(n.Epoch, name))
			default:
				err = errors.Join(err, to.packs().Drop(n.Epoch, name))
			}
		}
		return err
	})
}

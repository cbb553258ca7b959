package storage

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/holdfast-hpc/holdfast/internal/vfs"
	"github.com/holdfast-hpc/holdfast/storage/internal/format"
	"github.com/holdfast-hpc/holdfast/storage/internal/shard"
)

// The ranks of a node can write its packs together, each from what it still has
// in memory, which spares reading the shards back:
//
//  1. Each rank makes a Part and tells the others its Size.
//  2. Each rank writes its Part to its place in the pack.
//  3. When all have, the flusher calls SealPacks, and the shards are as after
//     FlushNode. If anyone could not, it calls DropPacks, and FlushNode does
//     the work from the committed shards.
//
// The pack has a temporary name until it is sealed.

// PartSize is what the other ranks of the node need to know of a Part.
type PartSize struct {
	Bytes int64 // of the sections
	Room  int64 // that the shard takes in the pack
}

// NodePack says whose shards of an epoch are written together, and how long they
// are. It is the same on all ranks of the node.
type NodePack struct {
	Epoch Epoch
	From  string // level at which the epoch is committed
	To    string
	Ranks []int // ascending; the first is the flusher
	Sizes []PartSize
}

// Part is this rank's share of a NodePack. It belongs to one goroutine.
type Part struct {
	store  *Store
	to     *levelState
	spec   *shard.Spec
	digest [16]byte
	bytes  int64
	stored int64
}

// NewPart prepares to write this rank's shard of an epoch that is committed at
// from. secs are what was put there; they must not change until Write returns.
// An epoch that is committed at to is ErrCommitted.
func (s *Store) NewPart(ctx context.Context, e Epoch, from, to string, secs []Section) (*Part, error) {
	leave, err := s.enter()
	if err != nil {
		return nil, err
	}
	defer leave()
	l, err := s.packedAt(to)
	if err != nil {
		return nil, err
	}
	p, err := s.newPart(ctx, e, from, l, secs)
	return p, s.fault("flush", e, to, err)
}

func (s *Store) newPart(ctx context.Context, e Epoch, from string, to *levelState,
	secs []Section) (p *Part, err error) {
	if err := to.RefuseCommitted(e); err != nil {
		return nil, err
	}
	sh, err := s.fetch(ctx, e, s.opt.Rank, s.sources(e, s.opt.Rank, from))
	if err != nil {
		return nil, err
	}
	p = &Part{store: s, to: to, spec: s.spec(e, s.opt.Rank, secs), digest: sh.digest, bytes: sh.shape.Bytes()}
	p.spec.Wanted = sh.shape
	if err := sh.Close(); err != nil {
		return nil, err
	}
	s.prepareSpec(to, p.spec)
	p.spec.Base = s.lastShard(ctx, to, s.opt.Rank, e)
	p.spec.Room, err = p.spec.RoomNeeded()
	return p, err
}

// Size is to be told to the other ranks of the node.
func (p *Part) Size() PartSize { return PartSize{Bytes: p.bytes, Room: p.spec.Room} }

// Stored is how many bytes of chunks Write has written, once it has returned: less than
// Size sets aside where they were compressed.
func (p *Part) Stored() int64 { return p.stored }

// Write writes the shard to its place in the pack, durably. A full level is a
// *SpaceError. When ctx ends, so does the writing: the sections are free when
// Write has returned.
func (p *Part) Write(ctx context.Context, n NodePack) error {
	leave, err := p.store.enter()
	if err != nil {
		return err
	}
	defer leave()
	defer p.store.hold(n.Epoch)()
	return p.store.fault("flush", n.Epoch, n.To, p.write(ctx, &n))
}

func (p *Part) write(ctx context.Context, n *NodePack) error {
	s := p.store
	pk, base, err := n.place(s.opt.Rank)
	if err != nil {
		return err
	}
	done, err := s.turn(ctx)
	if err != nil {
		return err
	}
	defer done()
	if err := p.to.EnsureEpoch(n.Epoch); err != nil {
		return p.to.Unusable(err)
	}
	if err := p.to.CheckRoom(p.spec.Room); err != nil {
		return err
	}
	f, err := p.to.Join(n.Epoch, n.temp(pk))
	if err != nil {
		return p.to.Unusable(err)
	}
	t := s.throttle(p.to)
	t.Share = len(n.Ranks)
	w := shard.NewWriter(ctx, f, s.pool, t)
	w.Off, w.End = base, base+p.spec.Room
	info, idx, err := shard.Write(ctx, w, p.spec)
	if err == nil && info.Digest != p.digest {
		err = fmt.Errorf("captured memory changed since the shard was written: %w", ErrCorrupt)
	}
	if err != nil {
		w.Abort()
	} else if err = w.Finish(); err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return p.to.SpaceError(err, p.spec.Room)
	}
	p.to.remember(n.Epoch, idx)
	p.stored = info.Stored
	return nil
}

// nodePackFile is one of the packs of a NodePack: the ranks in it and where each
// one's shard starts.
type nodePackFile struct {
	ranks []int
	sizes []PartSize
	base  []int64
	end   int64
}

func (k *nodePackFile) first() int { return k.ranks[0] }

// files divides the ranks among packs.
func (n *NodePack) files() ([]nodePackFile, error) {
	if len(n.Ranks) == 0 || len(n.Sizes) != len(n.Ranks) || !slices.IsSorted(n.Ranks) {
		return nil, fmt.Errorf("node pack: got ranks %v and %d sizes, want sorted ranks and a size for each", n.Ranks,
			len(n.Sizes))
	}
	bytes := make([]int64, len(n.Sizes))
	for i, z := range n.Sizes {
		if z.Room < format.HeaderLen+vfs.Align || z.Room%vfs.Align != 0 || z.Bytes < 0 {
			return nil, fmt.Errorf("rank %d reserves %d bytes, which is not a valid shard length", n.Ranks[i], z.Room)
		}
		bytes[i] = z.Bytes
	}
	var out []nodePackFile
	for _, run := range packRuns(bytes, packBytes) {
		k := nodePackFile{ranks: n.Ranks[run.from:run.to], sizes: n.Sizes[run.from:run.to]}
		for _, z := range k.sizes {
			k.base = append(k.base, k.end)
			k.end += z.Room
		}
		out = append(out, k)
	}
	return out, nil
}

// place finds the pack of a rank and where its shard starts there.
func (n *NodePack) place(rank int) (*nodePackFile, int64, error) {
	files, err := n.files()
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

// temp is the name of a pack while it is written. All ranks of the node find it;
// the flusher's next start clears it away.
func (n *NodePack) temp(k *nodePackFile) string {
	return fmt.Sprintf("%s.r%06d.%012x%s", format.PackName(k.first()), n.Ranks[0], uint64(n.Epoch), format.TempSuffix)
}

// SealPacks completes the packs of a node when all of its ranks have written
// their parts: it checks each, adds the index, syncs and publishes. The flusher
// calls it. The result is in the order of ranks; the shards are durable and not
// yet committed.
func (s *Store) SealPacks(ctx context.Context, n NodePack) ([]ShardInfo, error) {
	leave, err := s.enter()
	if err != nil {
		return nil, err
	}
	defer leave()
	defer s.hold(n.Epoch)()
	infos, err := s.sealPacks(ctx, &n)
	return infos, s.fault("flush", n.Epoch, n.To, err)
}

func (s *Store) sealPacks(ctx context.Context, n *NodePack) (infos []ShardInfo, err error) {
	from, err := s.at(n.From)
	if err != nil {
		return nil, err
	}
	to, err := s.at(n.To)
	if err != nil {
		return nil, err
	}
	m, err := s.manifestOf(ctx, from, n.Epoch)
	if err != nil {
		return nil, err
	}
	files, err := n.files()
	if err != nil {
		return nil, err
	}
	for i := range files {
		part, err := s.sealPack(ctx, n, &files[i], m, to)
		if err != nil {
			return nil, to.SpaceError(err, vfs.Align)
		}
		infos = append(infos, part...)
	}
	return infos, nil
}

func (s *Store) sealPack(ctx context.Context, n *NodePack, k *nodePackFile, m *format.Manifest,
	to *levelState) ([]ShardInfo, error) {
	temp := n.temp(k)
	f, err := to.Edit(n.Epoch, temp)
	if err != nil {
		return nil, err
	}
	infos, idxs, err := readParts(f, temp, k, m)
	if err == nil {
		w := shard.NewWriter(ctx, f, s.pool, s.throttle(to))
		w.Off = k.end
		if err = endPack(w, n.Epoch, k.first(), infos); err != nil {
			w.Abort()
		} else {
			err = w.Finish()
		}
	}
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return nil, err
	}
	if err := to.Publish(n.Epoch, temp, format.PackName(k.first())); err != nil {
		return nil, err
	}
	to.rememberAll(n.Epoch, idxs)
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
		room := k.sizes[i].Room
		at := io.NewSectionReader(f, k.base[i], room)
		foot, err := format.ReadFooter(name, at, room)
		if err != nil {
			return nil, nil, err
		}
		idx, err := format.ReadIndex(name, at, foot)
		if err != nil {
			return nil, nil, err
		}
		if idx.Epoch != m.Epoch || idx.Rank != r || idx.Content() != want.Digest {
			return nil, nil, fmt.Errorf("the part of rank %d is not the committed one: %w", r, ErrCorrupt)
		}
		idxs = append(idxs, idx)
		infos = append(infos, ShardInfo{
			Rank: r, Node: want.Node, Bytes: idx.Bytes(), Stored: idx.Owned(), ShardBytes: room, Digest: want.Digest,
			Index: foot.IndexHash, Origins: idx.Origins(), Pack: k.first(), Base: k.base[i],
		})
	}
	return infos, idxs, nil
}

// DropPacks removes what the ranks have written of packs that will not be
// sealed. The flusher calls it when no rank writes any more.
func (s *Store) DropPacks(n NodePack) error {
	leave, err := s.enter()
	if err != nil {
		return err
	}
	defer leave()
	to, err := s.at(n.To)
	if err != nil {
		return err
	}
	files, err := n.files()
	for i := range files {
		err = errors.Join(err, to.RemoveFile(n.Epoch, n.temp(&files[i])))
	}
	return s.fault("discard", n.Epoch, n.To, err)
}

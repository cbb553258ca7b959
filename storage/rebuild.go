package storage

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/holdfast-hpc/holdfast/storage/internal/format"
	"github.com/holdfast-hpc/holdfast/storage/internal/shard"
	"github.com/klauspost/reedsolomon"
)

// paritySource yields shards computed from the other members of their groups.
type paritySource struct {
	s    *Store
	l    *level
	skip int // place in the group of a member to do without; -1: none
}

// paritySources lists one source that uses what is nearest, and then one for
// each member that leaves that member out: what lies there may be damaged
// without anyone knowing, and what is computed from it fails its checksum.
func (s *Store) paritySources(l *level, e Epoch) []shard.Source {
	out := []shard.Source{&paritySource{s, l, -1}}
	for q := range 2 * (l.cfg.Data + l.cfg.Parity) {
		out = append(out, &paritySource{s, l, q})
	}
	return out
}

func (p *paritySource) LevelName() string { return p.l.name }

// Locate finds the group and whoever has parts of it.
func (p *paritySource) Locate(ctx context.Context, e Epoch, rank int) (*shard.Extent, error) {
	m, err := p.s.manifestOf(ctx, p.l, e)
	if err != nil {
		return nil, err
	}
	info, err := m.Shard(rank)
	if err != nil {
		return nil, err
	}
	group, place, err := groupIn(m, rank)
	if err != nil {
		return nil, err
	}
	if p.skip == place || p.skip >= len(group) {
		return nil, errNoOtherWay
	}
	r := &rebuilt{s: p.s, l: p.l, m: m, group: group, place: place, skip: p.skip,
		members: map[int]*shard.Extent{}, rows: map[rowID]*shard.Copy{}}
	if err := r.prepare(ctx); err != nil {
		return nil, errors.Join(err, r.Close())
	}
	return &shard.Extent{ReaderAt: r, Closer: r, N: info.ShardBytes, Info: info,
		Name: fmt.Sprintf("parity group %v of epoch %d", group, e)}, nil
}

// errNoOtherWay says that there is no such member to do without.
var errNoOtherWay = errors.New("no other way to compute the shard")

// groupIn finds a rank's parity group and its place there.
func groupIn(m *format.Manifest, rank int) ([]int, int, error) {
	if m.Level != LevelParity || !m.ShapeFits() {
		return nil, 0, fmt.Errorf("epoch %d has no parity groups at level %s", m.Epoch, m.Level)
	}
	nodes := make([]string, m.Size)
	for r := range nodes {
		nodes[r] = m.Shards[r].Node
	}
	groups, err := parityGroups(nodes, m.Data, m.Parity)
	if err != nil {
		return nil, 0, err
	}
	group, place := groupOf(groups, rank)
	return group, place, nil
}

// rebuilt is a shard that is computed as it is read.
type rebuilt struct {
	s     *Store
	l     *level // parity
	m     *format.Manifest
	group []int
	place int
	skip  int
	rs    reedsolomon.Encoder

	mu      sync.Mutex
	members map[int]*shard.Extent // guarded by mu: local shards of members, by place; nil: not to be had
	rows    map[rowID]*shard.Copy // guarded by mu: likewise
}

// prepare opens everything there is of the group.
func (r *rebuilt) prepare(ctx context.Context) (err error) {
	parity := r.m.Parity
	if r.rs, err = reedsolomon.New(len(r.group)-parity, parity); err != nil {
		return err
	}
	for q, rank := range r.group {
		if q == r.place || q == r.skip {
			continue
		}
		if x, err := r.s.openMember(ctx, r.m.Epoch, r.m.Shards[rank]); err == nil {
			r.members[q] = x
		}
	}
	for i := range r.group {
		st := stripe{group: r.group, k: len(r.group) - parity, m: parity, i: i}
		for j := range parity {
			if st.row(j) == r.skip {
				continue
			}
			if c, err := r.openRow(ctx, st, j); err == nil {
				r.rows[rowID{i, j}] = c
			}
		}
	}
	return ctx.Err()
}

// openRow opens a row of the committed stripe wherever it lies.
func (r *rebuilt) openRow(ctx context.Context, st stripe, j int) (*shard.Copy, error) {
	id := rowID{r.group[st.i], j}
	want := newParityGroup(r.m, st).record
	return eachDir(ctx, r.s, r.l, r.m.Epoch,
		func(h *holding) bool { return slices.Contains(h.rows, id) },
		func(d *levelDir) (*shard.Copy, error) { return d.openRow(r.m.Epoch, id, want) })
}

func (d *levelDir) openRow(e Epoch, id rowID, want []byte) (*shard.Copy, error) {
	file, err := d.epochFile(e, format.RowName(id.rank, id.j))
	if err != nil {
		return nil, err
	}
	f, err := d.fs.Open(file)
	if err != nil {
		return nil, err
	}
	c, err := shard.OpenFile(file, f)
	if err == nil {
		err = isRow(c, want)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return c, nil
}

// isRow compares what the row was computed from.
func isRow(c *shard.Copy, want []byte) error {
	sec, ok := c.Index.Section(rowGroup)
	if !ok || sec.Size != int64(len(want)) {
		return fmt.Errorf("%s: %w", c.At.Name, errOtherGroup)
	}
	got := make([]byte, len(want))
	if err := c.ReadSection(rowGroup, got, 0); err != nil {
		return err
	}
	if !bytes.Equal(got, want) {
		return fmt.Errorf("%s: %w", c.At.Name, errOtherGroup)
	}
	return nil
}

var errOtherGroup = errors.New("parity of other shards than those committed")

// ReadAt computes bytes of the shard, segment by segment.
func (r *rebuilt) ReadAt(p []byte, off int64) (int, error) {
	segment := segmentLen(r.m.Shards, r.group, len(r.group)-r.m.Parity)
	done := 0
	for done < len(p) {
		d, at := int((off+int64(done))/segment), (off+int64(done))%segment
		n := int(min(int64(len(p)-done), segment-at))
		if err := r.compute(p[done:done+n], d, at, segment); err != nil {
			return done, err
		}
		done += n
	}
	return done, nil
}

// compute fills p with bytes of segment d from at on.
func (r *rebuilt) compute(p []byte, d int, at, segment int64) error {
	st := stripeOf(r.group, r.m.Parity, r.place, d)
	shards := make([][]byte, st.k+st.m)
	have := 0
	for i := range shards {
		if i == d || have == st.k {
			continue
		}
		buf := make([]byte, len(p))
		if err := r.part(st, i, buf, at, segment); err != nil {
			continue
		}
		shards[i] = buf
		have++
	}
	if have < st.k {
		return fmt.Errorf("only %d of the %d parts needed can be read: %w", have, st.k, ErrCorrupt)
	}
	required := make([]bool, len(shards))
	required[d] = true
	if err := r.rs.ReconstructSome(shards, required); err != nil {
		return err
	}
	copy(p, shards[d])
	return nil
}

var errNoPart = errors.New("part is not to be had")

// part reads part i of a stripe: data segment i, or parity row i-k.
func (r *rebuilt) part(st stripe, i int, buf []byte, at, segment int64) error {
	r.mu.Lock()
	var member *shard.Extent
	var row *shard.Copy
	if i < st.k {
		member = r.members[st.data(i)]
	} else {
		row = r.rows[rowID{st.i, i - st.k}]
	}
	r.mu.Unlock()
	switch {
	case member != nil:
		return readSegment(member, int64(i)*segment+at, buf)
	case row != nil:
		return row.ReadSection(rowData, buf, at)
	}
	return errNoPart
}

// Close closes what was opened.
func (r *rebuilt) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	var err error
	for _, x := range r.members {
		err = errors.Join(err, x.Close())
	}
	for _, c := range r.rows {
		err = errors.Join(err, c.Close())
	}
	clear(r.members)
	clear(r.rows)
	return err
}

// parityState says why this rank's shard cannot be computed: a cheap look at
// what is there, not at whether it is good.
func (s *Store) parityState(l *level, m *format.Manifest) error {
	group, place, err := groupIn(m, s.opt.Rank)
	if err != nil {
		return err
	}
	local, err := s.at(LevelLocal)
	if err != nil {
		return err
	}
	k := len(group) - m.Parity
	for d := range k {
		st := stripeOf(group, m.Parity, place, d)
		have := 0
		for i := range k {
			if i != d && s.isThere(local, m.Epoch, format.ShardName(group[st.data(i)]),
				func(h *holding) bool { return h.hasShard(group[st.data(i)]) }) {
				have++
			}
		}
		for j := range m.Parity {
			id := rowID{group[st.i], j}
			if s.isThere(l, m.Epoch, format.RowName(id.rank, j), func(h *holding) bool {
				return slices.Contains(h.rows, id)
			}) {
				have++
			}
		}
		if have < k {
			return fmt.Errorf("only %d of the %d parts needed are left: %w", have, k, errNoPart)
		}
	}
	return nil
}

// isThere looks for a file in the own directory and in what is known of others.
func (s *Store) isThere(l *level, e Epoch, name string, match func(h *holding) bool) bool {
	if _, err := l.fs.Stat(join(l.epochPath(e), name)); err == nil {
		return true
	}
	return len(s.holders(l.name, e, match)) > 0
}

// openMember opens the local shard of a member of a group: here, at the rank
// itself, or at who is known to have it.
func (s *Store) openMember(ctx context.Context, e Epoch, info ShardInfo) (*shard.Extent, error) {
	local, err := s.at(LevelLocal)
	if err != nil {
		return nil, err
	}
	return eachDir(ctx, s, local, e,
		func(h *holding) bool { return h.hasShard(info.Rank) },
		func(d *levelDir) (*shard.Extent, error) { return d.openCommitted(e, info) }, info.Rank)
}

// openCommitted opens the shard file that a manifest names and checks that it
// is that one.
func (d *levelDir) openCommitted(e Epoch, info ShardInfo) (*shard.Extent, error) {
	info.Pack, info.Base = format.NoPack, 0
	x, err := d.openExtent(e, format.ShardName(info.Rank), info)
	if err != nil {
		return nil, err
	}
	if _, err := x.Footer(e, info.Rank); err != nil {
		return nil, errors.Join(err, x.Close())
	}
	return x, nil
}

// eachDir tries the own directory of a level, then those of the ranks in also,
// then those that are known to match, until one opens.
func eachDir[T any](ctx context.Context, s *Store, l *level, e Epoch, match func(h *holding) bool,
	open func(d *levelDir) (T, error), also ...int) (T, error) {
	x, err := open(&l.levelDir)
	if err == nil || s.opt.Transport == nil {
		return x, err
	}
	ranks := append(slices.Clone(also), s.holders(l.name, e, match)...)
	for i, r := range ranks {
		if r == s.opt.Rank || slices.Contains(ranks[:i], r) {
			continue
		}
		d, f := s.peerDir(context.WithoutCancel(ctx), r, l.name)
		x, perr := open(d)
		f.Close()
		if perr == nil {
			return x, nil
		}
		if ctx.Err() != nil {
			return x, ctx.Err()
		}
		err = errors.Join(err, perr)
	}
	return x, err
}

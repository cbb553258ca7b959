package redundancy

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/holdfast-hpc/holdfast/storage/internal/format"
	"github.com/holdfast-hpc/holdfast/storage/internal/shard"
)

// Places is where the parts of parity groups are to be had.
type Places interface {
	// manifest reads an epoch's manifest of the level parity.
	Manifest(ctx context.Context, e format.Epoch) (*format.Manifest, error)
	// member opens the shard of a member at the level local.
	Member(ctx context.Context, e format.Epoch, info format.ShardInfo) (*shard.Extent, error)
	// Row opens a row that was computed from the shards in record.
	Row(ctx context.Context, e format.Epoch, id format.RowID, record []byte) (*shard.Copy, error)
}

// paritySource yields shards computed from the other members of their groups.
type paritySource struct {
	from Places
	skip int // member of the group to leave out; -1: none
}

// Sources lists one source that uses the nearest shards, and then one for each of at most members members that leaves
// that member out: its shard may be damaged without notice, and the computed bytes then fail their checksum.
func Sources(from Places, members int) []shard.Source {
	out := []shard.Source{&paritySource{from, -1}}
	for q := range members {
		out = append(out, &paritySource{from, q})
	}
	return out
}

// Name makes it a source.
func (p *paritySource) Name() string { return format.LevelParity }

// Locate finds the group and the holders of its parts.
func (p *paritySource) Locate(ctx context.Context, e format.Epoch, rank int) (*shard.Extent, error) {
	m, err := p.from.Manifest(ctx, e)
	if err != nil {
		return nil, err
	}
	info, err := m.Shard(rank)
	if err != nil {
		return nil, err
	}
	st, err := StripeIn(m, rank)
	if err != nil {
		return nil, err
	}
	if p.skip == st.i || p.skip >= len(st.Group) {
		return nil, shard.ErrNoOtherWay
	}
	r := &rebuilt{from: p.from, m: m, own: st, skip: p.skip,
		members: map[int]*shard.Extent{}, rows: map[format.RowID]*shard.Copy{}}
	if err := r.prepare(ctx); err != nil {
		return nil, errors.Join(err, r.Close())
	}
	return &shard.Extent{ReaderAt: r, Closer: r, N: info.ShardBytes, Info: info,
		Name: fmt.Sprintf("parity group %v of epoch %d", st.Group, e)}, nil
}

// rebuilt is a shard that is computed as it is read.
type rebuilt struct {
	from Places
	m    *format.Manifest
	own  Stripe // that its rank encodes
	skip int
	rs   Coder

	mu      sync.Mutex
	members map[int]*shard.Extent        // guarded by mu: local shards of members, by place; nil: not to be had
	rows    map[format.RowID]*shard.Copy // guarded by mu
}

// prepare opens everything there is of the group.
func (r *rebuilt) prepare(ctx context.Context) (err error) {
	if r.rs, err = r.own.coder(0); err != nil {
		return err
	}
	for q, rank := range r.own.Group {
		if q == r.own.i || q == r.skip {
			continue
		}
		if x, err := r.from.Member(ctx, r.m.Epoch, r.m.Shards[rank]); err == nil {
			r.members[q] = x
		}
	}
	for i := range r.own.Group {
		st := r.own
		st.i = i
		for j := range st.M {
			if st.Row(j) == r.skip {
				continue
			}
			id := format.RowID{Rank: st.Group[i], J: j}
			if c, err := r.from.Row(ctx, r.m.Epoch, id, NewGroup(r.m, st).Record); err == nil {
				r.rows[format.RowID{Rank: i, J: j}] = c
			}
		}
	}
	return ctx.Err()
}

// ReadAt computes bytes of the shard, segment by segment.
func (r *rebuilt) ReadAt(p []byte, off int64) (int, error) {
	segment := segmentLen(r.m.Shards, r.own.Group, r.own.K)
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
	st := r.own.Holding(d)
	shards := make([][]byte, st.K+st.M)
	have := 0
	for i := range shards {
		if i == d || have == st.K {
			continue
		}
		buf := make([]byte, len(p))
		if err := r.part(st, i, buf, at, segment); err != nil {
			continue
		}
		shards[i] = buf
		have++
	}
	switch {
	case have < st.K && r.skip >= 0: // the attempt with all parts reports the missing ones
		return fmt.Errorf("%w without the parts of rank %d: %w", shard.ErrNoOtherWay, r.own.Group[r.skip],
			format.ErrCorrupt)
	case have < st.K:
		return notComputable(r.m, st, d, format.ErrCorrupt, func(i int) bool { return shards[i] != nil })
	}
	required := make([]bool, len(shards))
	required[d] = true
	if err := r.rs.ReconstructSome(shards, required); err != nil {
		return err
	}
	copy(p, shards[d])
	return nil
}

var errNoPart = errors.New("part cannot be read")

// part reads part i of a stripe: data segment i, or parity row i-k.
func (r *rebuilt) part(st Stripe, i int, buf []byte, at, segment int64) error {
	r.mu.Lock()
	var member *shard.Extent
	var row *shard.Copy
	if i < st.K {
		member = r.members[st.data(i)]
	} else {
		row = r.rows[format.RowID{Rank: st.i, J: i - st.K}]
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

// Close closes the opened parts.
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

// Computable returns an error if rank's shard of a committed epoch cannot be computed from the available members and
// rows.
func Computable(m *format.Manifest, rank int, member func(rank int) bool, row func(id format.RowID) bool) error {
	own, err := StripeIn(m, rank)
	if err != nil {
		return err
	}
	for d := range own.K {
		st := own.Holding(d)
		has := func(i int) bool {
			if i < st.K {
				return member(st.Group[st.data(i)])
			}
			return row(format.RowID{Rank: st.Group[st.i], J: i - st.K})
		}
		have := 0
		for i := range st.K + st.M {
			if i != d && has(i) {
				have++
			}
		}
		if have < st.K {
			return notComputable(m, st, d, errNoPart, has)
		}
	}
	return nil
}

// notComputable names the parts of a stripe that are not to be had, so that its segment d cannot be computed. has
// reports for the others that they are. The error wraps kind.
func notComputable(m *format.Manifest, st Stripe, d int, kind error, has func(i int) bool) error {
	have := 0
	var parts []string
	for i := range st.K + st.M {
		switch row := i - st.K; {
		case i == d:
		case has(i):
			have++
		case row < 0:
			rank := st.Group[st.data(i)]
			parts = append(parts, fmt.Sprintf("the shard of rank %d on node %s", rank, m.Shards[rank].Node))
		default:
			rank := st.Group[st.Row(row)]
			parts = append(parts, fmt.Sprintf("parity row %d of rank %d on node %s", row, rank, m.Shards[rank].Node))
		}
	}
	return fmt.Errorf("epoch %d at level %s: the shard of rank %d cannot be computed from %d of the %d parts needed; "+
		"missing or damaged: %s; start the job where %d of them can be read: %w", m.Epoch, format.LevelParity,
		st.Group[st.data(d)], have, st.K, strings.Join(parts, ", "), st.K-have, kind)
}

// Coder computes parity over parts of one length: the data of a stripe, and then its rows.
type Coder interface {
	// Encode fills the rows.
	Encode(parts [][]byte) error
	// ReconstructSome computes the missing parts that are required. A missing part is nil.
	ReconstructSome(parts [][]byte, required []bool) error
}

// ErrNoImport marks a program that does not import the package for parity.
var ErrNoImport = errors.New("this program is built without parity " +
	`(add import _ "github.com/holdfast-hpc/holdfast/storage/parity" to the program; the tool holdfast has it)`)

// newCoder makes a coder that uses that many cores, or as many as pay if that is 0; nil without the import.
var newCoder func(data, rows, cores int) (Coder, error)

// Register is called by the init of the package that computes parity.
func Register(f func(data, rows, cores int) (Coder, error)) { newCoder = f }

// Ready returns ErrNoImport in a program that can neither compute parity nor a shard from it.
func Ready() error {
	if newCoder == nil {
		return ErrNoImport
	}
	return nil
}

func (s *Stripe) coder(cores int) (Coder, error) {
	if err := Ready(); err != nil {
		return nil, err
	}
	return newCoder(s.K, s.M, cores)
}

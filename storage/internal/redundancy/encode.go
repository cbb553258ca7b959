package redundancy

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/holdfast-hpc/holdfast/internal/vfs"
	"github.com/holdfast-hpc/holdfast/storage/internal/format"
	"github.com/holdfast-hpc/holdfast/storage/internal/shard"
)

// parityBlock is how much of each member is encoded at once.
const parityBlock = 1 << 20

// Names of the sections of a file with a parity row.
const (
	rowGroup = "group"
	rowData  = "row"
)

// Group lists the shards from which a row was computed. It is the section "group" of the row's file.
type Group struct {
	Stripe
	segment int64 // length of the row and of each segment
	Record  []byte
}

// NewGroup returns the group that a stripe of the committed shards is encoded from.
func NewGroup(m *format.Manifest, st Stripe) *Group {
	g := &Group{Stripe: st, segment: segmentLen(m.Shards, st.Group, st.K)}
	group := format.Group{K: st.K, M: st.M, I: st.i, Segment: g.segment}
	for _, r := range st.Group {
		group.Members = append(group.Members, format.GroupMember{Rank: r,
			Bytes: m.Shards[r].ShardBytes, Index: m.Shards[r].Index})
	}
	g.Record = group.Encode()
	return g
}

// Encode computes the rows of g from the shards of m and has those called for written, each as the sections of a
// file of its own.
func Encode(ctx context.Context, from Places, m *format.Manifest, g *Group, cores int, rows []int,
	write func(ctx context.Context, j int, secs []shard.Section) error) (err error) {
	ctx, cancel := context.WithCancelCause(ctx) // with the first error
	defer cancel(nil)
	enc, err := newStripeEncoder(g, cores)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, enc.close()) }()
	for d := range g.K {
		r := g.Group[g.data(d)]
		x, err := from.Member(ctx, m.Epoch, m.Shards[r])
		if err != nil {
			return fmt.Errorf("shard of rank %d: %w", r, err)
		}
		enc.data = append(enc.data, x)
	}
	fail := func(err error) {
		if err != nil {
			cancel(err)
		}
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		fail(enc.run(ctx))
		for _, c := range enc.rows {
			close(c)
		}
	})
	for j := range g.M {
		wg.Go(func() {
			if !slices.Contains(rows, j) {
				// No writer takes the blocks of this row.
				for b := range enc.rows[j] {
					b.done()
				}
				return
			}
			fail(write(ctx, j, []shard.Section{
				{Name: rowGroup, Size: int64(len(g.Record)), Source: shard.Bytes(g.Record)},
				{Name: rowData, Size: g.segment, Source: &rowSource{ctx: ctx, blocks: enc.rows[j]}},
			}))
		})
	}
	wg.Wait()
	return context.Cause(ctx)
}

// stripeEncoder reads the data of a stripe block by block and hands each row's
// blocks to that row's writer.
type stripeEncoder struct {
	g    *Group
	rs   Coder
	data []*shard.Extent
	rows []chan rowBlock
	free chan [][]byte // sets of m row buffers
}

// rowBlock is a block of one row; done returns its buffer.
type rowBlock struct {
	p    []byte
	done func()
}

func newStripeEncoder(g *Group, cores int) (*stripeEncoder, error) {
	rs, err := g.coder(cores)
	if err != nil {
		return nil, err
	}
	const ahead = 3 // sets of buffers: being encoded, handed over, being written
	e := &stripeEncoder{g: g, rs: rs, free: make(chan [][]byte, ahead)}
	for range g.M {
		e.rows = append(e.rows, make(chan rowBlock, 1))
	}
	for range ahead {
		set := make([][]byte, g.M)
		for j := range set {
			set[j] = make([]byte, parityBlock)
		}
		e.free <- set
	}
	return e, nil
}

func (e *stripeEncoder) run(ctx context.Context) error {
	data := make([][]byte, e.g.K)
	for d := range data {
		data[d] = make([]byte, parityBlock)
	}
	for off := int64(0); off < e.g.segment; off += parityBlock {
		n := int(min(e.g.segment-off, parityBlock))
		// Beyond the end of a shard there are zeros.
		if err := shard.Parallel(len(data), len(data), func(d int, _ *shard.Scratch) error {
			return readSegment(e.data[d], int64(d)*e.g.segment+off, data[d][:n])
		}); err != nil {
			return err
		}
		if err := e.block(ctx, data, n); err != nil {
			return err
		}
	}
	return nil
}

// readSegment reads from a shard that is followed by zeros.
func readSegment(x *shard.Extent, off int64, p []byte) error {
	have := int(min(max(x.N-off, 0), int64(len(p))))
	clear(p[have:])
	if have == 0 {
		return nil
	}
	return format.ReadFull(x, p[:have], off)
}

// block encodes one block and hands it to the writers of the rows.
func (e *stripeEncoder) block(ctx context.Context, data [][]byte, n int) error {
	var set [][]byte
	select {
	case set = <-e.free:
	case <-ctx.Done():
		return ctx.Err()
	}
	shards := make([][]byte, 0, e.g.K+e.g.M)
	for _, p := range slices.Concat(data, set) {
		shards = append(shards, p[:n])
	}
	if err := e.rs.Encode(shards); err != nil {
		return err
	}
	var left atomic.Int64
	left.Store(int64(e.g.M))
	done := func() {
		if left.Add(-1) == 0 {
			e.free <- set
		}
	}
	for j, c := range e.rows {
		select {
		case c <- rowBlock{shards[e.g.K+j], done}:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

func (e *stripeEncoder) close() error {
	var err error
	for _, x := range e.data {
		err = errors.Join(err, x.Close())
	}
	return err
}

// rowSource is a row as a Source. It is read from start to end, as a shard
// writer does.
type rowSource struct {
	ctx    context.Context
	blocks <-chan rowBlock
	now    rowBlock
}

// ReadAt returns the next bytes.
func (r *rowSource) ReadAt(p []byte, _ int64) (int, error) {
	done := 0
	for done < len(p) {
		if len(r.now.p) == 0 {
			b, ok := <-r.blocks
			if !ok {
				return done, cmp.Or(r.ctx.Err(), io.ErrUnexpectedEOF)
			}
			r.now = b
		}
		m := copy(p[done:], r.now.p)
		done += m
		if r.now.p = r.now.p[m:]; len(r.now.p) == 0 {
			r.now.done()
		}
	}
	return done, nil
}

// Files is a place with files of epochs; Open also returns the place of the file.
type Files interface {
	Open(e format.Epoch, name string) (f vfs.File, file string, err error)
}

// OpenRow opens a row of a committed stripe; want is the record of its group.
func OpenRow(d Files, e format.Epoch, id format.RowID, want []byte) (*shard.Copy, error) {
	f, file, err := d.Open(e, format.RowName(id.Rank, id.J))
	if err != nil {
		return nil, err
	}
	c, err := shard.OpenFile(file, f)
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	got := make([]byte, len(want)) // the row's sources
	sec, ok := c.Index.Section(rowGroup)
	if ok && sec.Size == int64(len(want)) {
		err = c.ReadSection(rowGroup, got, 0)
	}
	if err == nil && !bytes.Equal(got, want) {
		err = fmt.Errorf("%s: parity belongs to shards other than the committed ones", c.At.Name)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return c, nil
}

// VerifyRow reads a whole file with a parity row.
func VerifyRow(ctx context.Context, d Files, m *format.Manifest, id format.RowID) (faults []error,
	err error) {
	st, err := StripeIn(m, id.Rank)
	if err != nil {
		return []error{err}, nil
	}
	c, err := OpenRow(d, m.Epoch, id, NewGroup(m, st).Record)
	if err != nil {
		return []error{err}, ctx.Err()
	}
	faults, err = c.Verify(ctx)
	return faults, errors.Join(err, c.Close())
}

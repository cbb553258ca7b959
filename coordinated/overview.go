package coordinated

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/holdfast-hpc/holdfast/coordinated/internal/connect"
	"github.com/holdfast-hpc/holdfast/storage"
)

// overviews are what rank 0 has found in the directories that all share, on its way down the
// control tree: what is the same for all, and the part of each rank below. It travels before the
// agents start, so nothing else is on the way.
//
//	u32 1 if rank 0 has found something, or 0 if it could not look
//	u64 n, n bytes: the same for all
//	for each rank below, itself included: u32 rank, u64 n, n bytes
type overviews struct {
	found  bool
	common []byte
	own    map[int][]byte
}

// overviewPiece is how much of them is one message. A frame may be longer, so that the other side
// sees its pulse meanwhile.
const overviewPiece = 8 << 20

// encode writes them for some ranks.
func (o *overviews) encode(ranks []int) []byte {
	b := make([]byte, 8) // length
	if !o.found {
		b = binary.LittleEndian.AppendUint32(b, 0)
		binary.LittleEndian.PutUint64(b, uint64(len(b)))
		return b
	}
	b = binary.LittleEndian.AppendUint32(b, 1)
	b = appendSized(b, o.common)
	for _, r := range ranks {
		b = appendSized(binary.LittleEndian.AppendUint32(b, uint32(r)), o.own[r])
	}
	binary.LittleEndian.PutUint64(b, uint64(len(b)))
	return b
}

func appendSized(b, data []byte) []byte {
	return append(binary.LittleEndian.AppendUint64(b, uint64(len(data))), data...)
}

// decodeOverviews reads what encode has written, without its length. It keeps b.
func decodeOverviews(b []byte) (*overviews, error) {
	bad := fmt.Errorf("coordinated: what rank 0 has found in the directories is truncated after %d bytes", len(b))
	if len(b) < 4 {
		return nil, bad
	}
	o := &overviews{found: binary.LittleEndian.Uint32(b) == 1, own: map[int][]byte{}}
	if b = b[4:]; !o.found {
		return o, nil
	}
	sized := func() (data []byte, ok bool) {
		if len(b) < 8 || binary.LittleEndian.Uint64(b) > uint64(len(b)-8) {
			return nil, false
		}
		n := 8 + binary.LittleEndian.Uint64(b)
		data, b = b[8:n:n], b[n:]
		return data, true
	}
	var ok bool
	if o.common, ok = sized(); !ok {
		return nil, bad
	}
	for len(b) > 0 {
		if len(b) < 4 {
			return nil, bad
		}
		r := int(binary.LittleEndian.Uint32(b))
		b = b[4:]
		if o.own[r], ok = sized(); !ok {
			return nil, bad
		}
	}
	return o, nil
}

// tell sends them to the ranks below, to all that it can.
func (o *overviews) tell(plane connect.Plane, t *connect.Topology) (err error) {
	for _, c := range t.Children {
		var failed error
		for b := o.encode(t.Below(c)); len(b) > 0 && failed == nil; {
			n := min(len(b), overviewPiece)
			failed = plane.Send(c, b[:n])
			b = b[n:]
		}
		if failed != nil {
			err = errors.Join(err, fmt.Errorf("coordinated: tell rank %d what the directories have: %w", c, failed))
		}
	}
	return err
}

// hearOverviews takes them from the rank above.
func hearOverviews(ctx context.Context, plane connect.Plane, t *connect.Topology) (*overviews, error) {
	var all bytes.Buffer
	for {
		select {
		case in := <-plane.Messages():
			if in.From != t.Parent {
				return nil, fmt.Errorf("coordinated: rank %d speaks before the directories are open", in.From)
			}
			all.Write(in.Payload)
		case l := <-plane.Lost():
			return nil, fmt.Errorf("coordinated: rank %d is lost before the directories are open: %w", l.Rank, l.Err)
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
		b := all.Bytes()
		if len(b) >= 8 && uint64(len(b)) >= binary.LittleEndian.Uint64(b) {
			return decodeOverviews(b[8:])
		}
	}
}

// openTogether opens the store at rank 0 first, which tells the others what it has found. A rank
// that fails tells those below that nothing is found: they open nothing, and learn in the vote that
// follows who has failed. Collective; the error is this rank's own.
func (c *Checkpointer) openTogether(ctx context.Context, opt storage.Options) (err error) {
	o := &overviews{own: map[int][]byte{}}
	defer func() {
		var size *storage.SizeError
		if errors.As(err, &size) {
			if size.Elastic = elasticGo; c.main.far != nil {
				size.Elastic = elasticFar
			}
		}
	}()
	if opt.Rank == 0 {
		return errors.Join(c.openFirst(ctx, opt, o), o.tell(c.plane, c.topo))
	}
	heard, err := hearOverviews(ctx, c.plane, c.topo)
	if err == nil {
		o = heard
	}
	if err = errors.Join(err, o.tell(c.plane, c.topo)); err != nil || !o.found {
		return err
	}
	opt.Told = &storage.Told{Common: o.common, Own: o.own[opt.Rank]}
	c.levels.store, err = storage.Open(ctx, opt)
	return err
}

// openFirst opens the store and looks for all.
func (c *Checkpointer) openFirst(ctx context.Context, opt storage.Options, o *overviews) (err error) {
	if c.levels.store, err = storage.Open(ctx, opt); err != nil {
		return err
	}
	common, own, err := c.levels.store.Overview(ctx)
	if err != nil {
		return err
	}
	o.found, o.common = true, common
	for r := 1; r < opt.Size; r++ {
		o.own[r] = own(r)
	}
	return nil
}

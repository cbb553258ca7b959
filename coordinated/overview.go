package coordinated

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/holdfast-hpc/holdfast/coordinated/internal/connect"
	"github.com/holdfast-hpc/holdfast/internal/codec"
	"github.com/holdfast-hpc/holdfast/storage"
)

// overviews are what rank 0 has found in the directories that all share, on its way down the
// control tree: what is the same for all, and the part of each rank below. It travels before the
// agents start, so nothing else is on the way.
//
// After 8 bytes of length come whether rank 0 has found something or could not look, bytes that are the same for
// all, and for each rank below, itself included, its number and bytes.
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
	w := codec.Writer{B: make([]byte, 8)}
	if w.Bool(o.found); o.found {
		w.Bytes(o.common)
		for _, r := range ranks {
			w.Uint(uint64(r))
			w.Bytes(o.own[r])
		}
	}
	binary.LittleEndian.PutUint64(w.B, uint64(len(w.B)))
	return w.B
}

// decodeOverviews reads what encode has written, without its length. It keeps b.
func decodeOverviews(b []byte) (*overviews, error) {
	r := codec.Reader{B: b}
	o := &overviews{found: r.Bool(), own: map[int][]byte{}}
	if o.found {
		o.common = r.Bytes()
	}
	for o.found && len(r.B) > 0 {
		rank := int(r.Uint())
		o.own[rank] = r.Bytes()
	}
	if err := r.End(); err != nil {
		return nil, fmt.Errorf("coordinated: what rank 0 has found in the directories, %d bytes: %w", len(b), err)
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

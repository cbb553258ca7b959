package gpustate

import (
	"context"

	"github.com/holdfast-hpc/holdfast/gpustate/internal/checkpoint"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/object"
)

// Share is what is taken of a buffer: boxes of its bytes. Together they are one content without gaps, box after box,
// each with its rows and slices one after the other.
type Share struct {
	Buffer *Buffer
	Boxes  []Placed
}

// Placed is a box of a buffer, and where it lies there.
type Placed struct {
	At   Layout
	Size Box
}

// Bytes is the length of the content.
func (s *Share) Bytes() (n int64) {
	for i := range s.Boxes {
		size, _ := s.Boxes[i].Size.driver(Layout{})
		n += size.Bytes()
	}
	return n
}

// areas are the share's boxes.
func (s *Share) areas() []object.Area {
	list := make([]object.Area, len(s.Boxes))
	for i, p := range s.Boxes {
		list[i] = boxOf(s.Buffer, p.Size, p.At)
	}
	return list
}

// lowShares are shares as checkpoints know them.
func lowShares(shares []Share) []checkpoint.Share {
	list := make([]checkpoint.Share, len(shares))
	for i := range shares {
		list[i] = checkpoint.Share{Entry: shares[i].Buffer.e, Areas: shares[i].areas()}
	}
	return list
}

// Device is the device that the memory is on.
func (m memory) Device() *Device { return m.dev }

// CaptureShares is Capture of shares of buffers, and of nothing else: content i is share i, and there is no record.
// A share that fits no block of free device memory goes to host memory whole. Shares that reach beyond their buffer
// match ErrRange, released buffers ErrReleased.
func (d *Device) CaptureShares(ctx context.Context, shares []Share, alloc func(bytes int) []byte) (*Capture, error) {
	if err := d.stop(ctx); err != nil {
		return nil, err
	}
	defer d.start()
	return d.state.CaptureShares(ctx, lowShares(shares), alloc)
}

// A ShareWriter writes boxes of a device's buffers, in WriteShares.
type ShareWriter struct {
	w *checkpoint.Writer
}

// Write copies a box of src, where from says, to a buffer, where at says, and returns when that is done.
func (w *ShareWriter) Write(b *Buffer, at Layout, size Box, src []byte, from Layout) error {
	a := boxOf(b, size, at)
	_, there := size.driver(from)
	return w.w.Write(a, src, there)
}

// WriteShares stops the device as Capture does and has fill write to its buffers, which then count as restored. The
// writer is of no use afterwards. After an error the bytes of what was written are undefined.
func (d *Device) WriteShares(ctx context.Context, fill func(w *ShareWriter) error) error {
	return d.writeShares(ctx, true, fill)
}

func (d *Device) writeShares(ctx context.Context, known bool, fill func(w *ShareWriter) error) error {
	if err := d.stop(ctx); err != nil {
		return err
	}
	defer d.start()
	return d.state.Writing(known, func(w *checkpoint.Writer) error { return fill(&ShareWriter{w}) })
}

// ShareMark is what shares of buffers held: Undo brings it back. The caller releases it.
type ShareMark struct {
	d      *Device
	shares []Share
	before *Capture // nil: nothing had written to the device's memory
}

// MarkShares notes what shares of buffers hold. Like Mark it is cheap as long as nothing has written to the device's
// memory; otherwise it costs a CaptureShares, with alloc for the host memory.
func (d *Device) MarkShares(ctx context.Context, shares []Share, alloc func(bytes int) []byte) (*ShareMark, error) {
	if err := d.stop(ctx); err != nil {
		return nil, err
	}
	defer d.start()
	m := &ShareMark{d: d, shares: shares}
	if d.untouched() {
		return m, nil
	}
	var err error
	m.before, err = d.state.CaptureShares(ctx, lowShares(shares), alloc)
	return m, err
}

// Undo gives the shares their earlier bytes: zeros where nothing had written to the device's memory.
func (m *ShareMark) Undo(ctx context.Context) error {
	var scratch []byte
	return m.d.writeShares(ctx, false, func(w *ShareWriter) error {
		for i := range m.shares {
			s, off := &m.shares[i], int64(0)
			for _, whole := range s.areas() {
				for _, a := range whole.Cut(checkpoint.PieceBytes) {
					n := a.Content()
					if int64(len(scratch)) < n {
						scratch = make([]byte, n)
					}
					if m.before != nil {
						if err := m.before.ReadAt(ctx, i, scratch[:n], off); err != nil {
							return err
						}
					}
					off += n
					if err := w.w.Write(a, scratch[:n], a.Size.Packed()); err != nil {
						return err
					}
				}
			}
		}
		return nil
	})
}

// Release frees the mark's memory.
func (m *ShareMark) Release() error {
	if m == nil || m.before == nil {
		return nil
	}
	return m.before.Release()
}

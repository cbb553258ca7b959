package gpustate

import (
	"context"

	"github.com/holdfast-hpc/holdfast/gpustate/internal/checkpoint"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/chunkhash"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/driver"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/object"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/record"
)

// Capture is the state of a device at one moment. It is complete when the Capture method returns it; some of the bytes
// may still be on the device, in a copy that the program cannot reach. The caller releases it. All its calls are local.
//
//	func Record() []byte       // the description of all objects, for Restore
//	func Contents() []Content  // the memory objects whose bytes it holds, in order of creation
//	// ReadAt copies bytes of content i from off on into all of dst. It may be
//	// called from several goroutines, while the program runs. Bytes that the content
//	// lacks match ErrRange.
//	func ReadAt(ctx context.Context, i int, dst []byte, off int64) error
//	// Slice returns the bytes of content i from off on when they lie in host memory in one
//	// piece, otherwise nil. It is valid until Release and must not be written to.
//	func Slice(i int, off, n int64) []byte
//	// Hashes computes, for each content in order, the hashes of its chunks that lie in
//	// device memory, there; others have the zero Hash. A device that cannot run the kernel
//	// gives an error that matches ErrUnsupported. The program may run meanwhile.
//	func Hashes(ctx context.Context) ([][]Hash, error)
//	// Release frees the capture's device memory; host memory of alloc may be reused. No
//	// ReadAt may be in progress. Further calls do nothing.
//	func Release() error
type Capture = checkpoint.Capture

// Content is the bytes of one memory object.
//
//	ID    uint64 // the object's, unique within the device
//	Name  string // the program's name, may be empty
//	Bytes int64
type Content = checkpoint.Content

// HashBytes is the length in bytes of a chunk that one Hash covers; the last chunk of a content may be shorter.
const HashBytes = chunkhash.Bytes

// Hash is 128 bits of a chunk of a content. Two chunks of one length and with equal hashes of one Device in one process
// have the same bytes: another result has a probability below 2^-126 for each comparison, whatever the bytes are. No
// chunk has the zero Hash: it means unknown.
type Hash = chunkhash.Sum

// StateBytes returns the sum of the bytes of all memory objects: the most that a capture holds, besides its record. It
// asks no driver.
func (d *Device) StateBytes() int64 {
	d.making.Lock()
	defer d.making.Unlock()
	var sum int64
	for _, e := range d.state.List {
		if e.Record.Mem.HasContents() {
			sum += e.Record.Mem.Bytes
		}
	}
	return sum
}

// Capture waits for all commands and takes the state of the device. Calls on the device's objects wait meanwhile.
//
// Bytes go into free device memory when there is room, in a hundredth of the time of a copy to the host. The rest goes
// into host memory. alloc returns that memory, of the length that it is asked for. It belongs to the capture until
// Release. If alloc returns nil, the capture allocates memory. Give memory that has been used before: the first use of
// pages costs more than the copy.
//
// When ctx ends while commands are still running, Capture returns its cause and the program continues. When a restart
// could not tell the objects apart, the error matches ErrIdentity and names one of them.
//
// Within Foreign of this device the error matches ErrInForeign. After an error there is no capture to release.
func (d *Device) Capture(ctx context.Context, alloc func(bytes int) []byte) (*Capture, error) {
	if err := d.stop(ctx); err != nil {
		return nil, err
	}
	defer d.start()
	if err := d.state.Distinct(); err != nil {
		return nil, err
	}
	return d.state.Capture(ctx, alloc)
}

// LimitShadow bounds the device memory, in bytes, that captures may use for copies; the rest goes to the host while the
// program waits. A negative value, the default, allows all free memory; 0 allows none. CPU devices never use any, since
// their memory is the host's. It holds for later captures.
func (d *Device) LimitShadow(bytes int64) {
	d.making.Lock()
	defer d.making.Unlock()
	d.state.Limit = bytes
}

// Mark is the state of a device, or of shares of its buffers: Undo reverses the restores and writes since then. The
// caller releases it.
type Mark struct {
	before  *Capture // nil: nothing had written to the device's memory
	restore func(ctx context.Context, read contents) error
}

// contents fills dst with bytes of content i from off on.
type contents = func(i int, dst []byte, off int64) error

// Mark records the state of the device. It waits for all commands. It is cheap as long as the program has issued no
// command and restored nothing, which is usual before a Restore. Otherwise it costs a Capture, with alloc for the host
// memory. Errors are those of Capture.
func (d *Device) Mark(ctx context.Context, alloc func(bytes int) []byte) (*Mark, error) {
	if err := d.stop(ctx); err != nil {
		return nil, err
	}
	defer d.start()
	rec := d.state.Table.Record().Encode()
	m := &Mark{restore: func(ctx context.Context, read contents) error { return d.Restore(ctx, rec, read) }}
	return m, m.take(d, func() (*Capture, error) { return d.state.Capture(ctx, alloc) })
}

// take takes the contents of a stopped device, if there are any.
func (m *Mark) take(d *Device, capture func() (*Capture, error)) (err error) {
	if !d.untouched() {
		m.before, err = capture()
	}
	return err
}

// untouched reports whether the device's memory was never written: no command was
// given to it, nothing was restored, and no object that might have had a command was
// released. The device is stopped.
func (d *Device) untouched() bool {
	if d.state.Filled || d.lent.Load() || int(d.state.NextID) != len(d.state.List) {
		return false
	}
	for _, e := range d.state.List {
		if q, ok := e.Public.(*Queue); ok && q.commands.used {
			return false
		}
		if m := e.Record.Mem; m != nil && (m.Kind == driver.MemHost || m.Kind == driver.MemShared) {
			return false // the host writes to it without a command
		}
		if object.IsVariable(&e.Record) || e.Adopted != 0 { // it may begin with another value than zero
			return false
		}
	}
	return true
}

// Undo returns the device, or the shares, to the mark: it releases objects that a Restore has made since, and gives the
// others their earlier bytes and arguments. Memory that nothing had written to is zero. It costs a Restore, or a
// WriteShares, and has its errors.
func (m *Mark) Undo(ctx context.Context) error {
	return m.restore(ctx, func(i int, dst []byte, off int64) error {
		if m.before == nil {
			clear(dst)
			return nil
		}
		return m.before.ReadAt(ctx, i, dst, off)
	})
}

// Release frees the mark's memory. Further calls do nothing.
func (m *Mark) Release() error {
	if m == nil || m.before == nil {
		return nil
	}
	return m.before.Release()
}

// Restore brings the objects and bytes of a capture to this device. It fills the objects that the program has made
// already, and makes new ones for the rest. The program gets those when it asks for them. Objects are found by name or,
// without one, by the order in which the program makes those of a kind, including released ones. A capture of this very
// device finds its own objects, whatever their names are now. An object that the program has released since the capture
// is there again for the kernels that use it. The program gets it by its name; without a name it does not. Objects that
// the capture did not hold stay as they are. Kernels get the arguments that they had. An existing program keeps its
// source, so a restart may bring a corrected one. Objects that an earlier Restore made and the program has not asked
// for are released first.
//
// A program whose binary form this device does not load is built from its source, if it has one: BuiltFromSource lists
// it.
//
// rec is the result of Capture.Record. read fills dst with bytes of content i from off on; several goroutines call it
// at once, for less than 8 MiB per call.
//
// Every object of the record is checked before anything changes. A limit of this device, a program without a source for
// it, or an existing object that differs is an *ObjectError. After a later failure, objects that Restore made are
// released, and the bytes of those that the program made are undefined.
//
// The device stands still meanwhile, as for a Capture. A record that is damaged matches ErrRecord, a mapped
// shared buffer ErrMapped. An error of read ends the restore and is returned.
func (d *Device) Restore(ctx context.Context, rec []byte, read func(i int, dst []byte, off int64) error) error {
	_, err := d.restore(ctx, rec, read, false)
	return err
}

// RestoreHashed restores, and before the program can change anything it hashes each content of the record, in order.
// Hashes of a later capture of the same bytes returns the same. Chunks that no capture has in device memory have the
// zero Hash. The result is nil if the device cannot compute them: nothing is known then, and the restore is as good.
// Cost: one pass over the restored device memory, by the device.
func (d *Device) RestoreHashed(ctx context.Context, rec []byte, read func(i int, dst []byte, off int64) error) (
	hashes [][]Hash, err error) {
	return d.restore(ctx, rec, read, true)
}

func (d *Device) restore(ctx context.Context, rec []byte, read func(i int, dst []byte, off int64) error, hashed bool) (
	[][]Hash, error) {
	r, err := record.Decode(rec)
	if err != nil {
		return nil, err
	}
	if err := d.stop(ctx); err != nil {
		return nil, err
	}
	defer d.start()
	return d.state.Restore(ctx, r, read, hashed)
}

// Ordered checks that the program, since a Restore, has asked for unnamed memory in the
// original order. If not, the error matches ErrIdentity and names a restored object that
// the program skipped, so that it works on an undefined one instead. A capture checks
// this too.
func (d *Device) Ordered() error {
	d.making.Lock()
	defer d.making.Unlock()
	return d.state.Ordered("restore")
}

// RecordedContent describes the bytes of one memory object by its device's record.
type RecordedContent struct {
	Content
	Kind string // "buffer", "image", "shared buffer", "host buffer" or "program variable"
}

// RecordedContents returns the Contents that the record of a Capture lists, in their order, without a device. A damaged
// record matches ErrRecord.
func RecordedContents(b []byte) ([]RecordedContent, error) {
	r, err := record.Decode(b)
	if err != nil {
		return nil, err
	}
	var out []RecordedContent
	for _, o := range r.Contents() {
		out = append(out, RecordedContent{Content{ID: o.ID, Name: o.Name, Bytes: o.Mem.Bytes}, o.Kind()})
	}
	return out, nil
}

// Share is a part of a buffer: boxes of its bytes. Together they are one content without gaps, box after box, each with
// its rows and slices one after the other.
type Share struct {
	Buffer *Buffer
	Boxes  []Placed
}

// Placed is a box of a buffer and its layout there.
type Placed struct {
	At   Layout
	Size Box
}

// Bytes returns the length of the content in bytes.
func (s *Share) Bytes() (n int64) {
	for i := range s.Boxes {
		size, _ := s.Boxes[i].Size.driver(Layout{})
		n += size.Bytes()
	}
	return n
}

// areas returns the share's boxes.
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

// Device returns the device that the memory is on.
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

// ShareWriter writes boxes of a device's buffers, in WriteShares.
type ShareWriter struct {
	w *checkpoint.Writer
}

// Write copies a box of src, where from says, to a buffer, where at says, and returns when that is done. src is then
// free.
func (w *ShareWriter) Write(b *Buffer, at Layout, size Box, src []byte, from Layout) error {
	a := boxOf(b, size, at)
	_, there := size.driver(from)
	return w.w.Write(a, src, there)
}

// WriteShares stops the device as Capture does and has fill write to its buffers, which then count as restored. fill
// calls nothing else of the device, which would wait for fill without end. The writer is of no use afterwards. After an
// error the bytes that were to be written are undefined.
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

// MarkShares records the contents of shares of buffers. Like Mark it is cheap as long as nothing has written to the
// device's memory; otherwise it costs a CaptureShares, with alloc for the host memory. It keeps shares until Release.
func (d *Device) MarkShares(ctx context.Context, shares []Share, alloc func(bytes int) []byte) (*Mark, error) {
	if err := d.stop(ctx); err != nil {
		return nil, err
	}
	defer d.start()
	m := &Mark{restore: func(ctx context.Context, read contents) error {
		return d.writeShares(ctx, false, func(w *ShareWriter) error { return w.rewrite(shares, read) })
	}}
	return m, m.take(d, func() (*Capture, error) { return d.state.CaptureShares(ctx, lowShares(shares), alloc) })
}

// rewrite writes contents of shares, in pieces.
func (w *ShareWriter) rewrite(shares []Share, read contents) error {
	var scratch []byte
	for i := range shares {
		off := int64(0)
		for _, whole := range shares[i].areas() {
			for _, a := range whole.Cut(checkpoint.PieceBytes) {
				n := a.Content()
				if int64(len(scratch)) < n {
					scratch = make([]byte, n)
				}
				if err := read(i, scratch[:n], off); err != nil {
					return err
				}
				off += n
				if err := w.w.Write(a, scratch[:n], a.Size.Packed()); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

package cl

import (
	"fmt"

	"github.com/holdfast-hpc/holdfast/gpustate/internal/driver"
)

func (d *device) Write(q, h driver.Handle, off int64, src []byte, blocking bool, wait []driver.Event) (driver.Event,
	error) {
	m := h.(*mem)
	if m.needsMap() {
		return d.throughMap(q, m, off, len(src), wait, func(b []byte) error { return copyAll(b, src) })
	}
	return writeBuffer(q.(queue).h, m.h, off, src, blocking, wait)
}

func (d *device) Read(q, h driver.Handle, off int64, dst []byte, blocking bool, wait []driver.Event) (driver.Event,
	error) {
	m := h.(*mem)
	if m.needsMap() {
		return d.throughMap(q, m, off, len(dst), wait, func(b []byte) error { return copyAll(dst, b) })
	}
	return readBuffer(q.(queue).h, m.h, off, dst, blocking, wait)
}

// needsMap says whether no read or write command reaches the object: one of SVM, and one
// that the program has mapped, whose bytes are the host's.
func (m *mem) needsMap() bool {
	if m.svm || !m.shared {
		return m.svm
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.mapped != 0
}

// throughMap lets the host touch n bytes of a shared object from off on and is complete
// when it returns. Transfers of one object take turns: the end of one mapping would end
// the other's.
func (d *device) throughMap(q driver.Handle, m *mem, off int64, n int, wait []driver.Event,
	do func([]byte) error) (driver.Event, error) {
	if n == 0 || off < 0 || int64(n) > m.bytes-off {
		return 0, &driver.CallError{Call: "copy of shared memory", Code: invalidValue,
			Text: fmt.Sprintf("bytes %d+%d of %d", off, n, m.bytes)}
	}
	if err := waitAll(wait); err != nil {
		return 0, err
	}
	if err := finish(q.(queue).h); err != nil {
		return 0, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.mapped != 0 { // the program has it mapped: these are the bytes
		return 0, do(memory(m.mapped, m.bytes)[off : off+int64(n)])
	}
	if !m.svm { // it was mapped a moment ago
		b, err := m.mapFor(q)
		if err != nil {
			return 0, err
		}
		return 0, firstError(do(b[off:off+int64(n)]), m.unmapFor(q))
	}
	at := m.h + handle(off)
	if err := svmMap(q.(queue).h, at, int64(n)); err != nil {
		return 0, err
	}
	err := do(memory(at, int64(n)))
	// commands of other queues, and of this one out of order, see the bytes when
	// the unmapping is complete
	return 0, firstError(err, svmUnmap(q.(queue).h, at), finish(q.(queue).h))
}

// copyAll is copy that fails when dst is the shorter one.
func copyAll(dst, src []byte) error {
	if len(dst) < len(src) {
		return &driver.CallError{Call: "copy of shared memory", Code: invalidValue,
			Text: fmt.Sprintf("%d bytes into a range of %d", len(src), len(dst))}
	}
	copy(dst, src)
	return nil
}

func (d *device) Copy(q, dst driver.Handle, dstOff int64, src driver.Handle, srcOff, n int64,
	wait []driver.Event) (driver.Event, error) {
	to, from := dst.(*mem), src.(*mem)
	switch {
	case from.svm && !to.svm:
		return d.throughMap(q, from, srcOff, int(n), wait, func(b []byte) error {
			_, err := d.Write(q, dst, dstOff, b, true, nil)
			return err
		})
	case to.svm: // one after the other: two objects at a time could be another copy's in the other order
		tmp := make([]byte, n)
		if _, err := d.Read(q, src, srcOff, tmp, true, wait); err != nil {
			return 0, err
		}
		return d.Write(q, dst, dstOff, tmp, true, nil)
	}
	return copyBuffer(q.(queue).h, to.h, dstOff, from.h, srcOff, n, wait)
}

func (d *device) WriteImage(q, h driver.Handle, r driver.Region, src []byte, blocking bool,
	wait []driver.Event) (driver.Event, error) {
	return writeImage(q.(queue).h, h.(*mem).h, r, src, blocking, wait)
}

func (d *device) ReadImage(q, h driver.Handle, r driver.Region, dst []byte, blocking bool,
	wait []driver.Event) (driver.Event, error) {
	return readImage(q.(queue).h, h.(*mem).h, r, dst, blocking, wait)
}

func (d *device) CopyImageToBuffer(q, dst driver.Handle, dstOff int64, image driver.Handle, r driver.Region,
	wait []driver.Event) (driver.Event, error) {
	to := dst.(*mem)
	if to.svm {
		return d.imageToHost(q, image, r, wait, func(b []byte) (driver.Event, error) {
			return d.Write(q, dst, dstOff, b, true, nil)
		})
	}
	h, off := to.whole(dstOff)
	from := image.(*mem)
	err := strictLines("clEnqueueCopyImageToBuffer", from)
	if err == nil {
		var e driver.Event
		if e, err = imageToBuffer(q.(queue).h, from.h, h, r, off, wait); err == nil {
			return e, nil
		}
	}
	if !from.lines || !refused(err) {
		return 0, err
	}
	return d.linesToBuffer(q, to, dstOff, from, r, wait)
}

// whole is the buffer of a range, and where an offset in the range is in it: PoCL 3.1 ends
// the program when a range is copied to an image, or by boxes.
func (m *mem) whole(off int64) (handle, int64) {
	if m.parent != 0 {
		return m.parent, m.off + off
	}
	return m.h, off
}

// imageToHost reads a region and hands its pixels on. No command copies between images
// and SVM.
func (d *device) imageToHost(q, image driver.Handle, r driver.Region, wait []driver.Event,
	then func([]byte) (driver.Event, error)) (driver.Event, error) {
	b := make([]byte, r.Pixels()*image.(*mem).pixel)
	if _, err := d.ReadImage(q, image, r, b, true, wait); err != nil {
		return 0, err
	}
	return then(b)
}

func (d *device) CopyBufferToImage(q, image driver.Handle, r driver.Region, src driver.Handle, srcOff int64,
	wait []driver.Event) (driver.Event, error) {
	from, to := src.(*mem), image.(*mem)
	if from.svm {
		n := r.Pixels() * to.pixel
		return d.throughMap(q, from, srcOff, n, wait, func(b []byte) error {
			_, err := d.WriteImage(q, image, r, b, true, nil)
			return err
		})
	}
	h, off := from.whole(srcOff)
	err := strictLines("clEnqueueCopyBufferToImage", to)
	if err == nil {
		var e driver.Event
		if e, err = bufferToImage(q.(queue).h, h, off, to.h, r, wait); err == nil {
			return e, nil
		}
	}
	if !to.lines || !refused(err) {
		return 0, err
	}
	return d.bufferToLines(q, to, r, from, srcOff, wait)
}

func (d *device) CopyImage(q, dst driver.Handle, to [3]int, src driver.Handle, r driver.Region,
	wait []driver.Event) (driver.Event, error) {
	return copyImage(q.(queue).h, dst.(*mem).h, to, src.(*mem).h, r, wait)
}

func (d *device) FillImage(q, image driver.Handle, r driver.Region, c driver.Color,
	wait []driver.Event) (driver.Event, error) {
	return fillImage(q.(queue).h, image.(*mem).h, r, c, wait)
}

func (d *device) Fill(q, h driver.Handle, off, n int64, pattern []byte, wait []driver.Event) (driver.Event, error) {
	m := h.(*mem)
	if m.needsMap() {
		return d.throughMap(q, m, off, int(n), wait, func(b []byte) error { driver.Repeat(b, pattern); return nil })
	}
	return fillBuffer(q.(queue).h, m.h, off, n, pattern, wait)
}

func (d *device) WriteRect(q, h driver.Handle, r driver.Rect, src []byte, blocking bool,
	wait []driver.Event) (driver.Event, error) {
	m := h.(*mem)
	if m.needsMap() {
		return d.throughMap(q, m, 0, int(m.bytes), wait, func(b []byte) error { r.CopyRows(b, src); return nil })
	}
	fit := func(r driver.Rect) bool { return holds(r.To, r.Size, m.bytes) }
	return inPieces(r, fit, blocking, wait, func(r driver.Rect, block bool, wait []driver.Event) (driver.Event, error) {
		if err := strictBox("clEnqueueWriteBufferRect", r.To, r.Size, m.bytes); err != nil {
			return 0, err
		}
		return writeRect(q.(queue).h, m.h, r, src, block, wait)
	})
}

func (d *device) ReadRect(q, h driver.Handle, r driver.Rect, dst []byte, blocking bool,
	wait []driver.Event) (driver.Event, error) {
	m := h.(*mem)
	if m.needsMap() {
		return d.throughMap(q, m, 0, int(m.bytes), wait, func(b []byte) error { r.CopyRows(dst, b); return nil })
	}
	fit := func(r driver.Rect) bool { return holds(r.From, r.Size, m.bytes) }
	return inPieces(r, fit, blocking, wait, func(r driver.Rect, block bool, wait []driver.Event) (driver.Event, error) {
		if err := strictBox("clEnqueueReadBufferRect", r.From, r.Size, m.bytes); err != nil {
			return 0, err
		}
		return readRect(q.(queue).h, m.h, r, dst, block, wait)
	})
}

// CopyRect packs the box on its way from or to SVM: one object is mapped at a time.
func (d *device) CopyRect(q, dst, src driver.Handle, r driver.Rect, wait []driver.Event) (driver.Event, error) {
	to, from := dst.(*mem), src.(*mem)
	if !to.svm && !from.svm {
		t, tOff := to.whole(r.To.Off)
		f, fOff := from.whole(r.From.Off)
		r.To.Off, r.From.Off = tOff, fOff
		return inPieces(r, func(r driver.Rect) bool {
			return holds(r.To, r.Size, to.room) && holds(r.From, r.Size, from.room)
		}, false, wait, func(r driver.Rect, _ bool, wait []driver.Event) (driver.Event, error) {
			const call = "clEnqueueCopyBufferRect"
			if err := firstError(strictBox(call, r.To, r.Size, to.room),
				strictBox(call, r.From, r.Size, from.room)); err != nil {
				return 0, err
			}
			return copyRect(q.(queue).h, t, f, r, wait)
		})
	}
	b := make([]byte, r.Size.Bytes())
	if _, err := d.ReadRect(q, src, driver.Rect{Size: r.Size, To: r.Size.Packed(), From: r.From}, b, true,
		wait); err != nil {
		return 0, err
	}
	return d.WriteRect(q, dst, driver.Rect{Size: r.Size, To: r.To, From: r.Size.Packed()}, b, true, nil)
}

func (d *device) Barrier(q driver.Handle, wait []driver.Event) (driver.Event, error) {
	return barrier(q.(queue).h, wait)
}

func (d *device) Marker(q driver.Handle, wait []driver.Event) (driver.Event, error) {
	return marker(q.(queue).h, wait)
}

func (d *device) WaitEvent(e driver.Event) error {
	if e == 0 {
		return nil
	}
	waiting := waitEvent(e)
	if _, err := d.EventDone(e); err != nil {
		return err // the command's own failure says more
	}
	return waiting
}

func (d *device) EventDone(e driver.Event) (bool, error) {
	if e == 0 {
		return true, nil
	}
	status, err := eventStatus(e)
	if err != nil {
		return false, err
	}
	if status < 0 {
		return true, check("command", int32(status))
	}
	return status == 0, nil
}

// Running is what the platform tells.
func (d *device) Running(e driver.Event) (bool, error) {
	if e == 0 {
		return false, nil
	}
	const running = 1
	status, err := eventStatus(e)
	return status == running, err
}

func (d *device) EventTimes(e driver.Event) (driver.Times, error) { return eventTimes(e) }

func (d *device) ReleaseEvent(e driver.Event) {
	if e != 0 {
		releaseEvent(e)
	}
}

// pinned is host memory that the platform allocated and keeps mapped.
type pinned struct {
	q, buf handle
	p      handle
	bytes  int
}

func (d *device) AllocPinned(bytes int) (driver.Pinned, error) {
	q, err := createQueue(d.ctx, d.device, d.version >= 20, 0, 0)
	if err != nil {
		return nil, err
	}
	p := &pinned{q: q, bytes: bytes}
	if p.buf, err = createBuffer(d.ctx, memReadWrite|memAllocHost, int64(bytes), nil); err != nil {
		return nil, firstError(err, releaseQueue(q))
	}
	const readWrite = 3
	if p.p, err = mapBuffer(q, p.buf, readWrite, int64(bytes)); err != nil {
		return nil, firstError(err, releaseMem(p.buf), releaseQueue(q))
	}
	return p, nil
}

func (p *pinned) Bytes() []byte { return memory(p.p, int64(p.bytes)) }

func (p *pinned) Free() error {
	return firstError(unmap(p.q, p.buf, p.p), releaseMem(p.buf), releaseQueue(p.q))
}

func firstError(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// linesToBuffer copies from an array of images of one dimension on platforms that refuse
// this copy, by way of the host. It is complete when it returns.
func (d *device) linesToBuffer(q driver.Handle, dst *mem, off int64, image *mem, r driver.Region,
	wait []driver.Event) (driver.Event, error) {
	if err := waitAll(wait); err != nil {
		return 0, err
	}
	return d.imageToHost(q, image, r, nil, func(b []byte) (driver.Event, error) {
		return d.Write(q, dst, off, b, true, nil)
	})
}

// bufferToLines is the way back.
func (d *device) bufferToLines(q driver.Handle, image *mem, r driver.Region, src *mem, off int64,
	wait []driver.Event) (driver.Event, error) {
	if err := waitAll(wait); err != nil {
		return 0, err
	}
	b := make([]byte, r.Pixels()*image.pixel)
	if _, err := d.Read(q, src, off, b, true, nil); err != nil {
		return 0, err
	}
	return d.WriteImage(q, image, r, b, true, nil)
}

func waitAll(wait []driver.Event) error {
	for _, e := range wait {
		if err := waitEvent(e); err != nil {
			return err
		}
	}
	return nil
}

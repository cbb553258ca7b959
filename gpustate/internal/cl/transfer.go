package cl

/*
#include "table.h"
*/
import "C"

import (
	"cmp"
	"fmt"
	"time"
	"unsafe"

	"github.com/holdfast-hpc/holdfast/gpustate/internal/driver"
)

func (d *device) Write(q, h driver.Handle, off int64, src []byte, blocking bool, wait []driver.Event) (driver.Event,
	error) {
	m := h.(*mem)
	if m.needsMap() {
		return d.throughMap(q, m, off, len(src), wait, func(b []byte) { copy(b, src) })
	}
	n, w := waitList(wait)
	return eventBy("clEnqueueWriteBuffer", C.hfcl_write(q.(queue).h, m.h, cbool(blocking), C.size_t(off),
		C.size_t(len(src)), bytesOf(src), n, w))
}

func (d *device) Read(q, h driver.Handle, off int64, dst []byte, blocking bool, wait []driver.Event) (driver.Event,
	error) {
	m := h.(*mem)
	if m.needsMap() {
		return d.throughMap(q, m, off, len(dst), wait, func(b []byte) { copy(dst, b) })
	}
	n, w := waitList(wait)
	return eventBy("clEnqueueReadBuffer", C.hfcl_read(q.(queue).h, m.h, cbool(blocking), C.size_t(off),
		C.size_t(len(dst)), bytesOf(dst), n, w))
}

// needsMap reports whether no read or write command reaches the object: one of SVM, and one
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
	do func([]byte)) (driver.Event, error) {
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
		do(memory(m.mapped, m.bytes)[off : off+int64(n)])
		return 0, nil
	}
	if !m.svm { // it was just mapped
		b, err := m.mapFor(q)
		if err != nil {
			return 0, err
		}
		do(b[off : off+int64(n)])
		return 0, m.unmapFor(q)
	}
	at := m.h + handle(off)
	if err := svmMap(q.(queue).h, at, int64(n)); err != nil {
		return 0, err
	}
	do(memory(at, int64(n)))
	// commands of other queues, and of this one out of order, see the bytes when
	// the unmapping is complete, as it is then
	return 0, svmUnmap(q.(queue).h, at)
}

func (d *device) Copy(q, dst driver.Handle, dstOff int64, src driver.Handle, srcOff, n int64,
	wait []driver.Event) (driver.Event, error) {
	to, from := dst.(*mem), src.(*mem)
	if from.svm || to.svm { // one after the other: two objects at a time could be another copy's in the other order
		tmp := make([]byte, n)
		if _, err := d.Read(q, src, srcOff, tmp, true, wait); err != nil {
			return 0, err
		}
		return d.Write(q, dst, dstOff, tmp, true, nil)
	}
	waits, w := waitList(wait)
	return eventBy("clEnqueueCopyBuffer", C.hfcl_copy(q.(queue).h, to.h, C.size_t(dstOff), from.h, C.size_t(srcOff),
		C.size_t(n), waits, w))
}

func (d *device) WriteImage(q, h driver.Handle, r driver.Region, src []byte, blocking bool,
	wait []driver.Event) (driver.Event, error) {
	n, w := waitList(wait)
	return eventBy("clEnqueueWriteImage", C.hfcl_write_image(q.(queue).h, h.(*mem).h, cbool(blocking), box(r),
		bytesOf(src), n, w))
}

func (d *device) ReadImage(q, h driver.Handle, r driver.Region, dst []byte, blocking bool,
	wait []driver.Event) (driver.Event, error) {
	n, w := waitList(wait)
	return eventBy("clEnqueueReadImage", C.hfcl_read_image(q.(queue).h, h.(*mem).h, cbool(blocking), box(r),
		bytesOf(dst), n, w))
}

// CopyImageToBuffer goes by way of the host where no command copies: to SVM, and, on NVIDIA's platform, from an
// array of images of one dimension.
func (d *device) CopyImageToBuffer(q, dst driver.Handle, dstOff int64, image driver.Handle, r driver.Region,
	wait []driver.Event) (driver.Event, error) {
	to, from := dst.(*mem), image.(*mem)
	if to.svm || from.lines {
		b := make([]byte, r.Pixels()*from.pixel)
		if _, err := d.ReadImage(q, image, r, b, true, wait); err != nil {
			return 0, err
		}
		return d.Write(q, dst, dstOff, b, true, nil)
	}
	h, off := to.whole(dstOff)
	n, w := waitList(wait)
	return eventBy("clEnqueueCopyImageToBuffer",
		C.hfcl_image_to_buffer(q.(queue).h, from.h, h, box(r), C.size_t(off), n, w))
}

// whole returns the buffer of a range, and the offset in it of an offset in the range: PoCL 3.1 ends
// the program when a range is copied to an image, or by boxes.
func (m *mem) whole(off int64) (handle, int64) {
	if m.parent != 0 {
		return m.parent, m.off + off
	}
	return m.h, off
}

// CopyBufferToImage reverses CopyImageToBuffer.
func (d *device) CopyBufferToImage(q, image driver.Handle, r driver.Region, src driver.Handle, srcOff int64,
	wait []driver.Event) (driver.Event, error) {
	from, to := src.(*mem), image.(*mem)
	if from.svm || to.lines {
		b := make([]byte, r.Pixels()*to.pixel)
		if _, err := d.Read(q, src, srcOff, b, true, wait); err != nil {
			return 0, err
		}
		return d.WriteImage(q, image, r, b, true, nil)
	}
	h, off := from.whole(srcOff)
	n, w := waitList(wait)
	return eventBy("clEnqueueCopyBufferToImage",
		C.hfcl_buffer_to_image(q.(queue).h, h, C.size_t(off), to.h, box(r), n, w))
}

func (d *device) CopyImage(q, dst driver.Handle, to [3]int, src driver.Handle, r driver.Region,
	wait []driver.Event) (driver.Event, error) {
	n, w := waitList(wait)
	return eventBy("clEnqueueCopyImage", C.hfcl_copy_image(q.(queue).h, dst.(*mem).h, box(driver.Region{Origin: to}),
		src.(*mem).h, box(r), n, w))
}

func (d *device) FillImage(q, image driver.Handle, r driver.Region, c driver.Color,
	wait []driver.Event) (driver.Event, error) {
	n, w := waitList(wait)
	return eventBy("clEnqueueFillImage",
		C.hfcl_fill_image(q.(queue).h, image.(*mem).h, bytesOf(c[:]), box(r), n, w))
}

func (d *device) Fill(q, h driver.Handle, off, n int64, pattern []byte, wait []driver.Event) (driver.Event, error) {
	m := h.(*mem)
	if m.needsMap() {
		return d.throughMap(q, m, off, int(n), wait, func(b []byte) { driver.Repeat(b, pattern) })
	}
	waits, w := waitList(wait)
	return eventBy("clEnqueueFillBuffer", C.hfcl_fill(q.(queue).h, m.h, bytesOf(pattern), C.size_t(len(pattern)),
		C.size_t(off), C.size_t(n), waits, w))
}

func (d *device) WriteRect(q, h driver.Handle, r driver.Rect, src []byte, blocking bool,
	wait []driver.Event) (driver.Event, error) {
	m := h.(*mem)
	if m.needsMap() {
		return d.throughMap(q, m, 0, int(m.bytes), wait, func(b []byte) { r.CopyRows(b, src) })
	}
	fit := func(r driver.Rect) bool { return holds(r.To, r.Size, m.bytes) }
	const call = "clEnqueueWriteBufferRect"
	return inPieces(r, call, fit, blocking, wait, func(r driver.Rect, block bool, n C.uint32_t, w *handle) C.made {
		return C.hfcl_write_rect(q.(queue).h, m.h, cbool(block), rect(r), bytesOf(src), n, w)
	})
}

func (d *device) ReadRect(q, h driver.Handle, r driver.Rect, dst []byte, blocking bool,
	wait []driver.Event) (driver.Event, error) {
	m := h.(*mem)
	if m.needsMap() {
		return d.throughMap(q, m, 0, int(m.bytes), wait, func(b []byte) { r.CopyRows(dst, b) })
	}
	fit := func(r driver.Rect) bool { return holds(r.From, r.Size, m.bytes) }
	const call = "clEnqueueReadBufferRect"
	return inPieces(r, call, fit, blocking, wait, func(r driver.Rect, block bool, n C.uint32_t, w *handle) C.made {
		return C.hfcl_read_rect(q.(queue).h, m.h, cbool(block), rect(r), bytesOf(dst), n, w)
	})
}

// CopyRect packs the box on its way from or to SVM: one object is mapped at a time.
func (d *device) CopyRect(q, dst, src driver.Handle, r driver.Rect, wait []driver.Event) (driver.Event, error) {
	to, from := dst.(*mem), src.(*mem)
	if !to.svm && !from.svm {
		t, tOff := to.whole(r.To.Off)
		f, fOff := from.whole(r.From.Off)
		r.To.Off, r.From.Off = tOff, fOff
		fit := func(r driver.Rect) bool {
			return holds(r.To, r.Size, to.room) && holds(r.From, r.Size, from.room)
		}
		const call = "clEnqueueCopyBufferRect"
		return inPieces(r, call, fit, false, wait, func(r driver.Rect, _ bool, n C.uint32_t, w *handle) C.made {
			return C.hfcl_copy_rect(q.(queue).h, t, f, rect(r), n, w)
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
	n, w := waitList(wait)
	return eventBy("clEnqueueBarrierWithWaitList", C.hfcl_barrier(q.(queue).h, n, w))
}

func (d *device) Marker(q driver.Handle, wait []driver.Event) (driver.Event, error) {
	n, w := waitList(wait)
	return eventBy("clEnqueueMarkerWithWaitList", C.hfcl_marker(q.(queue).h, n, w))
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

// eventStatus returns the execution status: 0 complete, below 0 failed.
func eventStatus(e driver.Event) (status, error) {
	m := C.hfcl_event_status(handle(e))
	return status(m.h), check("clGetEventInfo", m.rc)
}

func (d *device) EventDone(e driver.Event) (bool, error) {
	if e == 0 {
		return true, nil
	}
	s, err := eventStatus(e)
	if err == nil && s < 0 {
		return true, check("command", s)
	}
	return err == nil && s == 0, err
}

// Running returns the platform's answer.
func (d *device) Running(e driver.Event) (bool, error) {
	if e == 0 {
		return false, nil
	}
	const running = 1
	s, err := eventStatus(e)
	return s == running, err
}

func (d *device) EventTimes(e driver.Event) (driver.Times, error) {
	const profilingQueued = 0x1280 // queued, submit, start and end follow each other
	var v [4]C.uint64_t
	for i := range v {
		rc := C.hfcl_clGetEventProfilingInfo(handle(e), C.uint32_t(profilingQueued+i), 8, unsafe.Pointer(&v[i]), nil)
		if err := check("clGetEventProfilingInfo", rc); err != nil {
			return driver.Times{}, err
		}
	}
	return driver.Times{Queued: time.Duration(v[0]), Submit: time.Duration(v[1]),
		Start: time.Duration(v[2]), End: time.Duration(v[3])}, nil
}

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
	q, err := d.newQueue(0, 0)
	if err != nil {
		return nil, err
	}
	p := &pinned{q: q, bytes: bytes}
	if p.buf, err = createBuffer(d.ctx, memReadWrite|memAllocHost, int64(bytes), nil); err != nil {
		return nil, cmp.Or(err, releaseQueue(q))
	}
	if p.p, err = mapBuffer(q, p.buf, int64(bytes)); err != nil {
		return nil, cmp.Or(err, releaseMem(p.buf), releaseQueue(q))
	}
	return p, nil
}

func (p *pinned) Bytes() []byte { return memory(p.p, int64(p.bytes)) }

func (p *pinned) Free() error {
	return cmp.Or(unmap(p.q, p.buf, p.p), releaseMem(p.buf), releaseQueue(p.q))
}

func waitAll(wait []driver.Event) error {
	for _, e := range wait {
		if err := waitEvent(e); err != nil {
			return err
		}
	}
	return nil
}

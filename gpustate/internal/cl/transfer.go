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

func (d *device) Transfer(q driver.Handle, t driver.Transfer, wait []driver.Event) (driver.Event, error) {
	m, on := t.Mem.(*mem), q.(queue).h
	if t.Form != driver.FormPixels && m.needsMap() {
		off, n := int64(0), int(m.bytes)
		if t.Form == driver.FormBytes {
			off, n, t.Off = t.Off, len(t.Host), 0
		}
		return d.throughMap(q, m, off, n, wait, t.Do)
	}
	if t.Form == driver.FormBox {
		return transferBox(on, m, t, wait)
	}
	n, w := waitList(wait)
	host, block := bytesOf(t.Host), cbool(t.Block)
	switch off, size := C.size_t(t.Off), C.size_t(len(t.Host)); {
	case t.Form == driver.FormPixels && t.Read:
		return eventBy("clEnqueueReadImage", C.hfcl_read_image(on, m.h, block, box(t.Region), host, n, w))
	case t.Form == driver.FormPixels:
		return eventBy("clEnqueueWriteImage", C.hfcl_write_image(on, m.h, block, box(t.Region), host, n, w))
	case t.Read:
		return eventBy("clEnqueueReadBuffer", C.hfcl_read(on, m.h, block, off, size, host, n, w))
	default:
		return eventBy("clEnqueueWriteBuffer", C.hfcl_write(on, m.h, block, off, size, host, n, w))
	}
}

func transferBox(on handle, m *mem, t driver.Transfer, wait []driver.Event) (driver.Event, error) {
	if t.Read {
		fit := func(r driver.Rect) bool { return holds(r.From, r.Size, m.bytes) }
		const call = "clEnqueueReadBufferRect"
		return inPieces(t.Rect(), call, fit, t.Block, wait, func(r driver.Rect, block bool, n C.uint32_t,
			w *handle) C.made {
			return C.hfcl_read_rect(on, m.h, cbool(block), rect(r), bytesOf(t.Host), n, w)
		})
	}
	fit := func(r driver.Rect) bool { return holds(r.To, r.Size, m.bytes) }
	const call = "clEnqueueWriteBufferRect"
	return inPieces(t.Rect(), call, fit, t.Block, wait, func(r driver.Rect, block bool, n C.uint32_t,
		w *handle) C.made {
		return C.hfcl_write_rect(on, m.h, cbool(block), rect(r), bytesOf(t.Host), n, w)
	})
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

// Copy goes by way of the host where no command copies: from and to SVM, of which one object is mapped at a time, and,
// on NVIDIA's platform, between a buffer and an array of images of one dimension.
func (d *device) Copy(q, dst driver.Handle, to driver.Place, src driver.Handle, from driver.Place,
	wait []driver.Event) (driver.Event, error) {
	t, f, on := dst.(*mem), src.(*mem), q.(queue).h
	images := to.Form == driver.FormPixels && from.Form == driver.FormPixels
	if t.svm || f.svm || !images && (t.lines || f.lines) {
		return d.throughHost(q, t, to, f, from, wait)
	}
	if to.Form == driver.FormBox {
		return copyBox(on, t, f, driver.Rect{Size: to.Size, To: to.At, From: from.At}, wait)
	}
	n, w := waitList(wait)
	switch {
	case images:
		return eventBy("clEnqueueCopyImage", C.hfcl_copy_image(on, t.h, box(to.Region), f.h, box(from.Region), n, w))
	case to.Form == driver.FormPixels:
		h, off := f.whole(from.Off)
		return eventBy("clEnqueueCopyBufferToImage",
			C.hfcl_buffer_to_image(on, h, C.size_t(off), t.h, box(to.Region), n, w))
	case from.Form == driver.FormPixels:
		h, off := t.whole(to.Off)
		return eventBy("clEnqueueCopyImageToBuffer",
			C.hfcl_image_to_buffer(on, f.h, h, box(from.Region), C.size_t(off), n, w))
	}
	return eventBy("clEnqueueCopyBuffer", C.hfcl_copy(on, t.h, C.size_t(to.Off), f.h, C.size_t(from.Off),
		C.size_t(to.Bytes), n, w))
}

// throughHost copies a place, packed, by way of the host.
func (d *device) throughHost(q driver.Handle, dst *mem, to driver.Place, src *mem, from driver.Place,
	wait []driver.Event) (driver.Event, error) {
	place, pixel := &to, dst.pixel
	if from.Form == driver.FormPixels {
		place, pixel = &from, src.pixel
	}
	n := place.Content(int64(pixel))
	t := driver.Transfer{Mem: src, Place: from, Host: make([]byte, n), There: from.Size.Packed(), Read: true,
		Block: true}
	if _, err := d.Transfer(q, t, wait); err != nil {
		return 0, err
	}
	t.Mem, t.Place, t.Read = dst, to, false
	return d.Transfer(q, t, nil)
}

// whole returns the buffer of a range, and the offset in it of an offset in the range: PoCL 3.1 ends
// the program when a range is copied to an image, or by boxes.
func (m *mem) whole(off int64) (handle, int64) {
	if m.parent != 0 {
		return m.parent, m.off + off
	}
	return m.h, off
}

func copyBox(on handle, to, from *mem, r driver.Rect, wait []driver.Event) (driver.Event, error) {
	t, tOff := to.whole(r.To.Off)
	f, fOff := from.whole(r.From.Off)
	r.To.Off, r.From.Off = tOff, fOff
	fit := func(r driver.Rect) bool {
		return holds(r.To, r.Size, to.room) && holds(r.From, r.Size, from.room)
	}
	const call = "clEnqueueCopyBufferRect"
	return inPieces(r, call, fit, false, wait, func(r driver.Rect, _ bool, n C.uint32_t, w *handle) C.made {
		return C.hfcl_copy_rect(on, t, f, rect(r), n, w)
	})
}

func (d *device) Fill(q, h driver.Handle, p driver.Place, pattern []byte, wait []driver.Event) (driver.Event, error) {
	m, on := h.(*mem), q.(queue).h
	if p.Form != driver.FormPixels && m.needsMap() {
		return d.throughMap(q, m, p.Off, int(p.Bytes), wait, func(b []byte) { driver.Repeat(b, pattern) })
	}
	n, w := waitList(wait)
	if p.Form == driver.FormPixels {
		return eventBy("clEnqueueFillImage", C.hfcl_fill_image(on, m.h, bytesOf(pattern), box(p.Region), n, w))
	}
	return eventBy("clEnqueueFillBuffer", C.hfcl_fill(on, m.h, bytesOf(pattern), C.size_t(len(pattern)),
		C.size_t(p.Off), C.size_t(p.Bytes), n, w))
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

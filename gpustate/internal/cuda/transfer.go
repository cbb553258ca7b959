package cuda

/*
#include <stdlib.h>
#include "table.h"
*/
import "C"

import (
	"time"
	"unsafe"

	"github.com/holdfast-hpc/holdfast/gpustate/internal/driver"
)

// issue gives a command its stream and, unless it blocks, an event.
func (d *device) issue(q driver.Handle, block bool, wait []driver.Event, call string,
	do func(C.hfcu_cmd) status) (driver.Event, error) {
	s := q.(*stream)
	if block || s.lazy {
		return 0, run(C.hfcu_cmd{ctx: d.ctx, stream: s.s, block: cbool(block)}, wait, call, do)
	}
	return d.withEvent(s, wait, call, do)
}

// run gives C the wait list in C memory: a C struct must not point to Go
// memory.
func run(c C.hfcu_cmd, wait []driver.Event, call string, do func(C.hfcu_cmd) status) error {
	if n := len(wait); n > 0 {
		p := C.malloc(C.size_t(n) * C.size_t(unsafe.Sizeof(handle(0))))
		defer C.free(p)
		copy(unsafe.Slice((*driver.Event)(p), n), wait)
		c.wait, c.n = (*handle)(p), C.unsigned(n)
	}
	return check(call, do(c))
}

// withEvent records an event behind the command.
func (d *device) withEvent(s *stream, wait []driver.Event, call string, do func(C.hfcu_cmd) status) (driver.Event,
	error) {
	var before handle
	var err error
	if s.timing {
		if before, err = createEvent(d.ctx, true); err != nil {
			return 0, err
		}
		if err = recordEvent(d.ctx, before, s.s); err != nil {
			return 0, err
		}
	}
	after, err := d.event(s.timing)
	if err != nil {
		return 0, err
	}
	if err = run(C.hfcu_cmd{ctx: d.ctx, stream: s.s, ev: after}, wait, call, do); err != nil {
		_ = freeEvent(d.ctx, after)
		if before != 0 {
			_ = freeEvent(d.ctx, before)
		}
		return 0, err
	}
	ev := driver.Event(after)
	if before != 0 {
		d.mu.Lock()
		d.starts[ev] = before
		d.mu.Unlock()
	}
	return ev, nil
}

// event returns an event that is not in use.
func (d *device) event(timing bool) (handle, error) {
	if timing {
		return createEvent(d.ctx, true)
	}
	d.mu.Lock()
	if n := len(d.idle); n > 0 {
		e := d.idle[n-1]
		d.idle = d.idle[:n-1]
		d.mu.Unlock()
		return e, nil
	}
	d.mu.Unlock()
	return createEvent(d.ctx, false)
}

func (d *device) ReleaseEvent(e driver.Event) {
	if e == 0 {
		return
	}
	d.mu.Lock()
	before, timed := d.starts[e]
	delete(d.starts, e)
	if !timed {
		d.idle = append(d.idle, handle(e))
	}
	d.mu.Unlock()
	if timed {
		_ = freeEvent(d.ctx, before)
		_ = freeEvent(d.ctx, handle(e))
	}
}

func (d *device) WaitEvent(e driver.Event) error {
	if e == 0 {
		return nil
	}
	return check("cuEventSynchronize", C.hfcu_event_sync(d.ctx, handle(e)))
}

func (d *device) EventDone(e driver.Event) (bool, error) {
	if e == 0 {
		return true, nil
	}
	rc := C.hfcu_event_query(d.ctx, handle(e))
	if rc == notReady {
		return false, nil
	}
	return true, check("cuEventQuery", rc)
}

// EventTimes tells when the command started and ended, since the first queue
// with profiling was made. CUDA does not tell when it was queued.
func (d *device) EventTimes(e driver.Event) (driver.Times, error) {
	d.mu.Lock()
	before, ok := d.starts[e]
	base := d.base
	d.mu.Unlock()
	if !ok {
		return driver.Times{}, driver.ErrUnsupported
	}
	const call = "cuEventElapsedTime"
	start, err := madeBy(call, C.hfcu_event_elapsed(d.ctx, base, before))
	if err != nil {
		return driver.Times{}, err
	}
	end, err := madeBy(call, C.hfcu_event_elapsed(d.ctx, base, handle(e)))
	t := driver.Times{Queued: time.Duration(start), Submit: time.Duration(start),
		Start: time.Duration(start), End: time.Duration(end)}
	return t, err
}

func (d *device) Transfer(q driver.Handle, t driver.Transfer, wait []driver.Event) (driver.Event, error) {
	m, call := t.Mem.(*mem), copy3D
	if t.Form == driver.FormBytes {
		if call = "cuMemcpyHtoDAsync"; t.Read {
			call = "cuMemcpyDtoHAsync"
		}
	}
	return d.issue(q, t.Block, wait, call, func(c C.hfcu_cmd) status {
		switch n := C.size_t(len(t.Host)); {
		case t.Form == driver.FormPixels && t.Read:
			return C.hfcu_image_read(c, bytesOf(t.Host), m.array, m.box(t.Region))
		case t.Form == driver.FormPixels:
			return C.hfcu_image_write(c, m.array, bytesOf(t.Host), m.box(t.Region))
		case t.Form == driver.FormBox && t.Read:
			return C.hfcu_read_rect(c, bytesOf(t.Host[t.There.Off:]), m.p+address(t.At.Off), rect(t.Rect()))
		case t.Form == driver.FormBox:
			return C.hfcu_write_rect(c, m.p+address(t.At.Off), bytesOf(t.Host[t.There.Off:]), rect(t.Rect()))
		case t.Read:
			return C.hfcu_read(c, bytesOf(t.Host), m.p+address(t.Off), n)
		default:
			return C.hfcu_write(c, m.p+address(t.Off), bytesOf(t.Host), n)
		}
	})
}

func (d *device) Copy(q, dst driver.Handle, to driver.Place, src driver.Handle, from driver.Place,
	wait []driver.Event) (driver.Event, error) {
	t, f, call := dst.(*mem), src.(*mem), copy3D
	if to.Form == driver.FormBytes && from.Form == driver.FormBytes {
		call = "cuMemcpyDtoDAsync"
	}
	return d.issue(q, false, wait, call, func(c C.hfcu_cmd) status {
		switch pixels := driver.FormPixels; {
		case to.Form == driver.FormBox:
			r := driver.Rect{Size: to.Size, To: to.At, From: from.At}
			return C.hfcu_copy_rect(c, t.p+address(to.At.Off), f.p+address(from.At.Off), rect(r))
		case to.Form == pixels && from.Form == pixels:
			return C.hfcu_copy_image(c, t.array, t.box(to.Region), f.array, f.box(from.Region))
		case to.Form == pixels:
			return C.hfcu_buffer_to_image(c, t.array, f.p+address(from.Off), t.box(to.Region))
		case from.Form == pixels:
			return C.hfcu_image_to_buffer(c, t.p+address(to.Off), f.array, f.box(from.Region))
		default:
			return C.hfcu_copy(c, t.p+address(to.Off), f.p+address(from.Off), C.size_t(to.Bytes))
		}
	})
}

// CopyFrom copies from another CUDA device, over NVLink or PCIe where the two
// reach each other; otherwise the driver goes through the host.
func (d *device) CopyFrom(q, dst driver.Handle, other driver.Device, src driver.Handle, n int64) (bool, error) {
	o, ok := other.(*device)
	if !ok {
		return false, nil
	}
	_, err := d.issue(q, true, nil, "cuMemcpyPeerAsync", func(c C.hfcu_cmd) status {
		return C.hfcu_copy_peer(c, dst.(*mem).p, src.(*mem).p, o.ctx, C.size_t(n))
	})
	return true, err
}

// copy3D is the call behind all copies of images and boxes.
const copy3D = "cuMemcpy3DAsync"

// box gives a region in the form of C. The images of a one-dimensional array are slices.
func (m *mem) box(r driver.Region) C.hfcu_box {
	pixel := m.pixel
	if m.image.Array && m.image.Dims == 1 {
		r.Origin[1], r.Origin[2] = 0, r.Origin[1]
		r.Size[1], r.Size[2] = 1, r.Size[1]
	}
	return C.hfcu_box{x: C.size_t(r.Origin[0] * pixel), y: C.size_t(r.Origin[1]), z: C.size_t(r.Origin[2]),
		w: C.size_t(r.Size[0] * pixel), h: C.size_t(r.Size[1]), d: C.size_t(r.Size[2])}
}

// Fill copies rows of pixels from the host to an image, which has no memset. The driver takes them over before the
// call returns.
func (d *device) Fill(q, h driver.Handle, p driver.Place, pattern []byte, wait []driver.Event) (driver.Event, error) {
	m := h.(*mem)
	if p.Form == driver.FormBytes {
		return d.issue(q, false, wait, "cuMemsetAsync", func(c C.hfcu_cmd) status {
			return C.hfcu_fill(c, m.p+address(p.Off), C.size_t(p.Bytes), bytesOf(pattern), C.size_t(len(pattern)))
		})
	}
	pixel, err := driver.Color(pattern).Pixel(m.image.Order, m.image.Type)
	if err != nil {
		return 0, err
	}
	r := p.Region
	row := make([]byte, r.Size[0]*r.Size[1]*len(pixel))
	driver.Repeat(row, pixel)
	for z := range r.Size[2] {
		slice := driver.Region{Origin: r.Origin, Size: [3]int{r.Size[0], r.Size[1], 1}}
		slice.Origin[2] += z
		t := driver.Transfer{Mem: m, Place: driver.Pixels(slice), Host: row, Block: true}
		if _, err := d.Transfer(q, t, wait); err != nil {
			return 0, err
		}
	}
	return d.issue(q, false, nil, "cuEventRecord", marker)
}

// rect gives a box in the form of C; where it begins is not in it.
func rect(r driver.Rect) C.hfcu_rect {
	return C.hfcu_rect{topitch: C.size_t(r.To.Row), toheight: C.size_t(r.To.Slice / r.To.Row),
		frompitch: C.size_t(r.From.Row), fromheight: C.size_t(r.From.Slice / r.From.Row),
		w: C.size_t(r.Size[0]), h: C.size_t(r.Size[1]), d: C.size_t(r.Size[2])}
}

// Barrier is Marker: the commands of a stream run in order.
func (d *device) Barrier(q driver.Handle, wait []driver.Event) (driver.Event, error) {
	return d.Marker(q, wait)
}

func (d *device) Marker(q driver.Handle, wait []driver.Event) (driver.Event, error) {
	return d.withEvent(q.(*stream), wait, "cuEventRecord", marker)
}

// marker returns a command without work.
func marker(c C.hfcu_cmd) status { return C.hfcu_marker(c) }

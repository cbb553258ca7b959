package cl

/*
#include "table.h"
*/
import "C"

import (
	"unsafe"

	"github.com/holdfast-hpc/holdfast/gpustate/internal/driver"
)

// waitList gives the events in the form of C, which wants NULL for none.
func waitList(wait []driver.Event) (C.uint32_t, *handle) {
	if len(wait) == 0 {
		return 0, nil
	}
	return C.uint32_t(len(wait)), (*handle)(unsafe.Pointer(unsafe.SliceData(wait)))
}

func launch(q queue, k handle, g *driver.Grid, wait []driver.Event) (driver.Event, error) {
	n, w := waitList(wait)
	return eventBy("clEnqueueNDRangeKernel", C.hfcl_launch(q.h, k, gridOf(g), cbool(!q.lazy), n, w))
}

// gridOf gives an index space in the form of C.
func gridOf(g *driver.Grid) C.hfcl_grid {
	cg := C.hfcl_grid{dims: C.uint32_t(g.Dims)}
	for i := range 3 {
		cg.off[i], cg.global[i], cg.local[i] =
			C.size_t(g.Offset[i]), C.size_t(g.Global[i]), C.size_t(g.Local[i])
	}
	return cg
}

func cbool(b bool) C.int {
	if b {
		return 1
	}
	return 0
}

func readBuffer(q, m handle, off int64, dst []byte, block bool, wait []driver.Event) (driver.Event, error) {
	n, w := waitList(wait)
	return eventBy("clEnqueueReadBuffer", C.hfcl_read(q, m, cbool(block), C.size_t(off),
		C.size_t(len(dst)), bytesOf(dst), n, w))
}

func writeBuffer(q, m handle, off int64, src []byte, block bool, wait []driver.Event) (driver.Event, error) {
	n, w := waitList(wait)
	return eventBy("clEnqueueWriteBuffer", C.hfcl_write(q, m, cbool(block), C.size_t(off),
		C.size_t(len(src)), bytesOf(src), n, w))
}

func copyBuffer(q, dst handle, dstOff int64, src handle, srcOff, bytes int64, wait []driver.Event) (driver.Event,
	error) {
	n, w := waitList(wait)
	return eventBy("clEnqueueCopyBuffer", C.hfcl_copy(q, dst, C.size_t(dstOff), src,
		C.size_t(srcOff), C.size_t(bytes), n, w))
}

func box(r driver.Region) (b C.hfcl_box) {
	for i := range 3 {
		b.o[i], b.r[i] = C.size_t(r.Origin[i]), C.size_t(r.Size[i])
	}
	return b
}

func readImage(q, m handle, r driver.Region, dst []byte, block bool, wait []driver.Event) (driver.Event, error) {
	n, w := waitList(wait)
	return eventBy("clEnqueueReadImage", C.hfcl_read_image(q, m, cbool(block), box(r),
		bytesOf(dst), n, w))
}

func writeImage(q, m handle, r driver.Region, src []byte, block bool, wait []driver.Event) (driver.Event, error) {
	n, w := waitList(wait)
	return eventBy("clEnqueueWriteImage", C.hfcl_write_image(q, m, cbool(block), box(r),
		bytesOf(src), n, w))
}

func imageToBuffer(q, img, buf handle, r driver.Region, off int64, wait []driver.Event) (driver.Event, error) {
	n, w := waitList(wait)
	return eventBy("clEnqueueCopyImageToBuffer",
		C.hfcl_image_to_buffer(q, img, buf, box(r), C.size_t(off), n, w))
}

func bufferToImage(q, buf handle, off int64, img handle, r driver.Region, wait []driver.Event) (driver.Event, error) {
	n, w := waitList(wait)
	return eventBy("clEnqueueCopyBufferToImage",
		C.hfcl_buffer_to_image(q, buf, C.size_t(off), img, box(r), n, w))
}

// rect gives the places of a box in the form of C.
func rect(r driver.Rect) (c C.hfcl_rect) {
	to, from := r.To.Origin(), r.From.Origin()
	for i := range 3 {
		c.to[i], c.from[i], c.size[i] = C.size_t(to[i]), C.size_t(from[i]), C.size_t(r.Size[i])
	}
	c.torow, c.toslice = C.size_t(r.To.Row), C.size_t(r.To.Slice)
	c.fromrow, c.fromslice = C.size_t(r.From.Row), C.size_t(r.From.Slice)
	return c
}

func fillBuffer(q, m handle, off, bytes int64, pattern []byte, wait []driver.Event) (driver.Event, error) {
	n, w := waitList(wait)
	return eventBy("clEnqueueFillBuffer", C.hfcl_fill(q, m, bytesOf(pattern), C.size_t(len(pattern)), C.size_t(off),
		C.size_t(bytes), n, w))
}

func readRect(q, m handle, r driver.Rect, dst []byte, block bool, wait []driver.Event) (driver.Event, error) {
	n, w := waitList(wait)
	return eventBy("clEnqueueReadBufferRect", C.hfcl_read_rect(q, m, cbool(block), rect(r), bytesOf(dst), n, w))
}

func writeRect(q, m handle, r driver.Rect, src []byte, block bool, wait []driver.Event) (driver.Event, error) {
	n, w := waitList(wait)
	return eventBy("clEnqueueWriteBufferRect", C.hfcl_write_rect(q, m, cbool(block), rect(r), bytesOf(src), n, w))
}

func copyRect(q, dst, src handle, r driver.Rect, wait []driver.Event) (driver.Event, error) {
	n, w := waitList(wait)
	return eventBy("clEnqueueCopyBufferRect", C.hfcl_copy_rect(q, dst, src, rect(r), n, w))
}

func fillImage(q, m handle, r driver.Region, c driver.Color, wait []driver.Event) (driver.Event, error) {
	n, w := waitList(wait)
	return eventBy("clEnqueueFillImage", C.hfcl_fill_image(q, m, bytesOf(c[:]), box(r), n, w))
}

func copyImage(q, dst handle, to [3]int, src handle, r driver.Region, wait []driver.Event) (driver.Event, error) {
	n, w := waitList(wait)
	return eventBy("clEnqueueCopyImage",
		C.hfcl_copy_image(q, dst, box(driver.Region{Origin: to}), src, box(r), n, w))
}

func barrier(q handle, wait []driver.Event) (driver.Event, error) {
	n, w := waitList(wait)
	return eventBy("clEnqueueBarrierWithWaitList", C.hfcl_barrier(q, n, w))
}

func marker(q handle, wait []driver.Event) (driver.Event, error) {
	n, w := waitList(wait)
	return eventBy("clEnqueueMarkerWithWaitList", C.hfcl_marker(q, n, w))
}

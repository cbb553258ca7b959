package cuda

/*
#include <stdlib.h>
#include "table.h"
*/
import "C"

import (
	"unsafe"

	"github.com/holdfast-hpc/holdfast/gpustate/internal/driver"
)

// command is what all commands have in common.
type command struct {
	ctx, stream, ev handle
	block           bool
	wait            []driver.Event
}

func (c *command) c() C.hfcu_cmd {
	k := C.hfcu_cmd{ctx: c.ctx, stream: c.stream, ev: c.ev, n: C.unsigned(len(c.wait))}
	if c.block {
		k.block = 1
	}
	return k
}

// run gives C the wait list in C memory: a C struct must not point to Go
// memory.
func (c *command) run(call string, do func(C.hfcu_cmd) C.int32_t) error {
	k := c.c()
	if len(c.wait) > 0 {
		p := C.malloc(C.size_t(len(c.wait)) * C.size_t(unsafe.Sizeof(handle(0))))
		defer C.free(p)
		copy(unsafe.Slice((*driver.Event)(p), len(c.wait)), c.wait)
		k.wait = (*handle)(p)
	}
	return check(call, int32(do(k)))
}

// bytesOf is the memory of a slice, NULL for nil.
func bytesOf(b []byte) *C.uint8_t { return (*C.uint8_t)(unsafe.SliceData(b)) }

func (c *command) read(dst []byte, from address) error {
	return c.run("cuMemcpyDtoHAsync", func(k C.hfcu_cmd) C.int32_t {
		return C.hfcu_read(k, bytesOf(dst), from, C.size_t(len(dst)))
	})
}

func (c *command) write(to address, src []byte) error {
	return c.run("cuMemcpyHtoDAsync", func(k C.hfcu_cmd) C.int32_t {
		return C.hfcu_write(k, to, bytesOf(src), C.size_t(len(src)))
	})
}

func (c *command) copy(to, from address, n int64) error {
	return c.run("cuMemcpyDtoDAsync", func(k C.hfcu_cmd) C.int32_t {
		return C.hfcu_copy(k, to, from, C.size_t(n))
	})
}

func (c *command) copyPeer(to, from address, fromCtx handle, n int64) error {
	return c.run("cuMemcpyPeerAsync", func(k C.hfcu_cmd) C.int32_t {
		return C.hfcu_copy_peer(k, to, from, fromCtx, C.size_t(n))
	})
}

func (c *command) mark() error {
	return c.run("cuEventRecord", func(k C.hfcu_cmd) C.int32_t { return C.hfcu_mark(k) })
}

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

func (c *command) readImage(dst []byte, m *mem, r driver.Region) error {
	return c.run("cuMemcpy3DAsync", func(k C.hfcu_cmd) C.int32_t {
		return C.hfcu_image_read(k, bytesOf(dst), m.array, m.box(r))
	})
}

func (c *command) writeImage(m *mem, src []byte, r driver.Region) error {
	return c.run("cuMemcpy3DAsync", func(k C.hfcu_cmd) C.int32_t {
		return C.hfcu_image_write(k, m.array, bytesOf(src), m.box(r))
	})
}

func (c *command) imageToBuffer(to address, m *mem, r driver.Region) error {
	return c.run("cuMemcpy3DAsync", func(k C.hfcu_cmd) C.int32_t {
		return C.hfcu_image_to_buffer(k, to, m.array, m.box(r))
	})
}

func (c *command) bufferToImage(m *mem, from address, r driver.Region) error {
	return c.run("cuMemcpy3DAsync", func(k C.hfcu_cmd) C.int32_t {
		return C.hfcu_buffer_to_image(k, m.array, from, m.box(r))
	})
}

func (c *command) copyImage(dst *mem, to [3]int, src *mem, r driver.Region) error {
	return c.run("cuMemcpy3DAsync", func(k C.hfcu_cmd) C.int32_t {
		return C.hfcu_copy_image(k, dst.array, dst.box(driver.Region{Origin: to, Size: r.Size}), src.array, src.box(r))
	})
}

func (c *command) fill(to address, n int64, pattern []byte) error {
	return c.run("cuMemsetAsync", func(k C.hfcu_cmd) C.int32_t {
		return C.hfcu_fill(k, to, C.size_t(n), bytesOf(pattern), C.size_t(len(pattern)))
	})
}

// rect gives a box in the form of C; where it begins is not in it.
func rect(r driver.Rect) C.hfcu_rect {
	return C.hfcu_rect{topitch: C.size_t(r.To.Row), toheight: C.size_t(r.To.Slice / r.To.Row),
		frompitch: C.size_t(r.From.Row), fromheight: C.size_t(r.From.Slice / r.From.Row),
		w: C.size_t(r.Size[0]), h: C.size_t(r.Size[1]), d: C.size_t(r.Size[2])}
}

func (c *command) readRect(dst []byte, from address, r driver.Rect) error {
	return c.run("cuMemcpy3DAsync", func(k C.hfcu_cmd) C.int32_t {
		return C.hfcu_read_rect(k, bytesOf(dst[r.To.Off:]), from+address(r.From.Off), rect(r))
	})
}

func (c *command) writeRect(to address, src []byte, r driver.Rect) error {
	return c.run("cuMemcpy3DAsync", func(k C.hfcu_cmd) C.int32_t {
		return C.hfcu_write_rect(k, to+address(r.To.Off), bytesOf(src[r.From.Off:]), rect(r))
	})
}

func (c *command) copyRect(to, from address, r driver.Rect) error {
	return c.run("cuMemcpy3DAsync", func(k C.hfcu_cmd) C.int32_t {
		return C.hfcu_copy_rect(k, to+address(r.To.Off), from+address(r.From.Off), rect(r))
	})
}

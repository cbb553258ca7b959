package cl

/*
#include "table.h"
*/
import "C"

import (
	"unsafe"

	"github.com/holdfast-hpc/holdfast/gpustate/internal/driver"
)

// batch hands several commands to OpenCL in one call of C. NVIDIA's OpenCL takes 3.5 us for a launch if one follows the
// other there, and longer if Go's work in between has taken the caches.
type batch struct {
	d      *device
	c      []C.hfcl_step
	from   []int // the step of each in c
	values []byte
	set    []*kernel // whose arguments c sets
}

// NewBatch makes a batch.
func (d *device) NewBatch() driver.Batch { return &batch{d: d} }

// Do does the steps. Work that C cannot do is done between two of its calls.
func (b *batch) Do(steps []driver.Step) (done int, err error) {
	for i := range steps {
		s := &steps[i]
		k := s.Kernel.(*kernel)
		switch {
		case s.Queue != nil:
			b.c = append(b.c, C.hfcl_step{q: s.Queue.(queue).h, k: k.h, g: gridOf(&s.Grid)})
			b.from = append(b.from, i)
		case !b.argument(i, k, s):
			if done, err = b.run(steps); err == nil {
				done, err = i, b.d.SetArg(k, s.Index, s.Arg)
			}
			if err != nil {
				return done, err
			}
		}
	}
	if done, err = b.run(steps); err != nil {
		return done, err
	}
	return len(steps), nil
}

// argument enters an argument that C can set: bytes, or a memory object's handle. Others are left to SetArg.
func (b *batch) argument(i int, k *kernel, s *driver.Step) bool {
	value := s.Arg.Value
	switch s.Arg.Kind {
	case driver.ArgMem:
		m := s.Arg.Handle.(*mem)
		if m.svm {
			return false
		}
		value = unsafe.Slice((*byte)(unsafe.Pointer(&m.h)), unsafe.Sizeof(m.h))
	case driver.ArgValue:
		if len(value) == 0 {
			return false
		}
	default:
		return false
	}
	if !k.batched { // otherwise its contents may change until then
		if k.holds(s.Index, &s.Arg) {
			return true
		}
		k.batched = true
		b.set = append(b.set, k)
	}
	b.c = append(b.c, C.hfcl_step{k: k.h, index: C.uint32_t(s.Index), at: C.size_t(len(b.values)),
		n: C.size_t(len(value))})
	b.from = append(b.from, i)
	b.values = append(b.values, value...)
	return true
}

// run has C do the entered commands. An error is that of step done.
func (b *batch) run(steps []driver.Step) (done int, err error) {
	if len(b.c) == 0 {
		return 0, nil
	}
	m := C.hfcl_steps(unsafe.SliceData(b.c), C.size_t(len(b.c)), bytesOf(b.values))
	n := int(m.h)
	for j := range b.c[:min(n+1, len(b.c))] {
		if s := &steps[b.from[j]]; s.Queue == nil {
			s.Kernel.(*kernel).hold(s.Index, &s.Arg, j < n)
		}
	}
	if n < len(b.c) {
		done = b.from[n]
		call := "clSetKernelArg"
		if steps[done].Queue != nil {
			call = "clEnqueueNDRangeKernel"
		}
		err = check(call, m.rc)
	}
	for _, k := range b.set {
		k.batched = false
	}
	clear(b.set)
	b.set, b.c, b.from, b.values = b.set[:0], b.c[:0], b.from[:0], b.values[:0]
	return done, err
}

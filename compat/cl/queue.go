package cl

import (
	"unsafe"

	"github.com/holdfast-hpc/holdfast/gpustate"
)

// CommandQueue takes commands for the device.
type CommandQueue struct {
	q          *gpustate.Queue
	outOfOrder bool // out of order
}

// Release waits for the queue's commands and gives it back.
func (q *CommandQueue) Release() { _ = q.q.Release() }

// Finish waits until all commands are complete, without a limit of time. It returns the error of the first that failed
// since the last Finish.
func (q *CommandQueue) Finish() error { return toError(q.q.Finish()) }

// Flush hands all commands to the device and does not wait.
func (q *CommandQueue) Flush() error { return toError(q.q.Flush()) }

// issue runs one command with its wait list; a blocking one is waited for.
func issue(wait []*Event, blocking bool, do func([]*gpustate.Event) (*gpustate.Event, error)) (*Event, error) {
	after, err := list(wait)
	if err != nil {
		return nil, err
	}
	e, err := do(after)
	if err != nil {
		return nil, toError(err)
	}
	if blocking {
		if err := e.Wait(); err != nil {
			return nil, toError(err)
		}
	}
	return &Event{e: e}, nil
}

// linear returns the object as a buffer.
func (b *MemObject) linear() (*gpustate.Buffer, error) {
	if b == nil || b.buf == nil {
		return nil, ErrInvalidMemObject
	}
	return b.buf, nil
}

// EnqueueWriteBuffer copies dataSize bytes at dataPtr to the buffer, from byte offset on. Without blocking the memory
// is left alone until the event is complete.
func (q *CommandQueue) EnqueueWriteBuffer(buffer *MemObject, blocking bool, offset, dataSize int,
	dataPtr unsafe.Pointer, eventWaitList []*Event) (*Event, error) {
	b, err := buffer.linear()
	if err != nil {
		return nil, err
	}
	return issue(eventWaitList, blocking, func(after []*gpustate.Event) (*gpustate.Event, error) {
		return q.q.WriteAsync(b, offset, unsafe.Slice((*byte)(dataPtr), dataSize), after...)
	})
}

// EnqueueWriteBufferFloat32 is EnqueueWriteBuffer for numbers; offset is in
// bytes.
func (q *CommandQueue) EnqueueWriteBufferFloat32(buffer *MemObject, blocking bool, offset int, data []float32,
	eventWaitList []*Event) (*Event, error) {
	return q.EnqueueWriteBuffer(buffer, blocking, offset, 4*len(data), unsafe.Pointer(unsafe.SliceData(data)),
		eventWaitList)
}

// EnqueueReadBuffer copies dataSize bytes of the buffer, from byte offset on, to dataPtr. Without blocking the memory
// is not used until the event is complete.
func (q *CommandQueue) EnqueueReadBuffer(buffer *MemObject, blocking bool, offset, dataSize int, dataPtr unsafe.Pointer,
	eventWaitList []*Event) (*Event, error) {
	b, err := buffer.linear()
	if err != nil {
		return nil, err
	}
	return issue(eventWaitList, blocking, func(after []*gpustate.Event) (*gpustate.Event, error) {
		return q.q.ReadAsync(b, offset, unsafe.Slice((*byte)(dataPtr), dataSize), after...)
	})
}

// EnqueueReadBufferFloat32 is EnqueueReadBuffer for numbers; offset is in bytes.
func (q *CommandQueue) EnqueueReadBufferFloat32(buffer *MemObject, blocking bool, offset int, data []float32,
	eventWaitList []*Event) (*Event, error) {
	return q.EnqueueReadBuffer(buffer, blocking, offset, 4*len(data), unsafe.Pointer(unsafe.SliceData(data)),
		eventWaitList)
}

// EnqueueCopyBuffer copies byteCount bytes within the device. The ranges do not overlap.
func (q *CommandQueue) EnqueueCopyBuffer(srcBuffer, dstBuffer *MemObject, srcOffset, dstOffset, byteCount int,
	eventWaitList []*Event) (*Event, error) {
	src, err := srcBuffer.linear()
	if err != nil {
		return nil, err
	}
	dst, err := dstBuffer.linear()
	if err != nil {
		return nil, err
	}
	return issue(eventWaitList, false, func(after []*gpustate.Event) (*gpustate.Event, error) {
		return q.q.Copy(dst, dstOffset, src, srcOffset, byteCount, after...)
	})
}

// EnqueueFillBuffer fills size bytes from byte offset on with a pattern of 1, 2, 4 to 128 bytes, which is copied. size
// and offset are multiples of its length: otherwise ErrInvalidValue.
func (q *CommandQueue) EnqueueFillBuffer(buffer *MemObject, pattern unsafe.Pointer, patternSize, offset, size int,
	eventWaitList []*Event) (*Event, error) {
	b, err := buffer.linear()
	if err != nil {
		return nil, err
	}
	if pattern == nil || patternSize <= 0 || patternSize > 128 || patternSize&(patternSize-1) != 0 || size < 0 ||
		size%patternSize != 0 || offset%patternSize != 0 {
		return nil, ErrInvalidValue
	}
	// copied: a call that waits for a user event is made later
	bytes := append([]byte(nil), unsafe.Slice((*byte)(pattern), patternSize)...)
	return issue(eventWaitList, false, func(after []*gpustate.Event) (*gpustate.Event, error) {
		return q.q.Fill(b, offset, size, bytes, after...)
	})
}

// EnqueueNDRangeKernel runs a kernel over an index space of one to three dimensions, in work items. globalWorkOffset
// nil is 0; with localWorkSize nil the device chooses. The slices are copied.
func (q *CommandQueue) EnqueueNDRangeKernel(kernel *Kernel, globalWorkOffset, globalWorkSize, localWorkSize []int,
	eventWaitList []*Event) (*Event, error) {
	return issue(eventWaitList, false, func(after []*gpustate.Event) (*gpustate.Event, error) {
		if globalWorkOffset == nil {
			return q.q.Launch(kernel.k, globalWorkSize, localWorkSize, after...)
		}
		return q.q.LaunchAt(kernel.k, globalWorkOffset, globalWorkSize, localWorkSize, after...)
	})
}

// EnqueueTask runs one work item of a kernel.
func (q *CommandQueue) EnqueueTask(kernel *Kernel, eventWaitList []*Event) (*Event, error) {
	return q.EnqueueNDRangeKernel(kernel, nil, []int{1}, []int{1}, eventWaitList)
}

// EnqueueMarkerWithWaitList gives an event that completes after those of the
// list, or after all commands before it.
func (q *CommandQueue) EnqueueMarkerWithWaitList(eventWaitList []*Event) (*Event, error) {
	return issue(eventWaitList, false, func(after []*gpustate.Event) (*gpustate.Event, error) {
		return q.q.Marker(after...)
	})
}

// EnqueueBarrierWithWaitList lets later commands wait for those of the list, or
// for all before it. On an out-of-order queue the call itself waits.
func (q *CommandQueue) EnqueueBarrierWithWaitList(eventWaitList []*Event) (*Event, error) {
	return issue(eventWaitList, q.outOfOrder, func(after []*gpustate.Event) (*gpustate.Event, error) {
		return q.q.Marker(after...)
	})
}

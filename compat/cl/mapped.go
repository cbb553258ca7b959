package cl

import (
	"unsafe"

	"github.com/holdfast-hpc/holdfast/gpustate"
)

// MappedMemObject is a host copy of a range of a buffer or of a region of an
// image.
type MappedMemObject struct {
	bytes      []byte
	write      bool
	offset     int
	region     gpustate.Region
	rowPitch   int
	slicePitch int
}

// ByteSlice returns the memory.
func (mb *MappedMemObject) ByteSlice() []byte { return mb.bytes }

// Ptr returns the address of the memory.
func (mb *MappedMemObject) Ptr() unsafe.Pointer { return unsafe.Pointer(unsafe.SliceData(mb.bytes)) }

// Size returns the number of bytes.
func (mb *MappedMemObject) Size() int { return len(mb.bytes) }

// RowPitch returns the distance of rows in bytes, of images.
func (mb *MappedMemObject) RowPitch() int { return mb.rowPitch }

// SlicePitch returns the distance of slices in bytes, of images.
func (mb *MappedMemObject) SlicePitch() int { return mb.slicePitch }

const (
	mapReads  = MapFlagRead | MapFlagWrite // writing may leave bytes as they are
	mapWrites = MapFlagWrite | MapFlagWriteInvalidateRegion
)

// EnqueueMapBuffer gives the host a copy of size bytes of a buffer, from byte offset on. They are valid when the event
// is complete.
func (q *CommandQueue) EnqueueMapBuffer(buffer *MemObject, blocking bool, flags MapFlag, offset, size int,
	eventWaitList []*Event) (*MappedMemObject, *Event, error) {
	b, err := buffer.linear()
	if err != nil {
		return nil, nil, err
	}
	if size <= 0 || offset < 0 || size > b.Bytes()-offset {
		return nil, nil, ErrInvalidValue
	}
	m := &MappedMemObject{bytes: make([]byte, size), offset: offset, write: flags&mapWrites != 0}
	e, err := issue(eventWaitList, blocking, func(after []*gpustate.Event) (*gpustate.Event, error) {
		if flags&mapReads == 0 {
			return q.q.Marker(after...)
		}
		return q.q.ReadAsync(b, offset, m.bytes, after...)
	})
	if err != nil {
		return nil, nil, err
	}
	return m, e, nil
}

// EnqueueMapImage gives the host a copy of a region of an image, origin and region in pixels. It is complete when the
// call returns.
func (q *CommandQueue) EnqueueMapImage(buffer *MemObject, blocking bool, flags MapFlag, origin, region [3]int,
	eventWaitList []*Event) (*MappedMemObject, *Event, error) {
	i, err := buffer.picture()
	if err != nil {
		return nil, nil, err
	}
	row := region[0] * i.PixelBytes()
	m := &MappedMemObject{region: gpustate.Region{Origin: origin, Size: region}, write: flags&mapWrites != 0,
		rowPitch: row, slicePitch: row * region[1], bytes: make([]byte, row*region[1]*region[2])}
	e, err := q.imageCommand(eventWaitList, func() error {
		if flags&mapReads == 0 {
			return nil
		}
		return q.q.ReadImage(i, m.region, m.bytes)
	})
	if err != nil {
		return nil, nil, err
	}
	return m, e, nil
}

// EnqueueUnmapMemObject writes memory back that was mapped for writing. The memory is not used afterwards.
func (q *CommandQueue) EnqueueUnmapMemObject(buffer *MemObject, mappedObj *MappedMemObject,
	eventWaitList []*Event) (*Event, error) {
	if mappedObj == nil || mappedObj.bytes == nil {
		return nil, ErrInvalidValue
	}
	m := *mappedObj
	mappedObj.bytes = nil
	if !m.write {
		return q.EnqueueMarkerWithWaitList(eventWaitList)
	}
	if buffer != nil && buffer.img != nil {
		return q.imageCommand(eventWaitList, func() error { return q.q.WriteImage(buffer.img, m.region, m.bytes) })
	}
	b, err := buffer.linear()
	if err != nil {
		return nil, err
	}
	return issue(eventWaitList, false, func(after []*gpustate.Event) (*gpustate.Event, error) {
		return q.q.WriteAsync(b, m.offset, m.bytes, after...)
	})
}

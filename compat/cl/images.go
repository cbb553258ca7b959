package cl

import (
	"cmp"

	"github.com/holdfast-hpc/holdfast/gpustate"
)

// pack takes the rows of a region out of memory with pitches. Pitches of 0 mean
// that nothing lies between.
func pack(data []byte, size [3]int, pixel, rowPitch, slicePitch int) ([]byte, error) {
	packed := make([]byte, 0, size[0]*size[1]*size[2]*pixel)
	err := rows(len(data), size, pixel, rowPitch, slicePitch, func(at, n int) {
		packed = append(packed, data[at:at+n]...)
	})
	return packed, err
}

// unpack puts the rows of packed pixels where the pitches say.
func unpack(data, packed []byte, size [3]int, pixel, rowPitch, slicePitch int) error {
	return rows(len(data), size, pixel, rowPitch, slicePitch, func(at, n int) {
		copy(data[at:at+n], packed)
		packed = packed[n:]
	})
}

// rows calls do for each row with its place in memory of length total.
func rows(total int, size [3]int, pixel, rowPitch, slicePitch int, do func(at, n int)) error {
	row := size[0] * pixel
	rowPitch = cmp.Or(rowPitch, row)
	slicePitch = cmp.Or(slicePitch, rowPitch*size[1])
	last := (size[2]-1)*slicePitch + (size[1]-1)*rowPitch + row
	if rowPitch < row || slicePitch < rowPitch*size[1] || last > total {
		return ErrInvalidValue
	}
	for z := range size[2] {
		for y := range size[1] {
			do(z*slicePitch+y*rowPitch, row)
		}
	}
	return nil
}

func (b *MemObject) picture() (*gpustate.Image, error) {
	if b == nil || b.img == nil {
		return nil, ErrInvalidMemObject
	}
	return b.img, nil
}

// EnqueueReadImage copies a region of an image to data. It is complete when the
// call returns, whether it blocks or not.
func (q *CommandQueue) EnqueueReadImage(image *MemObject, blocking bool, origin, region [3]int, rowPitch,
	slicePitch int, data []byte, eventWaitList []*Event) (*Event, error) {
	i, err := image.picture()
	if err != nil {
		return nil, err
	}
	packed := make([]byte, region[0]*region[1]*region[2]*i.PixelBytes())
	return q.imageCommand(eventWaitList, func() error {
		if err := q.q.ReadImage(i, gpustate.Region{Origin: origin, Size: region}, packed); err != nil {
			return err
		}
		return unpack(data, packed, region, i.PixelBytes(), rowPitch, slicePitch)
	})
}

// EnqueueWriteImage copies data to a region of an image. It is complete when the
// call returns, whether it blocks or not.
func (q *CommandQueue) EnqueueWriteImage(image *MemObject, blocking bool, origin, region [3]int, rowPitch,
	slicePitch int, data []byte, eventWaitList []*Event) (*Event, error) {
	i, err := image.picture()
	if err != nil {
		return nil, err
	}
	packed, err := pack(data, region, i.PixelBytes(), rowPitch, slicePitch)
	if err != nil {
		return nil, err
	}
	return q.imageCommand(eventWaitList, func() error {
		return q.q.WriteImage(i, gpustate.Region{Origin: origin, Size: region}, packed)
	})
}

// imageCommand does a blocking command behind its wait list and gives a
// complete event.
func (q *CommandQueue) imageCommand(wait []*Event, do func() error) (*Event, error) {
	return issue(wait, false, func(after []*gpustate.Event) (*gpustate.Event, error) {
		for _, e := range after {
			if err := e.Wait(); err != nil {
				return nil, err
			}
		}
		if err := do(); err != nil {
			return nil, err
		}
		return q.q.Marker()
	})
}

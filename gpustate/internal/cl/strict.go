package cl

import (
	"errors"

	"github.com/holdfast-hpc/holdfast/gpustate/internal/driver"
)

// What NVIDIA's OpenCL refuses with CL_INVALID_VALUE although the specification allows it:
//
//   - a box of a buffer whose slices end, with the gap behind the last of their rows, beyond
//     the buffer. Such a box goes in pieces.
//   - copies between buffers and arrays of two or more images of one dimension: linesToBuffer
//     and bufferToLines do them.

// Strict makes every platform as strict as that, so that tests need no NVIDIA to find what it
// would refuse. It is set before devices are opened.
var Strict bool

// holds says whether the slices of a box, and the gaps in them, lie within so many bytes.
func holds(l driver.Layout, b driver.Box, bytes int64) bool {
	return l.Off/l.Slice+b[2] <= bytes/l.Slice
}

// strictBox refuses what the strictest platform refuses, of the arguments of a call.
func strictBox(call string, l driver.Layout, b driver.Box, bytes int64) error {
	if !Strict {
		return nil
	}
	o := l.Origin()
	bad := l.Row < b[0] || l.Slice < b[1]*l.Row || l.Slice%l.Row != 0 || (o[2]+b[2])*l.Slice > bytes
	for i := range 3 {
		bad = bad || o[i] < 0 || b[i] < 1
	}
	if bad {
		return check(call, invalidValue)
	}
	return nil
}

// strictLines is strictBox of copies between buffers and images.
func strictLines(call string, image *mem) error {
	if Strict && image.lines {
		return check(call, invalidValue)
	}
	return nil
}

// refused says whether a platform is as strict as that.
func refused(err error) bool {
	var call *driver.CallError
	return errors.As(err, &call) && call.Code == invalidValue
}

// tight leaves out the gaps that a box does not touch.
func tight(r driver.Rect) driver.Rect {
	for _, l := range []*driver.Layout{&r.To, &r.From} {
		if r.Size[2] == 1 {
			if r.Size[1] == 1 {
				l.Row = r.Size[0]
			}
			l.Slice = r.Size[1] * l.Row
		}
	}
	return r
}

// pieces are the parts of a box that fit, one after the other: nearly always the box.
// Otherwise its last slice comes by itself, and, if need be, that one's last row.
func pieces(r driver.Rect, fit func(driver.Rect) bool) (list []driver.Rect) {
	for {
		r = tight(r)
		last := 2
		switch {
		case fit(r):
			return append(list, r)
		case r.Size[2] == 1 && r.Size[1] == 1:
			return append(list, r) // not within the object: the platform says so
		case r.Size[2] == 1:
			last = 1
		}
		first := r
		first.Size[last]--
		list = append(list, tight(first))
		var at [3]int64
		at[last] = first.Size[last]
		r.To, r.From = r.To.From(at[0], at[1], at[2]), r.From.From(at[0], at[1], at[2])
		r.Size[last] = 1
	}
}

// inPieces issues a box: its event is the last piece's, which comes after the others.
func inPieces(r driver.Rect, fit func(driver.Rect) bool, block bool, wait []driver.Event,
	issue func(r driver.Rect, block bool, wait []driver.Event) (driver.Event, error)) (e driver.Event, err error) {
	if fit(r) {
		return issue(r, block, wait)
	}
	list := pieces(r, fit)
	for i, p := range list {
		next, err := issue(p, block && i == len(list)-1, wait)
		if i > 0 {
			if err != nil {
				_ = waitEvent(e) // the host's memory is the caller's again
			}
			releaseEvent(e)
		}
		if err != nil {
			return 0, err
		}
		e, wait = next, []driver.Event{next}
	}
	return e, nil
}

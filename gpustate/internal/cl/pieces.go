package cl

/*
#include "table.h"
*/
import "C"

import "github.com/holdfast-hpc/holdfast/gpustate/internal/driver"

// NVIDIA's OpenCL refuses a box of a buffer whose slices end, with the gap behind the last of their rows, beyond
// the buffer, although the specification allows it. Such a box goes in pieces.

// holds reports whether the slices of a box, and the gaps in them, lie within a number of bytes.
func holds(l driver.Layout, b driver.Box, bytes int64) bool {
	return l.Off/l.Slice+b[2] <= bytes/l.Slice
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

// pieces returns the parts of a box that fit, one after the other: nearly always the box.
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
func inPieces(r driver.Rect, call string, fit func(driver.Rect) bool, block bool, wait []driver.Event,
	issue func(r driver.Rect, block bool, n C.uint32_t, wait *handle) C.made) (e driver.Event, err error) {
	if fit(r) {
		n, w := waitList(wait)
		return eventBy(call, issue(r, block, n, w))
	}
	list := pieces(r, fit)
	for i, p := range list {
		n, w := waitList(wait)
		next, err := eventBy(call, issue(p, block && i == len(list)-1, n, w))
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

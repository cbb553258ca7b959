package mpiwrap

import (
	"fmt"
	"math"
	"unsafe"

	"github.com/holdfast-hpc/holdfast/mpiwrap/internal/call"
	"github.com/holdfast-hpc/holdfast/mpiwrap/internal/driver"
)

// Put writes src to element at and following of target's part. A Put to
// ProcNull does nothing, as does every access below.
func (w *Win[T]) Put(target, at int, src []T) error {
	return w.w.access("Put", driver.Rma{Kind: driver.Put, Target: target, Displ: at, Count: len(src),
		Origin: bytesOf(src)})
}

// Get reads from element at and following of target's part into dest.
func (w *Win[T]) Get(target, at int, dest []T) error {
	return w.w.access("Get", driver.Rma{Kind: driver.Get, Target: target, Displ: at, Count: len(dest),
		Result: bytesOf(dest)})
}

// Accumulate combines src into element at and following of target's part:
// memory = memory op src, atomically per element.
func (w *Win[T]) Accumulate(target, at int, src []T, op Op) error {
	return w.w.access("Accumulate", driver.Rma{Kind: driver.Accumulate, Target: target, Displ: at, Count: len(src),
		Op: driver.Op(op), Origin: bytesOf(src)})
}

// GetAccumulate is Accumulate that also stores in dest what was there before. With
// NoOp it is an atomic Get.
func (w *Win[T]) GetAccumulate(target, at int, dest, src []T, op Op) error {
	if len(dest) != len(src) {
		return w.w.refuse("GetAccumulate", target, ErrLength, fmt.Sprintf("dest has %d elements, src %d", len(dest),
			len(src)))
	}
	return w.w.access("GetAccumulate", driver.Rma{Kind: driver.GetAccumulate, Target: target, Displ: at,
		Count: len(src),
		Op:    driver.Op(op), Origin: bytesOf(src), Result: bytesOf(dest)})
}

// FetchAndOp is GetAccumulate for one element; *result is valid after the next
// Flush, Unlock or Fence.
func (w *Win[T]) FetchAndOp(target, at int, result *T, value T, op Op) error {
	origin := []T{value}
	return w.w.access("FetchAndOp", driver.Rma{Kind: driver.FetchAndOp, Target: target, Displ: at, Count: 1,
		Op: driver.Op(op), Origin: bytesOf(origin), Result: bytesOf(unsafe.Slice(result, 1))})
}

// CompareAndSwap stores value in element at of target's part if it equals
// compare; *result gets what was there before, valid after the next Flush, Unlock or
// Fence. It is for integers.
func (w *Win[T]) CompareAndSwap(target, at int, result *T, compare, value T) error {
	if t := w.w.typ; t == driver.Float32 || t == driver.Float64 || t == driver.Complex64 || t == driver.Complex128 {
		return w.w.refuse("CompareAndSwap", target, ErrOp, "MPI compares integers only")
	}
	return w.w.access("CompareAndSwap", driver.Rma{Kind: driver.CompareAndSwap, Target: target, Displ: at, Count: 1,
		Origin: bytesOf([]T{value}), Compare: bytesOf([]T{compare}), Result: bytesOf(unsafe.Slice(result, 1))})
}

func (w *window) refuse(name string, target int, err error, text string) error {
	return &Error{Call: name, Comm: w.name, Peer: target, Tag: NoTag, Err: err, Text: text}
}

// access checks and starts one access. Its buffers stay pinned until the epoch
// ends.
func (w *window) access(name string, a driver.Rma) error {
	if a.Target == ProcNull {
		return w.usable(name)
	}
	if err := w.target(name, a.Target); err != nil {
		return err
	}
	if a.Displ < 0 || a.Displ > w.perRank[a.Target]-a.Count {
		return w.refuse(name, a.Target, ErrLength,
			fmt.Sprintf("elements %d to %d of %d", a.Displ, a.Displ+a.Count, w.perRank[a.Target]))
	}
	if a.Count > math.MaxInt32 {
		return w.refuse(name, a.Target, ErrTooLarge, fmt.Sprintf("%d elements", a.Count))
	}
	if a.Op < driver.Sum || a.Op > driver.NoOp {
		return w.refuse(name, a.Target, ErrOp, fmt.Sprintf("operator %d", a.Op))
	}
	if len(w.locks) > 0 && !w.locks[a.Target] {
		return w.refuse(name, a.Target, ErrEpochOpen, "this window holds a lock on another rank, but not on this one")
	}
	g, err := w.c.ch.Quick(call.Rma, a.Target, NoTag)
	if err != nil {
		return err
	}
	defer g.Leave()
	a.Type = w.typ
	w.c.st.Lock()
	for _, b := range [][]byte{a.Origin, a.Result, a.Compare} {
		if len(b) > 0 && w.c.st.Info.Pin {
			w.pinFor(a.Target).Pin(unsafe.SliceData(b))
		}
	}
	if !w.all && len(w.locks) == 0 {
		w.dirty = true
	}
	w.c.st.Unlock()
	return w.wrap(call.Rma, a.Target, w.c.st.Driver.Rma(w.h, a))
}

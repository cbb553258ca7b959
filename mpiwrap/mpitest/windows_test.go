package mpitest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-hpc/holdfast/mpiwrap"
)

var windowCases = []Case{
	{"windows with fences", fences},
	{"windows with locks", locks},
	{"windows and checkpoints", windowsAtPoints},
	{"bad arguments of windows", badWindows},
}

func fences(w *mpiwrap.Comm) error {
	next, prev := neighbours(w)
	win, err := mpiwrap.WinAllocate[float64](w, 8)
	if err != nil {
		return err
	}
	got := make([]float64, 2)
	err = all(win.Fence(), win.Put(next, 3, pattern(2, w.Rank(), 1)), win.Put(mpiwrap.ProcNull, 0, got), win.Fence(),
		equalSlices("put", win.Memory()[3:5], pattern(2, prev, 1)),
		win.Get(next, 3, got), win.Fence(), equalSlices("get", got, pattern(2, w.Rank(), 1)),
		win.Accumulate(0, 0, []float64{1, 2}, mpiwrap.Sum), win.Fence())
	if err != nil {
		return err
	}
	if w.Rank() == 0 {
		n := float64(w.Size())
		err = equalSlices("accumulated", win.Memory()[:2], []float64{n, 2 * n})
	}
	return all(err, win.Fence(), win.Free(), wantErr("after free", win.Fence(), mpiwrap.ErrFreed))
}

// locks: a counter on rank 0 hands out each number once.
func locks(w *mpiwrap.Comm) error {
	win, err := mpiwrap.WinAllocate[int64](w, 2)
	if err != nil {
		return err
	}
	const each = 20
	var mine, old int64
	for range each {
		if err := all(win.Lock(0, true), win.FetchAndOp(0, 0, &old, 1, mpiwrap.Sum), win.Flush(0),
			win.Unlock(0)); err != nil {
			return err
		}
		mine += old
	}
	total := []int64{0}
	n := int64(each * w.Size())
	if err := all(mpiwrap.Allreduce(w, total, []int64{mine}, mpiwrap.Sum),
		equal("sum of tickets", total[0], n*(n-1)/2)); err != nil {
		return err
	}
	// One rank wins the swap.
	var before int64
	err = all(win.LockAll(), win.CompareAndSwap(0, 1, &before, 0, int64(w.Rank()+1)), win.FlushAll(), win.Sync(),
		win.UnlockAll())
	won := int64(0)
	if before == 0 {
		won = 1
	}
	if err := all(err, mpiwrap.Allreduce(w, total, []int64{won}, mpiwrap.Sum),
		equal("winners", total[0], 1)); err != nil {
		return err
	}
	sum, add := make([]int64, 1), []int64{5}
	err = all(win.Lock(0, false), win.GetAccumulate(0, 0, sum, add, mpiwrap.NoOp), win.FlushLocal(0), win.Unlock(0),
		equal("atomic get", sum[0], n))
	return all(err, w.Barrier(), win.Free())
}

func windowsAtPoints(w *mpiwrap.Comm) error {
	win, err := mpiwrap.WinAllocate[int32](w, 4)
	if err != nil {
		return err
	}
	if err := all(win.Fence(), Drain(w)); err != nil {
		return err
	}
	if w.Rank() == 0 {
		if err := win.Put(w.Size()-1, 0, []int32{9, 9, 9, 9}); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	_, err = w.Endpoint().Drain(ctx)
	if err := wantErr("drain with an epoch open", err, mpiwrap.ErrDrainIncomplete); err != nil {
		return err
	}
	if w.Rank() == 0 && (!errors.Is(err, mpiwrap.ErrEpochOpen) || w.Endpoint().OpenEpochs() == nil) {
		return fmt.Errorf("the error does not name the epoch: %v", err)
	}
	if err := all(win.Fence(), Drain(w)); err != nil {
		return err
	}
	saved, err := win.MarshalBinary()
	if err != nil {
		return err
	}
	want := append([]int32(nil), win.Memory()...)
	clear(win.Memory())
	return all(win.UnmarshalBinary(saved), equalSlices("restored", win.Memory(), want),
		wantErr("wrong length", win.UnmarshalBinary(saved[1:]), mpiwrap.ErrLength), w.Barrier(), win.Free())
}

func badWindows(w *mpiwrap.Comm) error {
	win, err := mpiwrap.WinAllocate[float32](w, w.Rank())
	if err != nil {
		return err
	}
	var f float32
	return all(
		wantErr("rank", win.Put(w.Size(), 0, nil), mpiwrap.ErrRank),
		wantErr("past the end", win.Put(0, 0, []float32{1}), mpiwrap.ErrLength),
		wantErr("before the beginning", win.Get(0, -1, nil), mpiwrap.ErrLength),
		wantErr("operator", win.Accumulate(0, 0, nil, mpiwrap.Op(77)), mpiwrap.ErrOp),
		wantErr("swap of floats", win.CompareAndSwap(0, 0, &f, 0, 1), mpiwrap.ErrOp),
		wantErr("unlock", win.Unlock(0), mpiwrap.ErrRequest),
		wantErr("flush", win.Flush(0), mpiwrap.ErrRequest),
		w.Barrier(), win.Free())
}

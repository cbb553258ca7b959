package mpitest

import (
	"errors"
	"fmt"
	"math/rand/v2"

	"github.com/holdfast-hpc/holdfast/mpiwrap"
)

// modelWindow is the window of a random program: counters to which ranks add, and a
// place for each rank where it puts what it then gets back. Now and then it is freed for
// good.
type modelWindow struct {
	win   *mpiwrap.Win[int64]
	n     int // ranks
	added int64
	put   []int64 // last value put on each rank, 0 for none
	gone  bool    // freed, in this life or before
	over  bool    // freed in this life
}

func (x *modelWindow) attach(w *mpiwrap.Comm, saved []byte) (err error) {
	x.n, x.over = w.Size(), false
	if x.win, err = mpiwrap.WinAllocate[int64](w, 1+x.n); err != nil || saved == nil {
		return err
	}
	if err := errors.Join(x.win.UnmarshalBinary(saved), w.Barrier()); err != nil { // before anybody reaches in
		return err
	}
	if x.gone {
		if err := x.win.Lock(0, true); !errors.Is(err, mpiwrap.ErrFreed) {
			return fmt.Errorf("a window that was freed at the checkpoint: got %v, want ErrFreed", err)
		}
	}
	return nil
}

// round makes some accesses in an epoch of one of the kinds, and closes it.
func (x *modelWindow) round(w *mpiwrap.Comm, rng *rand.Rand) error {
	if x.put == nil {
		x.put = make([]int64, x.n)
	}
	if x.gone || rng.IntN(2) == 0 {
		return nil
	}
	if rng.IntN(2) == 0 {
		to := rng.IntN(x.n)
		return errors.Join(x.win.Lock(to, rng.IntN(2) == 0), x.add(rng, to), x.exchange(w, rng, to), x.win.Unlock(to))
	}
	err := x.win.LockAll()
	for range rng.IntN(4) {
		err = errors.Join(err, x.add(rng, rng.IntN(x.n)), x.exchange(w, rng, rng.IntN(x.n)))
	}
	return errors.Join(err, x.win.UnlockAll())
}

// add counts on a rank. Only the library keeps the buffers.
func (x *modelWindow) add(rng *rand.Rand, to int) error {
	v := int64(rng.IntN(100))
	x.added += v
	if rng.IntN(2) == 0 {
		return x.win.Accumulate(to, 0, []int64{v}, mpiwrap.Sum)
	}
	return x.win.FetchAndOp(to, 0, new(int64), v, mpiwrap.Sum)
}

// exchange gets back what was put on a rank before, and puts something new.
func (x *modelWindow) exchange(w *mpiwrap.Comm, rng *rand.Rand, to int) error {
	got := make([]int64, 1)
	err := errors.Join(x.win.Get(to, 1+w.Rank(), got), x.win.Flush(to))
	if err != nil || got[0] != x.put[to] {
		return fmt.Errorf("rank %d has %d in the window, want %d: %v", to, got[0], x.put[to], err)
	}
	x.put[to] = rng.Int64()
	err = x.win.Put(to, 1+w.Rank(), []int64{x.put[to]})
	if rng.IntN(2) == 0 {
		err = errors.Join(err, x.win.FlushLocal(to), x.win.Flush(to))
	}
	return errors.Join(err, x.win.Flush(to))
}

// save captures the window after a drain.
func (x *modelWindow) save(w *mpiwrap.Comm) ([]byte, error) {
	b, err := x.win.MarshalBinary()
	return b, errors.Join(err, w.Private().Barrier())
}

// free checks what has been counted.
func (x *modelWindow) free(c *mpiwrap.Comm) error {
	if x.gone {
		return x.win.Free()
	}
	if err := c.Barrier(); err != nil {
		return err
	}
	sums, mine := make([]int64, 2), []int64{x.added, x.win.Memory()[0]}
	if err := mpiwrap.Allreduce(c, sums, mine, mpiwrap.Sum); err != nil || sums[0] != sums[1] {
		return fmt.Errorf("%d was added to the window, %d is there: %v", sums[0], sums[1], err)
	}
	return x.win.Free()
}

// freeEarly frees the window in the middle of the program.
func (x *modelWindow) freeEarly(c *mpiwrap.Comm) error {
	if x.gone {
		return nil
	}
	err := x.free(c)
	x.gone, x.over = true, true
	return err
}

// end frees what is there to be freed: after a restart also a window that was freed
// before.
func (x *modelWindow) end(c *mpiwrap.Comm) error {
	if x.over {
		return nil
	}
	return x.free(c)
}

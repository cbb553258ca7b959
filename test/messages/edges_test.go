package messages

import (
	"errors"
	"fmt"
	"testing"

	"github.com/holdfast-hpc/holdfast/gpustate"
	"github.com/holdfast-hpc/holdfast/mpiwrap"
	"github.com/holdfast-hpc/holdfast/mpiwrap/mpitest"
)

// ended waits for what has been started.
func ended(r *mpiwrap.Request, err error) error {
	if err != nil {
		return err
	}
	_, err = r.Wait()
	return err
}

// TestNegativeRanges: a collective refuses a range of fewer than no bytes, whatever it is for.
func TestNegativeRanges(t *testing.T) {
	type rng = *gpustate.Range
	hood := func(w *mpiwrap.Comm) *mpiwrap.Neighborhood {
		n, err := w.NewNeighborhood([]int{1 - w.Rank()}, []int{1 - w.Rank()})
		if err != nil {
			t.Error(err)
		}
		return n
	}
	one, at := []int{1, 1}, []int{0, 1}
	for name, do := range map[string]func(w *mpiwrap.Comm, bad, good rng) error{
		"Bcast": func(w *mpiwrap.Comm, bad, _ rng) error { return mpiwrap.BcastDevice(w, bad, 0) },
		"Allreduce": func(w *mpiwrap.Comm, bad, _ rng) error {
			return mpiwrap.AllreduceDevice[uint8](w, bad, bad, mpiwrap.Sum)
		},
		"Alltoall": func(w *mpiwrap.Comm, bad, _ rng) error { return mpiwrap.AlltoallDevice(w, bad, bad) },
		"Alltoallv": func(w *mpiwrap.Comm, bad, good rng) error {
			return mpiwrap.AlltoallvDevice[uint8](w, bad, one, at, good, one, at)
		},
		"Allgather to":   func(w *mpiwrap.Comm, bad, good rng) error { return mpiwrap.AllgatherDevice(w, bad, good) },
		"Allgather from": func(w *mpiwrap.Comm, bad, good rng) error { return mpiwrap.AllgatherDevice(w, good, bad) },
		"Neighbor": func(w *mpiwrap.Comm, bad, good rng) error {
			return mpiwrap.NeighborAllgatherDevice(hood(w), good, bad)
		},
		"Ibcast": func(w *mpiwrap.Comm, bad, _ rng) error { return ended(mpiwrap.IbcastDevice(w, bad, 0)) },
		"Iallgather": func(w *mpiwrap.Comm, bad, good rng) error {
			return ended(mpiwrap.IallgatherDevice(w, good, bad))
		},
	} {
		t.Run(name, func(t *testing.T) {
			err := mpitest.NewWorld(2, mpitest.Options{}).Run(func(w *mpiwrap.Comm) error {
				d, q, b, err := small()
				if err != nil {
					return err
				}
				defer d.Close()
				for _, n := range []int{-1, -2, -1 << 62} {
					if err := do(w, q.Range(b, 8, n), q.Range(b, 0, 2)); !errors.Is(err, mpiwrap.ErrLength) {
						return fmt.Errorf("a range of %d bytes gives %v, want ErrLength", n, err)
					}
				}
				return nil
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
}

// small opens a device with a little buffer.
func small() (d *gpustate.Device, q *gpustate.Queue, b *gpustate.Buffer, err error) {
	if d, err = gpustate.Open(gpustate.Select{Kind: "fake"}); err != nil {
		return nil, nil, nil, err
	}
	q, err1 := d.Queue("q")
	b, err2 := d.Buffer("b", 64)
	return d, q, b, errors.Join(err1, err2)
}

// TestStartWithoutMemory: a prepared receive whose memory is not there, or not any more, cannot be started, and the
// message is another one's.
func TestStartWithoutMemory(t *testing.T) {
	for _, gone := range []bool{false, true} {
		err := mpitest.NewWorld(1, mpitest.Options{}).Run(func(w *mpiwrap.Comm) error {
			d, q, b, err := small()
			if err != nil {
				return err
			}
			defer d.Close()
			want, n := gpustate.ErrRange, 65
			if gone {
				want, n = gpustate.ErrReleased, 8
			}
			again := mpiwrap.NewDeviceRequest(w, q.Range(b, 0, n))
			starts := []func() error{func() error { return again.Irecv(0, 1) }}
			if gone {
				r, err := mpiwrap.RecvInitDevice(w, q.Range(b, 0, n), 0, 1)
				if err := errors.Join(err, b.Release()); err != nil {
					return err
				}
				starts = append(starts, func() error { return mpiwrap.Start(r) })
			}
			for _, start := range starts {
				if err := start(); !errors.Is(err, want) {
					return fmt.Errorf("to start it gives %v, want %v", err, want)
				}
			}
			if err := mpiwrap.Send(w, []byte{7}, 0, 1); err != nil {
				return err
			}
			var got [1]byte
			if _, err := mpiwrap.Recv(w, got[:], 0, 1); err != nil || got[0] != 7 {
				return fmt.Errorf("the next receive gets %v, %v", got, err)
			}
			return nil
		})
		if err != nil {
			t.Errorf("released %v: %v", gone, err)
		}
	}
}

package messages

import (
	"errors"
	"fmt"
	"testing"

	"github.com/holdfast-hpc/holdfast/gpustate"
	"github.com/holdfast-hpc/holdfast/mpiwrap"
	"github.com/holdfast-hpc/holdfast/mpiwrap/mpitest"
)

// TestNegativeRanges: a collective refuses a range of fewer than no bytes, whatever it is for.
func TestNegativeRanges(t *testing.T) {
	type rng = *gpustate.Range
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

// TestStartWithoutMemory: a receive of NewDeviceRequest whose memory is not there, or not any more, cannot be
// started, and the message is another one's.
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
			r := mpiwrap.NewDeviceRequest(w, q.Range(b, 0, n))
			if gone {
				if err := b.Release(); err != nil {
					return err
				}
			}
			if err := r.Irecv(0, 1); !errors.Is(err, want) {
				return fmt.Errorf("to start it gives %v, want %v", err, want)
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

package messages

import (
	"bytes"
	"errors"
	"fmt"
	"testing"

	"github.com/holdfast-hpc/holdfast/gpustate"
	"github.com/holdfast-hpc/holdfast/mpiwrap"
	"github.com/holdfast-hpc/holdfast/mpiwrap/mpitest"
)

// TestOverlap: ranges of one call that share memory are refused if they must not, even if they are of different
// Buffers, and accepted if they are the same or only next to each other.
func TestOverlap(t *testing.T) {
	const n = 9 << 20
	err := mpitest.NewWorld(2, mpitest.Options{Seed: 1}).Run(func(w *mpiwrap.Comm) error {
		d, err := gpustate.Open(gpustate.Select{Kind: "fake"})
		if err != nil {
			return err
		}
		defer d.Close()
		q, err1 := d.Queue("q")
		b, err2 := d.Buffer("b", 2*n)
		if err := errors.Join(err1, err2); err != nil {
			return err
		}
		half, err1 := b.Sub("half", n, n)
		_, err2 = q.Fill(b, 0, 2*n, []byte{byte(1 + w.Rank())})
		if err := errors.Join(err1, err2); err != nil {
			return err
		}
		host := make([]byte, 100)
		for _, c := range []struct {
			name      string
			dest, src mpiwrap.DeviceRange
			same      bool
			want      error
		}{
			{"shifted", q.Range(b, 8, n), q.Range(b, 0, n), false, mpiwrap.ErrOverlap},
			{"shifted down", q.Range(b, 0, n), q.Range(b, n-1, n), false, mpiwrap.ErrOverlap},
			{"a range of the buffer", q.Range(half, 0, 16), q.Range(b, n+8, 16), false, mpiwrap.ErrOverlap},
			{"host memory", mpiwrap.HostRange(host[:60]), mpiwrap.HostRange(host[40:]), false, mpiwrap.ErrOverlap},
			{"the same", q.Range(b, 0, n), q.Range(b, 0, n), true, nil},
			{"the same in a range", q.Range(half, 8, 16), q.Range(b, n+8, 16), true, nil},
			{"beside each other", q.Range(half, 0, n), q.Range(b, 0, n), false, nil},
			{"empty", q.Range(b, 5, 0), q.Range(b, 5, 0), false, nil},
		} {
			if err := mpiwrap.AllreduceDevice[uint8](w, c.dest, c.src, mpiwrap.Max); !errors.Is(err, c.want) {
				return fmt.Errorf("%s: the sum gives %v, want %v", c.name, err, c.want)
			}
			if c.same {
				c.want = mpiwrap.ErrOverlap
			}
			_, err := mpiwrap.SendrecvDevice(w, c.src, 1-w.Rank(), 1, c.dest, 1-w.Rank(), 1)
			if !errors.Is(err, c.want) {
				return fmt.Errorf("%s: the exchange gives %v, want %v", c.name, err, c.want)
			}
		}
		got := make([]byte, n)
		if err := q.Read(b, 0, got); err != nil || !bytes.Equal(got, bytes.Repeat([]byte{2}, n)) {
			return fmt.Errorf("the sum in place is wrong (%v)", err)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

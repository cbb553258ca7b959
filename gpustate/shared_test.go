package gpustate

import (
	"bytes"
	"errors"
	"sync"
	"testing"
)

// TestSharedAtOnce reads and copies one shared buffer on several queues at a time, in
// both directions between two.
func TestSharedAtOnce(t *testing.T) {
	onDevices(t, func(t *testing.T, open func() *Device) {
		const n, rounds = 1 << 16, 50
		d := open()
		q := must(d.Queue("q"))(t)
		a, b := must(d.Shared("a", n))(t), must(d.Shared("b", n))(t)
		fillWith(t, q, a, 7)
		fillWith(t, q, b, 7)
		work := func(q *Queue, to, from *Shared) error {
			got := make([]byte, n)
			for range rounds {
				if err := q.Read(from, 0, got); err != nil {
					return err
				}
				if !bytes.Equal(got, bytes.Repeat([]byte{7}, n)) {
					return errors.New("it holds other bytes")
				}
				if _, err := q.Copy(to, 0, from, 0, n/2); err != nil {
					return err
				}
			}
			return q.Finish()
		}
		var wg sync.WaitGroup
		for i := range 4 {
			q := must(d.Queue(""))(t)
			wg.Go(func() {
				to, from := a, b
				if i%2 == 0 {
					to, from = b, a
				}
				if err := work(q, to, from); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
	})
}

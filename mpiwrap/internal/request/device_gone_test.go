package request_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/holdfast-hpc/holdfast/gpustate"
	_ "github.com/holdfast-hpc/holdfast/gpustate/gputest" // brings the fake
	"github.com/holdfast-hpc/holdfast/mpiwrap"
	"github.com/holdfast-hpc/holdfast/mpiwrap/mpitest"
)

// TestDeviceGoneWithMessages releases, makes again or closes what a message is on its way to or
// from. Lengths are those of a short message and of one in pieces.
func TestDeviceGoneWithMessages(t *testing.T) {
	mpitest.SmallPieces(1024, 4096, 8)
	for _, n := range []int{256, 16 << 10} {
		for name, test := range map[string]func(w *mpiwrap.Comm, d *gpustate.Device, q *gpustate.Queue, n int) error{
			"sent from what is released": goneSource, "received into what is released": goneDest,
			"received into a closed device": goneDevice, "sent from where there is nothing": goneRange,
			"moved meanwhile": goneElsewhere,
		} {
			t.Run(fmt.Sprint(name, " ", n), func(t *testing.T) {
				err := mpitest.NewWorld(1, mpitest.Options{Seed: 1}).Run(func(w *mpiwrap.Comm) error {
					d, err := gpustate.Open(gpustate.Select{Kind: "fake"})
					if err != nil {
						return err
					}
					defer d.Close()
					q, err := d.Queue("q")
					if err != nil {
						return err
					}
					return test(w, d, q, n)
				})
				if err != nil {
					t.Error(err)
				}
			})
		}
	}
}

// filled returns a buffer of n bytes b.
func filled(d *gpustate.Device, q *gpustate.Queue, name string, n int, b byte) (*gpustate.Buffer, error) {
	buf, err := d.Buffer(name, n)
	if err == nil {
		_, err = q.Fill(buf, 0, n, []byte{b})
	}
	return buf, err
}

func goneSource(w *mpiwrap.Comm, d *gpustate.Device, q *gpustate.Queue, n int) error {
	src, err := filled(d, q, "src", n, 7)
	if err != nil {
		return err
	}
	out, err := mpiwrap.IsendDevice(w, q.Range(src, 0, n), 0, 1)
	if err != nil {
		return err
	}
	if err := src.Release(); err != nil {
		return err
	}
	if _, err := filled(d, q, "src", n, 8); err != nil { // the same name, and perhaps the same memory
		return err
	}
	got := make([]byte, n)
	if _, err := mpiwrap.Recv(w, got, 0, 1); err != nil {
		return err
	}
	if !bytes.Equal(got, bytes.Repeat([]byte{7}, n)) {
		return errors.New("the message is not what the buffer held when it was sent")
	}
	if _, err := out.Wait(); err != nil {
		return err
	}
	if err := mpiwrap.SendDevice(w, q.Range(src, 0, n), 0, 1); !errors.Is(err, gpustate.ErrReleased) {
		return fmt.Errorf("sent what is released: got %v, want ErrReleased", err)
	}
	return nil
}

func goneDest(w *mpiwrap.Comm, d *gpustate.Device, q *gpustate.Queue, n int) error {
	src, err := filled(d, q, "src", n, 7)
	if err != nil {
		return err
	}
	dest, err := filled(d, q, "dest", n, 1)
	if err != nil {
		return err
	}
	in, err := mpiwrap.IrecvDevice(w, q.Range(dest, 0, n), 0, 1)
	if err != nil {
		return err
	}
	if err := dest.Release(); err != nil {
		return err
	}
	other, err := filled(d, q, "dest", n/2, 9)
	if err != nil {
		return err
	}
	if err := mpiwrap.SendDevice(w, q.Range(src, 0, n), 0, 1); err != nil {
		return err
	}
	if _, err := in.Wait(); !errors.Is(err, gpustate.ErrReleased) {
		return fmt.Errorf("the receive: got %v, want ErrReleased", err)
	}
	got := make([]byte, n/2)
	if err := q.Read(other, 0, got); err != nil || !bytes.Equal(got, bytes.Repeat([]byte{9}, n/2)) {
		return fmt.Errorf("a smaller buffer of the same name has been written to (%v)", err)
	}
	return anotherMessage(w, q, src, n)
}

// anotherMessage shows that messages still arrive.
func anotherMessage(w *mpiwrap.Comm, q *gpustate.Queue, src *gpustate.Buffer, n int) error {
	if err := mpiwrap.SendDevice(w, q.Range(src, 0, n), 0, 2); err != nil {
		return err
	}
	got := make([]byte, n)
	if _, err := mpiwrap.Recv(w, got, 0, 2); err != nil || got[n-1] != 7 {
		return fmt.Errorf("the next message has %d, want 7: %v", got[n-1], err)
	}
	return nil
}

func goneDevice(w *mpiwrap.Comm, d *gpustate.Device, q *gpustate.Queue, n int) error {
	src, err := filled(d, q, "src", n, 7)
	if err != nil {
		return err
	}
	other, err := gpustate.Open(gpustate.Select{Kind: "fake"})
	if err != nil {
		return err
	}
	q2, err := other.Queue("q")
	if err != nil {
		return err
	}
	dest, err := filled(other, q2, "dest", n, 1)
	if err != nil {
		return err
	}
	in, err := mpiwrap.IrecvDevice(w, q2.Range(dest, 0, n), 0, 1)
	if err != nil {
		return err
	}
	if err := errors.Join(other.Close(), mpiwrap.SendDevice(w, q.Range(src, 0, n), 0, 1)); err != nil {
		return err
	}
	if _, err := in.Wait(); !errors.Is(err, gpustate.ErrClosed) {
		return fmt.Errorf("the receive: got %v, want ErrClosed", err)
	}
	if _, err := mpiwrap.RecvDevice(w, q2.Range(dest, 0, n), 0, 1); !errors.Is(err, gpustate.ErrClosed) {
		return fmt.Errorf("a new receive: got %v, want ErrClosed", err)
	}
	return anotherMessage(w, q, src, n)
}

func goneRange(w *mpiwrap.Comm, d *gpustate.Device, q *gpustate.Queue, n int) error {
	src, err := filled(d, q, "src", n, 7)
	if err != nil {
		return err
	}
	for _, r := range []*gpustate.Range{q.Range(src, 1, n), q.Range(src, -1, 4), q.Range(src, 0, -1)} {
		if err := mpiwrap.SendDevice(w, r, 0, 1); !errors.Is(err, gpustate.ErrRange) {
			return fmt.Errorf("got %v, want ErrRange", err)
		}
	}
	return anotherMessage(w, q, src, n)
}

// goneElsewhere moves the device between a send, a receive and their ends; the queue is busy when
// the receive is posted.
func goneElsewhere(w *mpiwrap.Comm, d *gpustate.Device, q *gpustate.Queue, n int) error {
	src, err := filled(d, q, "src", n, 7)
	if err != nil {
		return err
	}
	dest, err := filled(d, q, "dest", 2*n, 1)
	if err != nil {
		return err
	}
	in, err := mpiwrap.IrecvDevice(w, q.Range(dest, n, n), 0, 1)
	if err != nil {
		return err
	}
	move := func() error { return d.MigrateTo(context.Background(), gpustate.Select{Kind: "fake"}) }
	err = errors.Join(move(), mpiwrap.SendDevice(w, q.Range(src, 0, n), 0, 1))
	if err != nil {
		return err
	}
	if _, err := q.Fill(src, 0, n, []byte{8}); err != nil {
		return err
	}
	if err := move(); err != nil {
		return err
	}
	if _, err := in.Wait(); err != nil {
		return err
	}
	got := make([]byte, 2*n)
	if err := q.Read(dest, 0, got); err != nil {
		return err
	}
	if want := append(bytes.Repeat([]byte{1}, n), bytes.Repeat([]byte{7}, n)...); !bytes.Equal(got, want) {
		return errors.New("what was received is not what was sent, or lies elsewhere")
	}
	return nil
}

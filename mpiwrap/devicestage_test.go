package mpiwrap

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/holdfast-hpc/holdfast/mpiwrap/internal/sim"
	pins "github.com/holdfast-hpc/holdfast/mpiwrap/internal/sim/pinned"
)

// ways are the calls that receive n bytes from this rank itself.
var ways = map[string]func(c *Comm, b []byte) error{
	"Recv": func(c *Comm, b []byte) error { _, err := Recv(c, b, 0, 1); return err },
	"Irecv and Wait": func(c *Comm, b []byte) error {
		r, err := Irecv(c, b, 0, 1)
		return errors.Join(err, waitFor(r, err))
	},
	"Irecv and Test": func(c *Comm, b []byte) error {
		r, err := Irecv(c, b, 0, 1)
		for done := false; err == nil && !done; runtime.Gosched() {
			_, done, err = r.Test()
		}
		return err
	},
	"Irecv and WaitAll": func(c *Comm, b []byte) error {
		r, err := Irecv(c, b, 0, 1)
		if err != nil {
			return err
		}
		return WaitAll(r)
	},
	"RecvInit": func(c *Comm, b []byte) error {
		r, err := RecvInit(c, b, 0, 1)
		if err = errors.Join(err, Start(r)); err != nil {
			return err
		}
		_, err = r.Wait()
		return errors.Join(err, r.Free())
	},
	"Sendrecv": func(c *Comm, b []byte) error {
		_, err := Sendrecv(c, []byte{1}, ProcNull, 0, b, 0, 1)
		return err
	},
	"Mprobe": func(c *Comm, b []byte) error {
		m, err := c.Mprobe(0, 1)
		if err == nil {
			_, err = Mrecv(m, b)
		}
		return err
	},
	"drained": func(c *Comm, b []byte) error {
		if err := drainAll(c); err != nil {
			return err
		}
		_, err := Recv(c, b, 0, 1)
		return err
	},
}

func drainAll(c *Comm) error {
	_, err := c.Endpoint().Drain(context.Background())
	return err
}

// TestTruncatedMessagesLeaveNothing receives large messages of a device into host memory that is too short, also for
// the header that goes before them. Their memory is free afterwards, and nothing waits for them.
func TestTruncatedMessagesLeaveNothing(t *testing.T) {
	large := bytes.Repeat([]byte{7}, 1<<20)
	for name, receive := range ways {
		for _, n := range []int{0, 1, 64, 65, 127, 128, 4000} {
			t.Run(fmt.Sprint(name, "/", n), func(t *testing.T) {
				c := Single()
				for i := range 3 {
					out, err := IsendDevice(c, HostRange(large), 0, 1)
					if err != nil {
						t.Fatal(err)
					}
					b := make([]byte, n)
					if err := receive(c, b); !errors.Is(err, ErrTruncate) {
						t.Errorf("message %d: got %v, want ErrTruncate", i, err)
					}
					if _, err := out.Wait(); err != nil || !bytes.Equal(b, large[:n]) {
						t.Errorf("message %d: the buffer has not its beginning: %v", i, err)
					}
				}
				if n := c.st.Device.Busy(); n != 0 {
					t.Fatalf("%d slots hold messages that nobody will receive", n)
				}
				if err := drainAll(c); err != nil {
					t.Error(err)
				}
			})
		}
	}
}

// TestShortBuffersAreFilled: what goes through memory aside is what was sent, and too much of it is ErrTruncate.
func TestShortBuffersAreFilled(t *testing.T) {
	want := make([]byte, 200)
	for i := range want {
		want[i] = byte(i + 1)
	}
	for name, receive := range ways {
		c := Single()
		for _, sent := range []int{0, 1, 8, 64, 65, 127, 128, 129, 200} {
			for _, room := range []int{0, 1, 8, 64, 65, 127, 128, 129} {
				if err := Send(c, want[:sent], 0, 1); err != nil {
					t.Fatal(err)
				}
				b := make([]byte, room)
				err := receive(c, b)
				if sent > room != errors.Is(err, ErrTruncate) || sent <= room && err != nil {
					t.Errorf("%s of %d bytes into %d: %v", name, sent, room, err)
				}
				if n := min(sent, room); sent <= room && (!bytes.Equal(b[:n], want[:n]) ||
					!bytes.Equal(b[n:], make([]byte, room-n))) {
					t.Errorf("%s of %d bytes into %d: the bytes are not those sent, or more was written", name, sent,
						room)
				}
			}
		}
	}
}

// slowRange is host memory whose pieces are there when they are let go.
type slowRange struct {
	DeviceRange
	letGo chan struct{}
}

func (r *slowRange) ReadPieces(off int, dst [][]byte) (waits []func() error, err error) {
	for i := range dst {
		at := off
		off += len(dst[i])
		waits = append(waits, func() error {
			<-r.letGo
			w, err := r.DeviceRange.ReadPieces(at, dst[i:i+1])
			if err != nil {
				return err
			}
			return w[0]()
		})
	}
	return waits, nil
}

// TestTestDoesNotWait: while the sender's device is still reading a large message, whose header is there, a Test of its
// receive returns, on either way that the bytes take. TestSome and a drain bring it as well.
func TestTestDoesNotWait(t *testing.T) {
	defer time.AfterFunc(time.Minute, func() { panic("a Test waits for the device of another rank") }).Stop()
	const n = 3 << 20
	want := make([]byte, n)
	for i := range want {
		want[i] = byte(i % 251)
	}
	ends := map[string]func(c *Comm, r *Request) error{
		"Wait":    func(_ *Comm, r *Request) error { _, err := r.Wait(); return err },
		"WaitAll": func(_ *Comm, r *Request) error { return WaitAll(r, nil) },
		"WaitAny": func(_ *Comm, r *Request) error { _, _, err := WaitAny(nil, r); return err },
		"Test": func(_ *Comm, r *Request) error {
			for {
				if _, ok, err := r.Test(); ok || err != nil {
					return err
				}
				runtime.Gosched()
			}
		},
		"TestSome": func(_ *Comm, r *Request) error {
			for {
				if i, _, err := TestSome(r); len(i) > 0 || err != nil {
					return err
				}
				runtime.Gosched()
			}
		},
	}
	for name, end := range ends {
		for room, onDevice := range map[int]bool{n: true, n + 1: false, n - 5: false, 100: false, 1 << 20: true} {
			t.Run(fmt.Sprint(name, "/", room), func(t *testing.T) {
				var letGo [3]chan struct{}
				for i := range letGo {
					letGo[i] = make(chan struct{})
				}
				runRanks(t, 2, func(c *Comm) error {
					for i := range letGo { // over MPI first, then from memory that both have
						if c.Rank() == 0 {
							if err := SendDevice(c, &slowRange{HostRange(want), letGo[i]}, 1, 1); err != nil {
								return err
							}
							continue
						}
						if err := receiveSlowly(c, want, room, onDevice, letGo[i], end); err != nil {
							return fmt.Errorf("message %d: %w", i, err)
						}
					}
					return drainAll(c)
				})
			})
		}
	}
}

// receiveSlowly tests until the header is there, once more, and then lets the sender's device end.
func receiveSlowly(c *Comm, want []byte, room int, onDevice bool, letGo chan struct{},
	end func(c *Comm, r *Request) error) error {
	buf := make([]byte, room)
	start := Irecv[byte]
	if onDevice {
		start = func(c *Comm, b []byte, source, tag int) (*Request, error) {
			return IrecvDevice(c, HostRange(b), source, tag)
		}
	}
	r, err := start(c, buf, 0, AnyTag)
	for err == nil && c.st.Arriving() == 0 {
		var ok bool
		if _, ok, err = r.Test(); ok {
			return errors.New("a Test has a message that has not been read")
		}
		runtime.Gosched()
	}
	if err != nil {
		return err
	}
	if _, ok, err := r.Test(); ok || err != nil {
		return fmt.Errorf("a Test has a message that has not been read: %v %w", ok, err)
	}
	if err := r.Cancel(); err != nil { // it has been matched
		return err
	}
	close(letGo)
	err = end(c, r)
	if room < len(want) != errors.Is(err, ErrTruncate) || room >= len(want) && err != nil {
		return fmt.Errorf("%d bytes for %d: %w", len(want), room, err)
	}
	if k := min(room, len(want)); !bytes.Equal(buf[:k], want[:k]) || !bytes.Equal(buf[k:], make([]byte, room-k)) {
		return errors.New("what was received is not what was sent")
	}
	return nil
}

func runRanks(t *testing.T, n int, f func(c *Comm) error) {
	t.Helper()
	w := sim.New(n, sim.Options{Seed: 1, Delay: 0.2, Pinned: pins.Is})
	errs := make(chan error, n)
	for i := range n {
		go func() {
			defer w.Finish(i)
			c, err := newWorld(w.Rank(i))
			if err == nil {
				err = f(c)
			}
			errs <- err
		}()
	}
	for range n {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
}

package devmsg

import (
	"bytes"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"
	"unsafe"

	"github.com/holdfast-hpc/holdfast/mpiwrap/internal/driver"
	"github.com/holdfast-hpc/holdfast/mpiwrap/internal/sim"
)

// ram is device memory that lies in the host's, and that MPI may be given if it lends.
type ram struct {
	b      []byte
	lends  bool
	broken bool // it cannot be read
}

var errBroken = errors.New("broken")

func (m *ram) Bytes() int                       { return len(m.b) }
func (m *ram) Check() error                     { return nil }
func (m *ram) Device() any                      { return "ram" }
func (m *ram) Kind() string                     { return "fake" }
func (m *ram) Mark() (any, error)               { return nil, nil }
func (m *ram) Whole(do func() error) error      { return do() }
func (m *ram) Pin([]byte) (func() error, error) { return nil, nil }
func (m *ram) Read(dst []byte) error            { copy(dst, m.b); return nil }
func (m *ram) Write(src []byte) error           { copy(m.b, src); return nil }
func (m *ram) wait() (wait func() error)        { return func() error { return nil } }
func (m *ram) lend(do func() error) error {
	if !m.lends {
		return errors.ErrUnsupported
	}
	return do()
}

func (m *ram) Lend(_ any, do func(uintptr) error) error {
	return m.lend(func() error { return do(addressOf(m.b)) })
}

func (m *ram) Common(any) int { return 0 }

func (m *ram) LendWith(_, other, _ any, do func(at, other uintptr) error) error {
	return m.lend(func() error { return do(addressOf(m.b), addressOf(other.(*ram).b)) })
}

func (m *ram) ReadPieces(off int, dst [][]byte) (waits []func() error, err error) {
	for _, d := range dst {
		off += copy(d, m.b[off:])
		waits = append(waits, func() error {
			if m.broken {
				return errBroken
			}
			return nil
		})
	}
	return waits, nil
}

func (m *ram) WritePiece(_ any, off int, src []byte) (func() error, error) {
	copy(m.b[off:], src)
	return m.wait(), nil
}

// onPorts runs f on the ports of two simulated ranks.
func onPorts(t *testing.T, seed uint64, f func(p *Port, world driver.Handle) error) {
	t.Helper()
	w := sim.New(2, sim.Options{Seed: seed, Delay: 0.3})
	errs := make([]error, 2)
	var wg sync.WaitGroup
	for i := range 2 {
		wg.Go(func() {
			defer w.Finish(i)
			d := w.Rank(i)
			private, err := d.Dup(d.World())
			p := &Port{Driver: d, Info: d.Info(), Self: i, Private: private}
			defer p.reads.Wait() // the next test changes the sizes of pieces
			if errs[i] = errors.Join(err, f(p, d.World())); errs[i] != nil {
				return
			}
			for until := time.Now().Add(time.Minute); p.Outstanding()+p.Busy() > 0; pause(0) {
				if time.Now().After(until) {
					errs[i] = fmt.Errorf("rank %d: %d outstanding, %d slots busy", i, p.Outstanding(), p.Busy())
					return
				}
			}
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Errorf("seed %d: %v", seed, err)
	}
}

// pattern returns n bytes that differ from place to place and from k to k.
func pattern(n, k int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i*7 + i>>8 + k)
	}
	return b
}

// sendOne sends mem to the other rank as a request does.
func sendOne(p *Port, world driver.Handle, mem Memory, partner Partner) error {
	s, err := p.NewSend(mem, 1-p.Self, true, partner)
	if err != nil || s == nil {
		return fmt.Errorf("no Send: %w", err)
	}
	return errors.Join(p.Driver.Send(driver.Standard, s.RTS(), 1-p.Self, 0, world), s.Start())
}

// rtsFrom receives an RTS of the other rank.
func rtsFrom(p *Port, world driver.Handle) (*Header, error) {
	b := make([]byte, HeaderBytes)
	if _, err := p.Driver.Recv(b, 1-p.Self, 0, world); err != nil {
		return nil, err
	}
	h, ok := Parse(b)
	if !ok {
		return nil, errors.New("no RTS")
	}
	return &h, nil
}

// small makes pieces of 4096 bytes, of messages that have more.
func small(t *testing.T, apart bool) {
	slot, slots, large, patience, was := SlotBytes, SlabSlots, LargeBytes, Patience, Apart
	t.Cleanup(func() { SlotBytes, SlabSlots, LargeBytes, Patience, Apart = slot, slots, large, patience, was })
	SlotBytes, SlabSlots, LargeBytes, Patience, Apart = 4096, 16, 4096, 20*time.Millisecond, apart
}

// TestRoutes sends messages on every route, to receives that wait and to some that go on, into a device, into
// the host and into too little room.
func TestRoutes(t *testing.T) {
	const n = 5*4096 + 100
	for _, apart := range []bool{false, true} {
		small(t, apart)
		for _, lends := range []bool{false, true} {
			for _, waits := range []bool{false, true} {
				t.Run(fmt.Sprint("apart=", apart, " lends=", lends, " waits=", waits), func(t *testing.T) {
					for seed := range uint64(10) {
						onPorts(t, seed, func(p *Port, world driver.Handle) error {
							return sendAndReceive(p, world, n, lends, waits)
						})
					}
				})
			}
		}
	}
}

// sendAndReceive has rank 0 send five messages to rank 1.
func sendAndReceive(p *Port, world driver.Handle, n int, lends, waits bool) error {
	for k, room := range []int{n, n, n, 3 * 4096, 10} {
		if p.Self == 0 {
			if err := sendOne(p, world, &ram{b: pattern(n, k), lends: lends}, nil); err != nil {
				return err
			}
			continue
		}
		h, err := rtsFrom(p, world)
		if err != nil {
			return err
		}
		b := make([]byte, room)
		to := Dest{Buf: b}
		if k%2 == 0 {
			to = Dest{Buf: make([]byte, n), Mem: &ram{b: b, lends: lends}}
			if err := p.TryIn(to.Mem); err != nil {
				return err
			}
		}
		if waits {
			before := p.Stats().ReceivedDirect
			err = p.Receive(h, to)
			whole := h.Unit == n
			if direct := p.Stats().ReceivedDirect > before && h.Route == RendezvousMapped; direct != whole {
				return fmt.Errorf("message %d: from device to device: %v, as one piece: %v", k, direct, whole)
			}
		} else {
			a := p.Arrive(h, to)
			for over := false; !over && err == nil; pause(0) {
				over, err = a.Step(false)
			}
			err = errors.Join(err, a.Err())
		}
		if err != nil || !bytes.Equal(b, pattern(n, k)[:room]) {
			return fmt.Errorf("message %d (route %d) is wrong: %w", k, h.Route, err)
		}
	}
	st := p.Stats()
	if lends && waits && (st.SentDirect+st.ReceivedDirect == 0) || !lends && st.SentDirect > 0 {
		return fmt.Errorf("rank %d: lends %v, %+v", p.Self, lends, st)
	}
	return nil
}

// TestFullSlabs receives pieces over MPI when the receiver's slabs have room for none, and for two.
func TestFullSlabs(t *testing.T) {
	const n = 5*4096 + 100
	small(t, true)
	most := MostBytes
	t.Cleanup(func() { MostBytes = most })
	MostBytes = SlabSlots * SlotBytes
	for _, free := range []int{0, 2} {
		for seed := range uint64(5) {
			onPorts(t, seed, func(p *Port, world driver.Handle) error {
				if p.Self == 0 {
					return sendOne(p, world, &ram{b: pattern(n, 3)}, nil)
				}
				taken := p.room((SlabSlots - free) * SlotBytes)
				defer taken.set(Free)
				h, err := rtsFrom(p, world)
				if err != nil {
					return err
				}
				mem := &ram{b: make([]byte, n)}
				if err := p.Receive(h, Dest{Mem: mem}); err != nil || !bytes.Equal(mem.b, pattern(n, 3)) {
					return fmt.Errorf("wrong bytes, %w", err)
				}
				return nil
			})
		}
	}
}

// TestLendRefused: the receiver takes a message now, from a device that MPI can no longer be given. It comes over MPI
// from host memory.
func TestLendRefused(t *testing.T) {
	const n = 5*4096 + 100
	for _, apart := range []bool{false, true} {
		small(t, apart)
		for seed := range uint64(5) {
			onPorts(t, seed, func(p *Port, world driver.Handle) error {
				for k := range 4 { // the first tells that the slab is mapped
					if p.Self == 0 {
						mem := &ram{b: pattern(n, k), lends: true}
						s, err := p.NewSend(mem, 1, true, nil)
						if err != nil {
							return err
						}
						mem.lends = false
						err = p.Driver.Send(driver.Standard, s.RTS(), 1, 0, world)
						if err = errors.Join(err, s.Start()); err != nil {
							return err
						}
						continue
					}
					h, err := rtsFrom(p, world)
					if err != nil {
						return err
					}
					to := Dest{Buf: make([]byte, n), Mem: &ram{b: make([]byte, n), lends: k%2 == 0}}
					err = errors.Join(p.TryIn(to.Mem), p.Receive(h, to))
					if err != nil || !bytes.Equal(to.Mem.(*ram).b, pattern(n, k)) {
						return fmt.Errorf("message %d (route %d) is wrong: %w", k, h.Route, err)
					}
				}
				if p.Self == 0 && p.Stats().SentDirect > 0 {
					return fmt.Errorf("%+v", p.Stats())
				}
				return nil
			})
		}
	}
}

// TestUnreadDevice: a sender that cannot read its device has its receiver fail.
func TestUnreadDevice(t *testing.T) {
	for _, apart := range []bool{false, true} {
		small(t, apart)
		onPorts(t, 1, func(p *Port, world driver.Handle) error {
			for range 3 { // the first goes over MPI
				if p.Self == 0 {
					_ = sendOne(p, world, &ram{b: pattern(1<<14, 0), broken: true}, nil)
					continue
				}
				h, err := rtsFrom(p, world)
				if err != nil {
					return err
				}
				if err := p.Receive(h, Dest{Buf: make([]byte, 1<<14)}); !errors.Is(err, ErrDevice) {
					return fmt.Errorf("got %v, want ErrDevice", err)
				}
			}
			return nil
		})
	}
}

// inExchange is the receive of a test that sends as well.
type inExchange struct {
	p     *Port
	world driver.Handle
	to    Dest
	a     *Arrival
}

func (x *inExchange) Memory() Memory { return x.to.Mem }

func (x *inExchange) Poll() (*Arrival, bool) {
	if x.a == nil {
		if _, ok, err := x.p.Driver.Iprobe(1-x.p.Self, 0, x.world); ok && err == nil {
			if h, err := rtsFrom(x.p, x.world); err == nil {
				x.a = x.p.Accept(h, x.to)
			}
		}
	}
	return x.a, x.a != nil
}

// TestExchange: two ranks send to each other, and each waits for its partner's message.
func TestExchange(t *testing.T) {
	const n = 5*4096 + 100
	for _, apart := range []bool{false, true} {
		small(t, apart)
		for seed := range uint64(10) {
			onPorts(t, seed, func(p *Port, world driver.Handle) error {
				for k := range 4 {
					got := &ram{b: make([]byte, n), lends: true}
					x := &inExchange{p: p, world: world, to: Dest{Buf: make([]byte, n), Mem: got}}
					if err := p.TryIn(got); err != nil {
						return err
					}
					if err := sendOne(p, world, &ram{b: pattern(n, k+p.Self), lends: true}, x); err != nil {
						return err
					}
					for x.a == nil {
						x.Poll()
						pause(0)
					}
					if _, err := x.a.Step(true); err != nil || x.a.Err() != nil {
						return errors.Join(err, x.a.Err())
					}
					if !bytes.Equal(got.b, pattern(n, k+1-p.Self)) {
						return fmt.Errorf("rank %d has got other bytes in exchange %d", p.Self, k)
					}
				}
				return nil
			})
		}
	}
}

func addressOf(b []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(b))) }

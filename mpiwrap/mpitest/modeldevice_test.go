package mpitest

import (
	"errors"
	"fmt"
	"testing"

	"github.com/holdfast-hpc/holdfast/mpiwrap"
	"github.com/holdfast-hpc/holdfast/mpiwrap/internal/devmsg"
)

// Messages of the random programs are large, have several pieces, and find the slabs full.
func init() {
	SmallPieces(1024, 4096, 16)
	devmsg.VectorBytes = 4096
}

// origin is the memory that a note is sent from.
type origin int

const (
	fromHost      origin = iota
	fromDevice           // overwritten by the next command of its queue
	fromHostRange        // of mpiwrap.HostRange, overwritten at once
	fromRequest          // of a device, by NewDeviceRequest
	origins
)

// sendDevice sends a note from device memory, which is overwritten as soon as the send has
// been started.
func (m *Model) sendDevice(n note, buf []int64) (*mpiwrap.Request, error) {
	c := m.comms[n.comm]
	if n.from == fromHostRange {
		r, err := mpiwrap.IsendDevice(c, mpiwrap.HostRange(buf), n.dest, n.tag)
		clear(buf)
		return r, err
	}
	d := newTestDevice(len(buf))
	d.bug, d.lends = m.bug, lending(m.rng.IntN(int(lendings)))
	if m.rng.IntN(2) == 0 {
		d.spoil() // before the send, and overwritten by it
	}
	d.set(buf)
	defer d.spoil()
	if n.from == fromDevice {
		return mpiwrap.IsendDevice(c, d, n.dest, n.tag)
	}
	r := mpiwrap.NewDeviceRequest(c, d)
	return r, r.Isend(n.dest, n.tag)
}

// deviceFor is memory for a receive, to which the queue has still something to do.
func (m *Model) deviceFor(p *posting) *testDevice {
	d := newTestDevice(len(p.buf))
	d.bug, d.lends = m.bug, lending(m.rng.IntN(int(lendings)))
	if m.rng.IntN(2) == 0 {
		d.spoil()
	}
	return d
}

// startOnDevice posts a receive of one of the kinds of devices. What the program enqueues afterwards may need the
// message to be there.
func (m *Model) startOnDevice(p *posting) (err error) {
	c := m.comms[p.comm]
	if p.kind == onHostRange {
		p.req, err = mpiwrap.IrecvDevice(c, mpiwrap.HostRange(p.buf), p.source, p.tag)
		return err
	}
	p.device = m.deviceFor(p)
	switch p.kind {
	case onDevice:
		p.req, err = mpiwrap.IrecvDevice(c, p.device, p.source, p.tag)
	default:
		p.req = mpiwrap.NewDeviceRequest(c, p.device)
		err = p.req.Irecv(p.source, p.tag)
	}
	if m.rng.IntN(2) == 0 {
		p.device.hold()
	}
	return err
}

// fetch copies what a receive has got on its device to the host.
func (p *posting) fetch() error {
	if p.device == nil {
		return nil
	}
	p.device.release()
	v, err := p.device.contents()
	copy(p.buf, v)
	return err
}

// recvShort receives with less room than messages may need, while nothing else is pending: so it is known which
// message is lost if it is too long.
func (m *Model) recvShort(p *posting) error {
	m.post(p)
	p.buf = make([]int64, []int{0, 1, 4, 15, 16, 17, 600}[m.rng.IntN(7)])
	room := len(p.buf)
	st, err := m.recvInto(p)
	n, ok := m.first(p, st.Source)
	switch {
	case err != nil && !errors.Is(err, mpiwrap.ErrTruncate):
		return err
	case !ok:
		return fmt.Errorf("received from %d, which has sent nothing that fits: %w", st.Source, err)
	case err == nil && n.length <= room:
		return m.took(p, st)
	case err == nil || n.length <= room:
		return fmt.Errorf("%d elements for %+v: %v", room, n, err)
	case st.Tag != n.tag || p.device != nil && st.Bytes > 8*room: // for the host, Open MPI says how long it was
		return fmt.Errorf("too little room for %+v, and the status is %+v", n, st)
	}
	p.done, p.got = m.tick(), &n
	m.taken[n.key()] = true
	if p.device != nil {
		_, err = p.device.contents()
		p.device.free()
		return err
	}
	return nil
}

// first returns the message that a receive from a rank must get where none other is posted.
func (m *Model) first(p *posting, source int) (note, bool) {
	for _, list := range m.rounds {
		for _, n := range list {
			if m.ranks[n.comm] == n.dest && n.source == source && p.fits(n) && !m.taken[n.key()] {
				return n, true
			}
		}
	}
	return note{}, false
}

// settleDevices is what the capture of a device does: it waits for all that is enqueued.
func (m *Model) settleDevices() {
	for _, p := range m.pending {
		if p.device != nil {
			p.device.release()
			p.device.finish()
		}
	}
}

// TestModelFindsBugsOfDevices runs long random programs with devices that have a bug: each is found.
func TestModelFindsBugsOfDevices(t *testing.T) {
	for b := noBug + 1; b < bugs; b++ {
		seed, err := uint64(0), error(nil)
		for ; seed < 60 && err == nil; seed++ {
			err = runWithBug(seed, b)
		}
		if err == nil {
			t.Errorf("bug %d of a device is not found by %d programs", b, seed)
		}
	}
}

// runWithBug ends the world with the first error of a rank: the others would wait for it.
func runWithBug(seed uint64, b bug) error {
	w := NewWorld(2, Options{Seed: seed, Delay: 0.2})
	return w.Run(func(c *mpiwrap.Comm) error {
		m := NewModel(seed, 2, 60)
		m.bug = b
		err := m.Attach(c)
		if err == nil {
			_, err = m.Run(false)
		}
		if err != nil {
			w.Abort(err)
		}
		return err
	})
}

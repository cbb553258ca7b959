package remote

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"

	"github.com/holdfast-hpc/holdfast/gpustate/internal/driver"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/wire"
)

// receive reads what the server sends until the connection ends, and then lets
// everything that waits fail.
func (d *Device) receive() {
	var copiers sync.WaitGroup
	if d.arena != nil && d.copiers > 1 {
		d.emptied = make(chan *wire.Done, wire.Slots)
		for range d.copiers {
			copiers.Go(func() {
				for m := range d.emptied {
					d.finish(m)
				}
			})
		}
	}
	err := d.listen()
	if d.emptied != nil {
		close(d.emptied)
		copiers.Wait()
	}
	d.mu.Lock()
	if d.why != nil {
		err = d.why
	}
	if d.closed {
		err = net.ErrClosed
	}
	d.deadErr = &wire.ServerError{Server: d.addr, Lost: true, Err: err}
	d.mu.Unlock()
	d.out.Stop(d.deadErr)
	_ = d.conn.Close()
	close(d.dead)
}

func (d *Device) listen() error {
	var buf, body []byte
	var op wire.Op
	var done wire.Done
	var err error
	for {
		if op, body, buf, err = wire.ReadFrame(d.in, buf); err != nil {
			if errors.Is(err, io.EOF) {
				err = errors.New("the server ended the connection")
			}
			return err
		}
		r := &wire.Reader{B: body}
		switch op {
		case wire.OpDone:
			done.Decode(r)
			if err = r.End(); err == nil {
				err = d.complete(&done)
			}
		case wire.OpReply:
			var m wire.Reply
			m.Decode(r)
			if err = r.End(); err == nil {
				d.answer(&m)
			}
		case wire.OpMove:
			var m wire.Move
			m.Decode(r)
			if err = r.End(); err == nil {
				d.move(m)
			}
		case wire.OpBye:
			var m wire.Bye
			m.Decode(r)
			if err = r.End(); err == nil {
				d.mu.Lock()
				d.why = errors.New(m.Why)
				d.mu.Unlock()
			}
		default:
			err = fmt.Errorf("%w: operation %d from the server", wire.ErrProtocol, op)
		}
		if err != nil {
			return err
		}
	}
}

func (d *Device) answer(m *wire.Reply) {
	d.mu.Lock()
	c := d.requests[m.Req]
	delete(d.requests, m.Req)
	d.mu.Unlock()
	if c != nil {
		c <- m
	}
}

// complete takes in that a command or a piece is done.
func (d *Device) complete(m *wire.Done) error {
	if m.Slot == 0 {
		if m.Bytes > 0 {
			return fmt.Errorf("%w: bytes for no slot", wire.ErrProtocol)
		}
		d.finish(m)
		return nil
	}
	n := m.Slot - 1
	d.mu.Lock()
	s := d.into[n]
	d.into[n].busy = false // the server has its last word on it
	d.mu.Unlock()
	switch {
	case !s.busy, m.Bytes > 0 && (d.arena != nil || int(m.Bytes) != len(s.dst)):
		return fmt.Errorf("%w: slot %d is not in use for this", wire.ErrProtocol, n)
	case m.Bytes > 0:
		if _, err := io.ReadFull(d.in, s.dst); err != nil {
			return err
		}
	case m.Err == nil && len(s.dst) > 0 && d.arena == nil:
		return fmt.Errorf("%w: a read without bytes", wire.ErrProtocol)
	case m.Err == nil && len(s.dst) > 0 && d.emptied != nil:
		later := *m
		d.emptied <- &later
		return nil
	}
	d.finish(m)
	return nil
}

// finish takes the bytes of a read out of the arena, frees the slot and completes
// the event.
func (d *Device) finish(m *wire.Done) {
	if n := m.Slot - 1; n >= 0 {
		d.mu.Lock()
		s := d.into[n]
		d.mu.Unlock()
		if m.Err == nil && d.arena != nil {
			copy(s.dst, d.arena[n*wire.SlotBytes:])
		}
		d.mu.Lock()
		d.into[n] = slot{}
		d.mu.Unlock()
		d.slots <- n
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if p := d.events[driver.Event(m.Event)]; p != nil {
		p.step(m)
	}
}

// step counts a piece of an event down; the device's mu is held.
func (p *pending) step(m *wire.Done) {
	if p.left == 0 {
		return // the server repeats itself
	}
	if p.err == nil {
		p.err = m.Err
	}
	if m.Times != nil {
		p.times = m.Times
	}
	if p.left--; p.left > 0 {
		return
	}
	if p.done != nil {
		close(p.done)
	}
}

// A Mover moves the program to where text says and tells how that went, with the
// time that each step took.
type Mover func(ctx context.Context, to string, tell func(steps string, err error))

// OnMove says who moves the program when the server asks for it.
func (d *Device) OnMove(do Mover) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.moving = do
}

func (d *Device) move(m wire.Move) {
	d.mu.Lock()
	do := d.moving
	d.mu.Unlock()
	tell := func(steps string, err error) {
		moved := &wire.Moved{Token: m.Token, Steps: steps}
		if err != nil {
			moved.Err = err.Error()
		}
		_ = d.out.Now(moved) // a server that is gone needs no answer
	}
	if do == nil {
		tell("", errors.New("the program cannot move to another device"))
		return
	}
	go do(context.Background(), m.To, tell)
}

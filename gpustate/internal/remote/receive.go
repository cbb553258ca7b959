package remote

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"

	"github.com/holdfast-hpc/holdfast/gpustate/internal/driver"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/wire"
)

// receive reads what the server sends until the connection ends, and then lets
// everything that waits fail.
func (d *Device) receive() {
	err := d.listen()
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
	if m.Slot > 0 {
		if err := d.empty(m); err != nil {
			return err
		}
	} else if m.Bytes > 0 {
		return fmt.Errorf("%w: bytes for no slot", wire.ErrProtocol)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if p := d.events[driver.Event(m.Event)]; p != nil {
		d.step(driver.Event(m.Event), p, m)
	}
	return nil
}

// step counts a piece of an event down; mu is held.
func (d *Device) step(e driver.Event, p *pending, m *wire.Done) {
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

// empty takes the bytes of a read out of a slot and frees the slot.
func (d *Device) empty(m *wire.Done) error {
	n := m.Slot - 1
	d.mu.Lock()
	s := d.into[n]
	d.into[n] = slot{}
	d.mu.Unlock()
	if !s.busy || m.Bytes > 0 && (d.arena != nil || int(m.Bytes) != len(s.dst)) {
		return fmt.Errorf("%w: slot %d is not in use for this", wire.ErrProtocol, n)
	}
	var err error
	switch {
	case m.Bytes > 0:
		_, err = io.ReadFull(d.in, s.dst)
	case m.Err == nil && d.arena != nil:
		copy(s.dst, d.arena[n*wire.SlotBytes:])
	case m.Err == nil && len(s.dst) > 0:
		err = fmt.Errorf("%w: a read without bytes", wire.ErrProtocol)
	}
	d.slots <- n
	return err
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

package remote

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"runtime"
	"sync"
	"time"

	"github.com/holdfast-hpc/holdfast/gpustate/internal/driver"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/wire"
)

// receive reads the server's messages until the connection ends, and then fails everything that waits.
func (d *Device) receive() {
	var copiers sync.WaitGroup
	if d.emptied != nil {
		for range d.copiers {
			copiers.Go(d.copyOut)
		}
	}
	var err error
	if d.ring != nil {
		err = d.watch()
	} else {
		err = wire.ReadFrames(d.in, d.message)
	}
	if errors.Is(err, io.EOF) {
		err = errors.New("the server ended the connection")
	}
	if cause := d.out.Err(); cause != nil && errors.Is(err, net.ErrClosed) {
		err = cause // the sender closed it
	}
	d.taking.Lock()
	d.over = true
	d.taking.Unlock()
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

// watch takes messages out of the ring when no other goroutine does: a waiter first takes
// them out itself, which saves waking a goroutine.
func (d *Device) watch() error {
	for {
		if err := d.empty(); err != nil {
			return err
		}
		if err := d.ring.Sleep(); err != nil {
			return errors.Join(d.empty(), err) // the last words
		}
	}
}

// empty takes all messages out of the ring.
func (d *Device) empty() error {
	d.taking.Lock()
	defer d.taking.Unlock()
	for !d.ring.PrepareSleep() {
		if _, err := d.take(); err != nil {
			return err
		}
	}
	return nil
}

// take takes out the messages that are there and gives their bytes; taking is
// held.
func (d *Device) take() (n int, err error) {
	if n, err = d.frames.Fill(d.ring.Poll); err != nil {
		return n, err
	}
	if n > 0 {
		d.input.NoteActivity()
	}
	for {
		op, body, ok, err := d.frames.Next()
		if err != nil || !ok {
			return n, err
		}
		if err := d.message(op, body); err != nil {
			return n, err
		}
	}
}

// alert is how long a copier stays awake after a piece.
const alert = 100 * time.Microsecond

// copyOut takes pieces of reads out of the arena until emptied is closed.
func (d *Device) copyOut() {
	for r := range d.emptied {
		d.copyPiece(r)
		for last := time.Now(); time.Since(last) < alert; runtime.Gosched() {
			for range 32 {
				if d.help() {
					last = time.Now()
				}
			}
		}
	}
}

// patience is how long a wait stays awake at most. The drivers of GPUs do it to
// the end.
const patience = time.Millisecond

// help takes one piece out of the arena that no copier has begun with.
func (d *Device) help() bool {
	select {
	case r, open := <-d.emptied:
		if open {
			d.copyPiece(r)
		}
		return open
	default:
		return false
	}
}

// collect takes messages out of the ring until over is true. It returns false
// when that takes long, or another goroutine does it.
func (d *Device) collect(over func() bool) bool {
	if !d.taking.TryLock() {
		return false
	}
	defer d.taking.Unlock()
	if d.over {
		return false
	}
	d.ring.Watch()
	for look := true; look && !over(); {
		n, err := d.take()
		if err != nil {
			d.abandon(err)
			return false
		}
		look = n > 0 || d.help() || d.ring.Spin(patience, over)
	}
	for !d.ring.PrepareSleep() {
		if _, err := d.take(); err != nil {
			d.abandon(err)
			break
		}
	}
	return over()
}

// abandon ends the connection: the receiver finds it closed.
func (d *Device) abandon(err error) {
	d.mu.Lock()
	d.why = cmp.Or(d.why, err)
	d.mu.Unlock()
	_ = d.conn.Close()
}

// await waits for a completion. The error is the one of a lost server.
func (d *Device) await(p *completion) error {
	if p.finished.Load() {
		return nil
	}
	begin := time.Now()
	if d.ring != nil {
		if d.collect(p.finished.Load) {
			return nil
		}
		defer func() { d.ring.Waited(patience, time.Since(begin)) }()
	}
	d.mu.Lock()
	if p.finished.Load() {
		d.mu.Unlock()
		return nil
	}
	if p.done == nil {
		p.done = make(chan struct{})
	}
	done := p.done
	d.mu.Unlock()
	select {
	case <-done:
		return nil
	case <-d.dead:
	}
	if p.finished.Load() { // it may have been the last word
		return nil
	}
	return d.deadErr
}

// message takes in one message.
func (d *Device) message(op wire.Op, body []byte) error {
	switch op {
	case wire.OpDone:
		if err := wire.Decode(body, &d.done); err != nil {
			return err
		}
		return d.complete(&d.done)
	case wire.OpReply:
		m := &wire.Reply{}
		if err := wire.Decode(body, m); err != nil {
			return err
		}
		return d.answer(m)
	case wire.OpMove:
		var m wire.Move
		if err := wire.Decode(body, &m); err != nil {
			return err
		}
		d.move(m)
	case wire.OpBeat:
	case wire.OpBye:
		var m wire.Bye
		if err := wire.Decode(body, &m); err != nil {
			return err
		}
		d.mu.Lock()
		d.why = errors.New(m.Why)
		d.mu.Unlock()
	default:
		return fmt.Errorf("%w: operation %d from the server", wire.ErrProtocol, op)
	}
	return nil
}

func (d *Device) answer(m *wire.Reply) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	c := d.requests[m.Req]
	if c == nil { // the caller would wait for ever
		return fmt.Errorf("%w: reply to an unknown request", wire.ErrProtocol)
	}
	delete(d.requests, m.Req)
	c.reply = m
	if len(d.reports) > 0 {
		d.reports = append(d.reports, &report{call: c, here: true})
		return nil
	}
	c.finish()
	return nil
}

// complete records that a command or a piece is done.
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
	p := d.events[driver.Event(m.Event)]
	last := p == nil || p.left == 1
	d.mu.Unlock()
	want := int64(0) // bytes of a read
	if len(s.into.Host) > 0 {
		want = s.into.Bytes
	}
	switch {
	case !s.busy, m.Bytes > 0 && (d.arena != nil || m.Bytes != want):
		return fmt.Errorf("%w: slot %d is not in use for this", wire.ErrProtocol, n)
	case m.Bytes > 0:
		if err := d.readPiece(&s.into); err != nil {
			return err
		}
	case m.Err == nil && want > 0 && d.arena == nil:
		return fmt.Errorf("%w: a read without bytes", wire.ErrProtocol)
	case m.Err == nil && want > 0 && d.emptied != nil && !last:
		d.emptied <- d.expectBytes(m) // waiting goroutines help with it
		return nil
	}
	d.finish(m)
	return nil
}

// readPiece takes the bytes of a read out of the connection.
func (d *Device) readPiece(p *piece) error {
	if p.Form != driver.FormBox {
		_, err := io.ReadFull(d.in, p.Host)
		return err
	}
	b := make([]byte, p.Bytes)
	if _, err := io.ReadFull(d.in, b); err != nil {
		return err
	}
	p.unpack(b)
	return nil
}

// copyPiece takes the bytes of a piece out of the arena.
func (d *Device) copyPiece(r *report) {
	d.emptySlot(&r.Done)
	d.bytesHere(r)
}

// finish takes in a report, with the bytes of a read.
func (d *Device) finish(m *wire.Done) {
	d.emptySlot(m)
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.reports) > 0 {
		d.reports = append(d.reports, &report{Done: *m, here: true})
		return
	}
	d.step(m)
}

// emptySlot takes the bytes of a read out of the arena and frees the slot.
func (d *Device) emptySlot(m *wire.Done) {
	n := m.Slot - 1
	if n < 0 {
		return
	}
	d.mu.Lock()
	s := d.into[n]
	d.mu.Unlock()
	if m.Err == nil && d.arena != nil && len(s.into.Host) > 0 {
		s.into.unpack(d.arena[n*wire.SlotBytes:])
	}
	d.mu.Lock()
	d.into[n] = slot{}
	d.free = append(d.free, n)
	d.mu.Unlock()
	d.slots <- struct{}{}
}

// step counts a piece of an event down, and completes the event with the last one; mu is held.
func (d *Device) step(m *wire.Done) {
	e := driver.Event(m.Event)
	p := d.events[e]
	if p == nil || p.left == 0 {
		return // it is released, or the server repeats itself
	}
	p.err = cmp.Or(p.err, m.Err)
	if m.Times != nil {
		p.times = m.Times
	}
	if p.left--; p.left == 0 {
		d.end(e, p)
	}
}

// OnMove sets the function that moves the program when the server asks for it.
func (d *Device) OnMove(do driver.Mover) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.moving = do
}

func (d *Device) move(m wire.Move) {
	d.mu.Lock()
	do := d.moving
	d.mu.Unlock()
	report := func(steps string, err error) {
		moved := &wire.Moved{Token: m.Token, Steps: steps}
		if err != nil {
			moved.Err = err.Error()
		}
		_ = d.out.Now(moved) // a server that is gone needs no answer
	}
	if do == nil {
		go report("", errors.New("the program cannot move to another device"))
		return
	}
	go do(context.Background(), m.To, report)
}

// beat tells the server every now and then that this program lives, and gives the
// server up when nothing has come from it for longer than silence. It ends with
// the connection.
func (d *Device) beat(silence time.Duration) {
	var quiet wire.SilenceTimer
	wire.SendBeats(d.out, d.dead, func() (send, over bool) {
		if quiet.Look(d.input) > silence {
			d.abandon(fmt.Errorf("silent for %v: the server is stopped or unreachable", silence))
			return false, true
		}
		return true, false
	})
}

package gpud

import (
	"fmt"

	"github.com/holdfast-hpc/holdfast/gpustate/internal/driver"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/wire"
)

// event is a client's event whose command is not complete, or failed. The
// client's mutex guards it.
type event struct {
	natives   []driver.Event // of its pieces
	left      int            // pieces that are not complete
	last      bool           // all pieces are known
	users     int            // calls that wait for natives
	err       error
	forgotten bool
}

func (e *event) over() bool { return e.last && e.left == 0 }

func (e *event) release(drv driver.Device) {
	for _, n := range e.natives {
		if n != 0 {
			drv.ReleaseEvent(n)
		}
	}
	e.natives = nil
}

// maxFailed bounds the failed events that are kept for a client that never
// forgets them.
const maxFailed = 4096

// begin enters a piece of an event before it is issued; issued adds what the
// driver gave for it.
func (c *client) begin(id driver.Event, last, loose bool) error {
	if id == 0 {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.events[id]
	switch {
	case e == nil && len(c.events) >= maxOpen:
		return fmt.Errorf("%w: more than %d events are not complete", wire.ErrProtocol, maxOpen)
	case e == nil:
		e = &event{forgotten: loose}
		c.events[id] = e
	case e.last:
		return fmt.Errorf("%w: event %d is in use", wire.ErrProtocol, id)
	}
	e.left++
	e.last = last
	return nil
}

func (c *client) issued(id, native driver.Event) {
	if id == 0 || native == 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.events[id]
	e.natives = append(e.natives, native)
}

// complete takes in that a piece is complete.
func (c *client) complete(id driver.Event, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.events[id]
	e.left--
	if e.err == nil && err != nil {
		if e.err = err; e.forgotten {
			// nobody asks
		} else if c.failed < maxFailed {
			c.failed++
		} else {
			e.forgotten = true
		}
	}
	c.tidy(id, e)
}

// tidy lets go of what nobody needs; mu is held.
func (c *client) tidy(id driver.Event, e *event) {
	if !e.over() || e.users > 0 {
		return
	}
	e.release(c.drv)
	if e.err == nil || e.forgotten {
		delete(c.events, id)
	}
}

func (c *client) forget(id driver.Event) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e := c.events[id]; e != nil && !e.forgotten {
		e.forgotten = true
		if e.err != nil {
			c.failed--
		}
		c.tidy(id, e)
	}
}

// hold gives the driver's events behind those of the client. An event that is
// not known is complete. unhold takes them back.
func (c *client) hold(wait []driver.Event) (natives []driver.Event, err error) {
	if len(wait) == 0 {
		return nil, nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, id := range wait {
		e := c.events[id]
		if e == nil {
			continue
		}
		e.users++
		if e.err != nil && err == nil {
			err = fmt.Errorf("a command it waits for failed: %w", e.err)
		}
		if !e.over() {
			natives = append(natives, e.natives...)
		}
	}
	return natives, err
}

func (c *client) unhold(wait []driver.Event) {
	if len(wait) == 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, id := range wait {
		if e := c.events[id]; e != nil && e.users > 0 {
			e.users--
			c.tidy(id, e)
		}
	}
}

package opencl

import (
	"fmt"

	"github.com/holdfast-hpc/holdfast/internal/opencl/wire"
)

func (h *handler) hello(m *wire.Request) (*reply, error) {
	version, pid, name := m.U32(), m.U32(), string(m.Bytes())
	if err := m.End(); err != nil {
		return nil, err
	}
	if version != wire.Version {
		r := &reply{status: clDeviceNotAvailable}
		r.text(fmt.Sprintf("the library speaks version %d of the protocol, the holdfast command version %d: install "+
			"both from one release", version, wire.Version))
		return r, nil
	}
	if err := h.devices.begin(h.opt.Select, h.opt.One, name, int(pid)); err != nil {
		return failed(err)
	}
	h.program, h.pid = name, int(pid)
	h.openDoor()
	return done, nil
}

func (h *handler) listDevices(m *wire.Request) (*reply, error) {
	if err := m.End(); err != nil {
		return nil, err
	}
	r := &reply{}
	list := h.devices.all()
	r.u32(uint32(len(list)))
	for _, d := range list {
		r.u64(d.typeNumber())
	}
	return r, nil
}

func (h *handler) deviceInfo(m *wire.Request) (*reply, error) {
	number, param := m.U32(), m.U32()
	if err := m.End(); err != nil {
		return nil, err
	}
	d, err := h.devices.at(uint64(number))
	if err != nil {
		return nil, err
	}
	return answered(d.ask(param))
}

// commandOf reads the common beginning of all commands.
func (h *handler) commandOf(m *wire.Request) (q *queue, id uint64, deps []*event) {
	q, id, deps = next[*queue](h, m), m.U64(), h.eventsOf(m)
	for _, d := range deps {
		d.awaited.Store(true)
	}
	return q, id, deps
}

// command is commandOf with an event for the command, and flags.
func (h *handler) command(m *wire.Request) (q *queue, e *event, deps []*event, flags uint32) {
	q, id, deps := h.commandOf(m)
	if m.Bad() {
		return nil, nil, nil, 0
	}
	e = newEvent(id, q.dev)
	h.begun(e)
	m.Fail(h.addEvent(e))
	return q, e, deps, m.U32()
}

// enqueue gives a command to its queue.
func (h *handler) enqueue(q *queue, c *command) (*reply, error) {
	return h.outcome(q, c.event.id, q.enqueue(c))
}

// outcome returns the reply for a command that was issued, or failed when it was to be. If the
// program gets no error, the event has it, and without one the queue.
func (h *handler) outcome(q *queue, id uint64, err error) (*reply, error) {
	if err == nil {
		return done, nil
	}
	if h.unasked && id == 0 {
		q.fail(err)
	}
	return failed(err)
}

func (h *handler) marker(m *wire.Request) (*reply, error) {
	q, e, deps, flags := h.command(m)
	if err := m.End(); err != nil {
		return nil, err
	}
	if flags&wire.Alone == 0 && len(deps) == 0 && !q.ordered {
		deps = q.allPending()
	}
	if err := q.mark(e, deps, flags&wire.Barrier != 0); err != nil {
		return h.outcome(q, e.id, err)
	}
	return done, nil
}

func (h *handler) flush(m *wire.Request) (*reply, error) {
	q := next[*queue](h, m)
	if err := m.End(); err != nil {
		return nil, err
	}
	if err := q.q.Flush(); err != nil {
		if h.unasked {
			q.fail(err)
		}
		return failed(err)
	}
	return done, nil
}

func (h *handler) finishQueue(m *wire.Request) (*reply, error) {
	q := next[*queue](h, m)
	if err := m.End(); err != nil {
		return nil, err
	}
	return &reply{deliver: true, stuck: q.keepsBack, wait: func(r *reply) {
		if err := q.finish(); err != nil {
			h.opt.Logger.Debug("finish", "err", err)
			r.status = codeOf(err)
		}
	}}, nil
}

func (h *handler) userEvent(m *wire.Request) (*reply, error) {
	e := newEvent(m.U64(), nil)
	m.Check(e.id != 0, "a user event without a number")
	if err := m.End(); err != nil {
		return nil, err
	}
	return done, h.addEvent(e)
}

func (h *handler) setUserEvent(m *wire.Request) (*reply, error) {
	e, status := h.event(m), int32(m.U32())
	m.Check(e != nil && e.dev == nil && status <= 0, "the state of a user event")
	err := m.End()
	if err != nil {
		return nil, err
	}
	if status < 0 {
		err = coded(status, fmt.Sprintf("a user event was set to %d", status))
	}
	if !e.issue(err) {
		return failed(coded(clInvalidOperation, "the user event was set before"))
	}
	return done, nil
}

func (h *handler) eventStatus(m *wire.Request) (*reply, error) {
	e := h.event(m)
	if err := m.End(); err != nil {
		return nil, err
	}
	r := &reply{deliver: true}
	r.u32(uint32(e.status()))
	return r, nil
}

func (h *handler) eventTimes(m *wire.Request) (*reply, error) {
	e := h.event(m)
	if err := m.End(); err != nil {
		return nil, err
	}
	if done, _ := e.done(); !done {
		return failed(coded(clNoProfiling, "the command is not complete"))
	}
	t, err := e.times()
	if err != nil {
		return failed(err)
	}
	r := &reply{}
	for _, v := range t {
		r.u64(v)
	}
	return r, nil
}

func (h *handler) waitFor(m *wire.Request) (*reply, error) {
	list := h.eventsOf(m)
	if err := m.End(); err != nil {
		return nil, err
	}
	return &reply{deliver: true, stuck: func() bool { return anyKept(list) }, wait: func(r *reply) {
		for _, e := range list {
			if err := h.wait(e); err != nil {
				r.status = clWaitListFailure
				if codeOf(err) == clDeviceNotAvailable {
					r.status = clDeviceNotAvailable
				}
			}
		}
	}}, nil
}

// watch sends a NOTE when an event has reached a state.
func (h *handler) watch(m *wire.Request) (*reply, error) {
	number, e, state := m.U64(), h.event(m), m.U32()
	if err := m.End(); err != nil {
		return nil, err
	}
	e.awaited.Store(true)
	told := h.owe(func() bool { return !e.isIssued() })
	go func() {
		defer told()
		var err error
		if state == stateSubmitted {
			if err = e.waitIssued(h.ended, h.lossFor(e)); err == nil {
				err = e.err
			}
		} else {
			err = h.wait(e)
		}
		h.deliverComplete()
		status := codeOf(err)
		if err == nil {
			status = int32(state)
		}
		h.send(wire.OpNote, number, e.id, status, nil)
	}()
	return done, nil
}

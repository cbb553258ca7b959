package sim

import (
	"fmt"

	"github.com/holdfast-hpc/holdfast/mpiwrap/internal/driver"
)

func (m *message) status() driver.Status {
	return driver.Status{Source: int32(m.source), Tag: int32(m.tag), Bytes: int64(len(m.bytes()))}
}

// look finds a seen message; with block it waits for one.
func (r *rank) look(source, tag int, c driver.Handle, block, remove bool) (*message, error) {
	if err := r.enter(); err != nil {
		return nil, err
	}
	if !block {
		r.poll()
		return r.findUnexpected(c, source, tag, remove), nil
	}
	var m *message
	err := r.await(func() bool { m = r.findUnexpected(c, source, tag, remove); return m != nil },
		func() string { return fmt.Sprintf("probe for %d tag %d", source, tag) })
	return m, err
}

// Probe waits for a message without taking it.
func (r *rank) Probe(source, tag int, c driver.Handle) (driver.Status, error) {
	defer r.w.mu.Unlock()
	m, err := r.look(source, tag, c, true, false)
	if err != nil {
		return driver.Status{}, err
	}
	return m.status(), nil
}

// Iprobe looks for a message.
func (r *rank) Iprobe(source, tag int, c driver.Handle) (driver.Status, bool, error) {
	defer r.w.mu.Unlock()
	m, err := r.look(source, tag, c, false, false)
	if m == nil {
		return driver.Status{}, false, err
	}
	return m.status(), true, nil
}

func (r *rank) keep(m *message) driver.Handle {
	h := r.w.handle()
	r.messages[h] = m
	return h
}

// Mprobe waits for a message and sets it aside.
func (r *rank) Mprobe(source, tag int, c driver.Handle) (driver.Handle, driver.Status, error) {
	defer r.w.mu.Unlock()
	m, err := r.look(source, tag, c, true, true)
	if err != nil {
		return 0, driver.Status{}, err
	}
	return r.keep(m), m.status(), nil
}

// Improbe looks for a message and sets it aside.
func (r *rank) Improbe(source, tag int, c driver.Handle) (driver.Handle, driver.Status, bool, error) {
	defer r.w.mu.Unlock()
	m, err := r.look(source, tag, c, false, true)
	if m == nil {
		return 0, driver.Status{}, false, err
	}
	return r.keep(m), m.status(), true, nil
}

// Mrecv receives a message set aside.
func (r *rank) Mrecv(buf []byte, h driver.Handle) (st driver.Status, err error) {
	err = r.call(func() error {
		q := &request{owner: r, blocking: true, recv: true, buf: buf, active: true}
		r.takeMessage(q, h)
		if err := r.await(func() bool { return q.done }, q.describe); err != nil {
			return err
		}
		st = q.st
		return q.err
	})
	return st, err
}

func (r *rank) takeMessage(q *request, h driver.Handle) {
	q.take(r.messages[h])
	delete(r.messages, h)
}

// Imrecv starts receiving a message set aside.
func (r *rank) Imrecv(buf []byte, m driver.Handle) (h driver.Handle, err error) {
	err = r.call(func() error {
		q := r.newRequest(request{recv: true, buf: buf, active: true})
		r.takeMessage(q, m)
		h = q.h
		return nil
	})
	return h, err
}

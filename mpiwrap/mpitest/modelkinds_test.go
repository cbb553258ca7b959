package mpitest

import (
	"fmt"
	"slices"

	"github.com/holdfast-hpc/holdfast/mpiwrap"
)

// receiveKind is a way to post a receive.
type receiveKind int

const (
	protectedRequest    receiveKind = iota // of NewRequest, and protected
	plain                                  // Irecv
	prepared                               // RecvInit and Start, not protected
	unprotected                            // of NewRequest, not protected
	onDevice                               // IrecvDevice
	onHostRange                            // IrecvDevice of a HostRange
	unprotectedOnDevice                    // of NewDeviceRequest, not protected
	protectedOnDevice                      // of NewDeviceRequest, and protected
	receiveKinds
)

// start posts a receive, also again after a restart.
func (m *Model) start(p *posting) (err error) {
	c := m.comms[p.comm]
	switch p.kind {
	case plain:
		p.req, err = mpiwrap.Irecv(c, p.buf, p.source, p.tag)
	case prepared:
		if p.req, err = mpiwrap.RecvInit(c, p.buf, p.source, p.tag); err == nil {
			err = mpiwrap.Start(p.req)
		}
	case onDevice, onHostRange, unprotectedOnDevice, protectedOnDevice:
		return m.startOnDevice(p)
	default:
		p.req = mpiwrap.NewRequest(c, p.buf)
		err = p.req.Irecv(p.source, p.tag)
	}
	return err
}

// protected reports whether the receive is pending after a restart by itself.
func (p *posting) protected() bool { return p.kind == protectedRequest || p.kind == protectedOnDevice }

// read returns the note that a receive has got.
func (p *posting) read() (note, error) {
	if err := p.fetch(); err != nil {
		return note{}, err
	}
	n := note{comm: p.comm, source: int(p.buf[0]), seq: int(p.buf[1]), tag: int(p.buf[2])}
	if p.buf[4] != int64(p.comm) {
		return n, fmt.Errorf("a message of communicator %d on %d: %v", p.buf[4], p.comm, p.buf[:noteHead])
	}
	return n, nil
}

// setAside looks for a message and takes it off the network without receiving it.
func (m *Model) setAside(p *posting) error {
	if len(m.aside) >= 3 {
		return nil
	}
	msg, err := m.comms[p.comm].Improbe(p.source, p.tag)
	if err != nil || msg == nil {
		return err
	}
	m.post(p).msg = msg
	m.aside = append(m.aside, p)
	return nil
}

// receiveAside receives one of the messages that are set aside.
func (m *Model) receiveAside() error {
	if len(m.aside) == 0 {
		return nil
	}
	i := m.rng.IntN(len(m.aside))
	p := m.aside[i]
	m.aside = slices.Delete(m.aside, i, i+1)
	st, err := mpiwrap.Mrecv(p.msg, p.buf)
	if err != nil {
		return err
	}
	return m.took(p, st)
}

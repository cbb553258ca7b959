package session

import (
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/holdfast-hpc/holdfast/gpustate/internal/driver"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/drivers"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/wire"
)

// openTime bounds the time until a client has chosen its device.
const openTime = 60 * time.Second

// open offers the devices and opens the one that is chosen.
func (s *Session) open() error {
	if err := s.conn.SetReadDeadline(time.Now().Add(openTime)); err != nil {
		return err
	}
	w := &wire.Welcome{Server: s.svc.Name, Devices: s.svc.Infos(), Quota: s.svc.Quota}
	if err := s.out.Now(w); err != nil {
		return err
	}
	if u, ok := s.conn.(*net.UnixConn); ok {
		// the memory of the slots comes before any frame
		var err error
		var number uint64
		if number, s.arena, err = wire.Accept(u); err != nil {
			return err
		}
		if number != 1 || len(s.arena) != wire.SharedBytes {
			return fmt.Errorf("%w: slot size differs", wire.ErrProtocol)
		}
	}
	if err := s.choose(); err != nil {
		return err
	}
	return s.conn.SetReadDeadline(time.Time{})
}

func (s *Session) choose() error {
	op, body, err := wire.ReadSmallFrame(s.in, maxOpenBody)
	if err != nil {
		return err
	}
	if err := wire.Decode(body, &s.who); op != wire.OpOpen || err != nil {
		return errors.Join(err, fmt.Errorf("%w: expected the choice of a device", wire.ErrProtocol))
	}
	if err = s.openDevice(); err != nil {
		err = errors.Join(err, s.reply(s.who.Req, err, nil))
	}
	return err
}

func (s *Session) openDevice() (err error) {
	if s.who.Index >= len(s.svc.Devices) {
		return fmt.Errorf("device %d of %d: %w", s.who.Index, len(s.svc.Devices), wire.ErrProtocol)
	}
	if n := len(s.who.Program) + len(s.who.Host) + len(s.who.Label); n > maxNames {
		return fmt.Errorf("names of %d bytes: %w", n, wire.ErrProtocol)
	}
	s.dev = s.svc.Devices[s.who.Index]
	if s.drv, err = drivers.All[s.dev.From].Open(s.dev.At); err != nil {
		return err
	}
	if err = s.stageSlots(); err != nil {
		return err
	}
	if b, ok := s.drv.(driver.Batcher); ok {
		s.batch.driver = b.NewBatch()
	}
	s.usage.Choose(s.who.Index, &s.dev.Info)
	return nil
}

// maxNames bounds the name of a client.
const maxNames = 4096

// stageSlots makes the memory that pieces of transfers pass through.
func (s *Session) stageSlots() error {
	if s.arena != nil {
		s.stage = s.arena
		s.pin(s.arena[:wire.ArenaBytes])
		return nil
	}
	if s.dev.Info.HostMemory {
		s.stage = make([]byte, wire.ArenaBytes)
		return nil
	}
	pinned, err := s.drv.AllocPinned(wire.ArenaBytes)
	if err == nil {
		s.stage = pinned.Bytes()
	}
	return err
}

// useRing has everything after the reply of Open go through the memory that the
// client shares, if there is any.
func (s *Session) useRing() (err error) {
	if s.arena == nil {
		return nil
	}
	if s.ring, err = wire.NewRing(s.conn.(*net.UnixConn), s.arena, false); err != nil {
		return err
	}
	s.ring.OnWait = s.onWait
	s.input.Reader = s.ring
	s.conn, s.out = s.ring, wire.NewSender(s.ring, s.svc.Patience)
	s.in.Reset(&s.input)
	return nil
}

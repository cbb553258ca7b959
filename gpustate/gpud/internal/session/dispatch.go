package session

import (
	"context"
	"fmt"

	"github.com/holdfast-hpc/holdfast/gpustate/internal/driver"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/wire"
	"github.com/holdfast-hpc/holdfast/internal/codec"
)

// serve reads and carries out messages until the client hangs up or says
// something impossible.
func (s *Session) serve() error {
	defer s.handOver()
	return wire.ReadFrames(s.in, s.dispatch)
}

// dispatch carries out one message. An error ends the connection: it is one that
// no client of ours can cause.
func (s *Session) dispatch(op wire.Op, body []byte) error {
	var m wire.Message
	if int(op) < len(s.frequent) {
		m = s.frequent[op]
	}
	if m == nil {
		if m = wire.New(op); m == nil {
			return fmt.Errorf("%w: operation %d", wire.ErrProtocol, op)
		}
	}
	if err := s.decoder.Decode(body, m); err != nil {
		return err
	}
	s.before(m)
	switch m := m.(type) {
	case *wire.Launch:
		return s.doLaunch(m)
	case *wire.SetArg:
		return s.doSetArg(m)
	case *wire.Transfer:
		return s.doTransfer(m)
	case *wire.Direct:
		return s.doDirect(m)
	case *wire.Copy:
		return s.doCopy(m)
	case *wire.Marker:
		return s.doMarker(m)
	case *wire.Fill:
		return s.doFill(m)
	case *wire.CreateMem:
		return s.reply(m.Req, s.createMem(m), nil)
	case *wire.CreateSampler:
		return s.reply(m.Req, s.createSampler(m), nil)
	case *wire.Build:
		_ = s.building.Acquire(context.Background(), 1) // its next messages wait when very many are built
		go func() {
			defer s.building.Release(1)
			passed, err := s.build(m)
			_ = s.reply(m.Req, err, func(f *wire.Fields) { f.Str(&passed) })
		}()
		return nil
	case *wire.CreateKernel:
		args, exact, err := s.createKernel(m)
		return s.reply(m.Req, err, func(f *wire.Fields) {
			codec.Small(f, &args, wire.MaxArgs)
			f.Bool(&exact)
		})
	case *wire.CreateQueue:
		return s.reply(m.Req, s.createQueue(m), nil)
	case *wire.Release:
		return s.doRelease(m.ID)
	case *wire.Flush:
		return s.doFlush(m)
	case *wire.Finish:
		return s.doFinish(m)
	case *wire.Ask:
		return s.doAsk(m)
	case *wire.Query:
		return s.doQuery(m)
	case *wire.Forget:
		s.forget(driver.Event(m.Event))
		return nil
	case *wire.Beat:
		return nil
	case *wire.Unshare:
		return s.unshare(m.Region)
	case *wire.Moved:
		s.server.Moved(*m)
		return nil
	}
	return fmt.Errorf("%w: operation %d from a client", wire.ErrProtocol, op)
}

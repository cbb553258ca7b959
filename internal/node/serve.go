package node

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-hpc/holdfast/coordinated"
	"github.com/holdfast-hpc/holdfast/internal/node/wire"
	"github.com/holdfast-hpc/holdfast/internal/program"
	"github.com/holdfast-hpc/holdfast/storage"
)

func (s *session) serve() {
	for {
		m, err := s.receive()
		if err != nil {
			return
		}
		code, value, err := s.answer(m)
		switch {
		case errors.Is(err, wire.ErrMalformed):
			s.fail(err)
			return
		case err != nil:
			code = wire.CodeFailed
			if s.isLoss(err) {
				code = wire.CodeLost
			}
			err = s.conn.write(wire.Error(code, err.Error()))
		default:
			err = s.conn.write(wire.Done(code, value))
		}
		if s.afterReply != nil {
			s.afterReply()
			s.afterReply = nil
		}
		if err != nil {
			s.fail(disconnectedBy(err))
			return
		}
	}
}

func (s *session) answer(m wire.Message) (code int32, value uint64, err error) {
	ctx := context.Background()
	switch m.Type {
	case wire.TypeProtect:
		return 0, 0, s.protect(m)
	case wire.TypeDeclare:
		return 0, 0, s.declare(m)
	case wire.TypeRestore:
		return s.restore(ctx)
	case wire.TypePoint:
		s.freeUnclaimed()
		s.warnOfLengths()
		// A reconnected client learns whether all ranks have stopped at one point since: only then do they agree on
		// which of their calls this daemon has seen.
		if code, _, err = s.pointResult(s.ck.Point(ctx)); s.reconnected && s.hasCut() {
			value = wire.ValueCut
		}
		return code, value, err
	case wire.TypeCheckpoint:
		s.freeUnclaimed()
		s.warnOfLengths()
		return s.checkpoint(ctx, m.Again)
	case wire.TypeWait:
		return s.wait(ctx, m.Text, m.Flags&wire.WaitLook != 0)
	case wire.TypeFinalize:
		return 0, 0, s.finalize()
	case wire.TypeUnprotect:
		a := s.arrays[m.Array]
		if a == nil {
			return 0, 0, fmt.Errorf("%w: array %d is not protected", wire.ErrMalformed, m.Array)
		}
		a.count.Store(-1)
		return 0, 0, nil
	case wire.TypeSave:
		s.freeUnclaimed()
		return s.save(ctx, m)
	case wire.TypeFind:
		return s.find(ctx, m)
	case wire.TypeBegin:
		return 0, 0, s.beginRestart(ctx, m)
	case wire.TypeHeld:
		return s.sizeInRestart(m.Text)
	case wire.TypeRecover:
		return 0, 0, s.recover(m)
	case wire.TypeEnd:
		if s.restart != nil {
			s.freeAfterRestore(s.restart.ck, s.restart.arenas)
		}
		s.restart = nil
		return 0, 0, nil
	}
	return 0, 0, fmt.Errorf("%w: type %d is not a request", wire.ErrMalformed, m.Type)
}

// protect takes a new array, or one that has moved or grown.
func (s *session) protect(m wire.Message) error {
	if a := s.arrays[m.Array]; a != nil {
		if a.kind != 0 {
			return a.protectedDifferently()
		}
		if a.name != m.Text || a.elem != m.Elem {
			return fmt.Errorf("%q has elements of another type than before; protect it under another name", m.Text)
		}
		if a.Layout != wire.ElemLayout(m.Elem, m.Item) || a.AnySize != (m.Flags&wire.ProtectAnySize != 0) {
			return fmt.Errorf("%q was protected in another way before; use that, or another name", m.Text)
		}
		s.changed(a, int64(m.Count))
		a.count.Store(int64(m.Count))
		return nil
	}
	if reserved(m.Text) {
		return fmt.Errorf("%q: names that begin with \"holdfast.\" are the library's; use another", m.Text)
	}
	a := &array{name: m.Text, elem: m.Elem, Array: program.Array{AnySize: m.Flags&wire.ProtectAnySize != 0}}
	a.count.Store(int64(m.Count))
	a.ID, a.Layout, a.Elem = m.Array, wire.ElemLayout(m.Elem, m.Item), wire.ElemBytes(m.Elem)
	a.Count = a.count.Load
	if err := s.ck.Protect(m.Text, &a.Array); err != nil {
		return err
	}
	s.arrays[m.Array] = a
	return nil
}

func (s *session) restore(ctx context.Context) (code int32, value uint64, err error) {
	restored, err := s.ck.Restore(ctx)
	s.lengths.started = true
	if err != nil || !restored {
		return 0, 0, err
	}
	if err := s.rank.loaded(); err != nil {
		return 0, 0, err
	}
	s.freeAfterRestore(s.ck, s.rank.arenas)
	return 1, uint64(s.ck.Stats().Restore.Epoch), nil
}

func (s *session) pointResult(err error) (code int32, value uint64, _ error) {
	if errors.Is(err, coordinated.ErrStop) {
		s.d.setOnAll(wire.PointStopped, func(*session) bool { return true })
		return wire.CodeStop, 0, nil
	}
	return 0, 0, err
}

// newestEpoch returns the last epoch that was cut or given up.
func newestEpoch(ck *coordinated.Proxy) (e storage.Epoch, err error) {
	for _, es := range ck.Stats().Epochs {
		if es.Epoch >= e {
			e, err = es.Epoch, es.Err
		}
	}
	return e, err
}

// awaitPoint waits until checkpoints want their rank at its next point, or have an epoch after prior, which it returns.
func (s *session) awaitPoint(ck *coordinated.Proxy, prior storage.Epoch, wanted func() bool,
	changed <-chan struct{}) (storage.Epoch, error) {
	for {
		if e, err := newestEpoch(ck); e > prior {
			return e, err
		}
		if wanted() {
			return 0, nil
		}
		select {
		case <-changed:
		case <-s.disconnected:
			return 0, s.failure()
		case <-time.After(100 * time.Millisecond): // an epoch may have been given up meanwhile
		}
		if s.lost.Load() {
			return 0, errors.New("another rank is lost")
		}
	}
}

// checkpoint waits at a point until a checkpoint has been taken there. The client repeats the call until then and
// counts each time, so that its points stay equal to those of the other ranks.
func (s *session) checkpoint(ctx context.Context, again bool) (code int32, value uint64, err error) {
	if !again {
		s.prior, _ = newestEpoch(s.ck)
		if s.rank.rank == 0 {
			if err := s.ck.Request(ctx); err != nil {
				return s.pointResult(err)
			}
		}
	}
	if e, err := s.awaitPoint(s.ck, s.prior, s.rank.pages.armed, s.rank.armed); e > 0 || err != nil {
		return 0, uint64(e), err
	}
	if code, value, err = s.pointResult(s.ck.Point(ctx)); code != 0 || err != nil {
		return code, value, err
	}
	if e, err := newestEpoch(s.ck); e > s.prior {
		return 0, uint64(e), err
	}
	return wire.CodeAgain, 0, nil
}

package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/holdfast-hpc/holdfast/coordinated"
	"github.com/holdfast-hpc/holdfast/internal/node/wire"
	"github.com/holdfast-hpc/holdfast/internal/program"
	"github.com/holdfast-hpc/holdfast/storage"
	"golang.org/x/sys/unix"
)

// session serves one client. Its goroutine is the main thread of the rank.
type session struct {
	d      *daemon
	log    *slog.Logger
	conn   *conn
	rank   *rank // after HELLO
	ck     *coordinated.Checkpointer
	opt    coordinated.Options
	inbox  chan wire.Message
	over   chan struct{} // closed when the client has gone
	left   chan struct{} // closed when no request is being answered any more
	ended  chan struct{} // closed when all that it left is done
	closed atomic.Bool   // it has finalized
	lost   atomic.Bool   // another rank is lost
	arrays map[uint32]*array
	before storage.Epoch // newest epoch when CHECKPOINT began
	ending sync.WaitGroup

	named     []*named         // checkpoints of each name, in the order of their opening
	begun     *named           // the one that a restart was begun from
	kept      map[string]*kept // by the start before, by name, that has not been asked for
	then      func()           // what follows an answer; nil: nothing
	nextArena atomic.Uint32

	mu  sync.Mutex // guards err, and rank until WELCOME is sent
	err error      // the first one for which the client was given up
}

// array is what the client protects.
type array struct {
	program.Array
	name  string
	elem  uint32
	count atomic.Int64 // -1: the program has taken it out
}

func newSession(d *daemon, c *conn) *session {
	return &session{d: d, log: d.log, conn: c, inbox: make(chan wire.Message, 1), over: make(chan struct{}),
		left: make(chan struct{}), ended: make(chan struct{}), arrays: map[uint32]*array{}}
}

// signal hands a signal of the client to its agent.
func (s *session) signal(sig os.Signal) bool {
	select {
	case <-s.over:
		return false
	default:
	}
	s.mu.Lock()
	r := s.rank
	s.mu.Unlock()
	if r == nil {
		return false
	}
	select {
	case r.signals <- sig:
	default: // as many wait as can matter
	}
	return true
}

// fail gives the client up because of err.
func (s *session) fail(err error) {
	s.mu.Lock()
	s.err = cmp.Or(s.err, err)
	s.mu.Unlock()
	s.conn.hangUp()
}

func (s *session) why() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// run serves the client until it has gone.
func (s *session) run() {
	watched := make(chan struct{})
	go func() {
		s.conn.watch()
		close(watched)
	}()
	s.ending.Go(s.read)
	if m, err := s.receive(); err == nil {
		if err := s.begin(m); err == nil {
			s.serve()
		}
	}
	close(s.left)
	s.conn.close()
	s.ending.Wait()
	if s.rank != nil && !s.closed.Load() {
		s.handOver()
	}
	s.freeUnasked()
	for _, n := range s.named {
		if err := n.arenas.close(); err != nil {
			s.log.Warn("holdfast node: cannot free shared memory", "error", err)
		}
	}
	if s.rank != nil {
		if err := s.rank.close(); err != nil {
			s.log.Warn("holdfast node: cannot free shared memory", "error", err)
		}
	}
	<-watched
	s.conn.free()
}

// read takes what the client sends. At its end the agent gives the job up, unless the client
// has finalized.
func (s *session) read() {
	b := make([]byte, wire.MaxBytes)
	for {
		m, err := s.conn.read(b)
		if err == nil && m.Type != wire.TypeSignal && len(s.inbox) > 0 {
			err = fmt.Errorf("%w: type %d before the previous request was answered", wire.ErrMalformed, m.Type)
		}
		if err != nil {
			if errors.Is(err, wire.ErrMalformed) {
				s.log.Error("holdfast node: disconnecting a client", "pid", s.conn.pid, "error", err)
			}
			s.fail(fmt.Errorf("%w (%w)", errGone, err))
			close(s.over)
			return
		}
		if m.Type == wire.TypeSignal {
			s.signal(syscall.Signal(m.Signal))
			continue
		}
		s.inbox <- m
	}
}

// receive waits for the next message.
func (s *session) receive() (wire.Message, error) {
	select {
	case m := <-s.inbox:
		return m, nil
	case <-s.over:
		return wire.Message{}, s.why()
	}
}

// ask sends the client something to do, and waits until it has.
func (s *session) ask(ctx context.Context, answer wire.Type, b []byte, fds ...int) (wire.Message, error) {
	if err := s.conn.write(b, fds...); err != nil {
		return wire.Message{}, fmt.Errorf("%w (%w)", errGone, err)
	}
	select {
	case m := <-s.inbox:
		if m.Type != answer {
			err := fmt.Errorf("%w: type %d where %d is due", wire.ErrMalformed, m.Type, answer)
			s.fail(err)
			return m, err
		}
		return m, nil
	case <-s.over:
		return wire.Message{}, s.why()
	case <-ctx.Done():
		return wire.Message{}, ctx.Err()
	}
}

// begin answers HELLO and opens the Checkpointer.
func (s *session) begin(m wire.Message) (err error) {
	if err := s.d.awaitEnding(s); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			s.log.Error("holdfast node: cannot open the checkpoints of a rank", "pid", s.conn.pid, "error", err)
			if s.rank != nil && s.rank.group != nil {
				s.rank.group.leave()
			}
			_ = s.conn.write(wire.Error(wire.CodeFailed, err.Error())) // it may have gone
			s.lastWord()
		}
	}()
	if m.Type != wire.TypeHello {
		return fmt.Errorf("%w: type %d before HELLO", wire.ErrMalformed, m.Type)
	}
	s.d.mu.Lock()
	s.d.served = true
	s.d.mu.Unlock()
	p, err := newPages()
	if err != nil {
		return err
	}
	r := &rank{s: s, rank: int(m.Rank), size: int(m.Size), gathers: m.Flags&wire.HelloGathers != 0, pages: p,
		fence:   m.Flags&wire.HelloMembarrier == 0 || membarrier() != nil,
		signals: make(chan os.Signal, 8), armed: make(chan struct{}, 1), arenas: newArenas(s, nil)}
	s.mu.Lock()
	s.rank = r
	s.mu.Unlock()
	s.log = s.log.With("rank", m.Rank)
	s.opt = program.OfStart(s.d.opt.Checkpoints, m.Supervisor, m.Step, m.Flags&wire.HelloFresh != 0)
	check := signalsOf(s.opt.CheckpointSignals, unix.SIGUSR1)
	stop := signalsOf(s.opt.StopSignals, unix.SIGUSR2, unix.SIGTERM)
	s.opt.CheckpointSignals, s.opt.StopSignals = check, stop
	if s.opt.Job == filepath.Base(os.Args[0]) {
		s.opt.Job = cmp.Or(m.Text, s.opt.Job)
	}
	s.kept = s.d.take(s.whose(""))
	r.arenas = newArenas(s, s.kept[""])
	delete(s.kept, "")
	s.opt.OnLost = s.rankLost
	s.opt.Logger = s.d.log
	var flags uint32
	if r.fence {
		flags = wire.WelcomeFence
	}
	if err := s.conn.write(wire.Welcome(mask(check), mask(stop), flags), int(p.flags.file.Fd()),
		int(p.points.file.Fd())); err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	go func() {
		select {
		case <-s.over:
			cancel(s.why())
		case <-ctx.Done():
		}
	}()
	if s.ck, err = program.Open[coordinated.Checkpointer](ctx, r, s.opt); err != nil {
		return err
	}
	s.d.freeKept() // all ranks have come, and taken theirs
	s.ending.Go(s.guard)
	return s.conn.write(wire.Done(0, 0))
}

// lastWord leaves the client the time to read an error before the connection ends: it hangs
// up by itself, or has a moment.
func (s *session) lastWord() {
	t := time.NewTimer(time.Second)
	defer t.Stop()
	select {
	case <-s.over:
	case <-t.C:
	}
}

// guard gives the job up when the client has gone too soon.
func (s *session) guard() {
	<-s.over
	if s.closed.Load() {
		return
	}
	if !s.lost.Load() {
		s.log.Error("holdfast node: a rank has ended", "pid", s.conn.pid, "error", s.why())
	}
	s.settle()
	s.leave()
	for _, ck := range s.checkpointers() {
		program.Of(ck).AbortWhile(s.why(), s.left) // a request may be under way
	}
}

// settle lets the epochs that all ranks have captured become durable.
func (s *session) settle() {
	limit := cmp.Or(s.opt.WriteTimeout, 5*time.Minute)
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	for _, ck := range s.checkpointers() {
		for _, level := range storage.LevelNames() {
			if s.lost.Load() {
				return
			}
			_ = ck.Wait(ctx, level) // one that is not in use, or has failed: the log says so
		}
	}
}

// rankLost runs when another rank is lost: the program may hang in MPI.
func (s *session) rankLost(e *coordinated.LostError) {
	s.lost.Store(true)
	s.rank.pages.set(wire.PointOver, true)
	if s.closed.Load() {
		return
	}
	s.log.Error("holdfast node: another rank is lost; this one has time to end", "error", e.Error())
	s.ending.Go(func() {
		t := time.NewTimer(survivors)
		defer t.Stop()
		select {
		case <-s.over:
		case <-t.C:
			s.log.Error("holdfast node: killing a rank that survived the loss of another", "pid", s.conn.pid)
			s.conn.kill()
		}
	})
}

// serve answers requests until the client has gone.
func (s *session) serve() {
	for {
		m, err := s.receive()
		if err != nil {
			return
		}
		code, value, err := s.answer(m)
		switch {
		case errors.Is(err, wire.ErrMalformed):
			s.log.Error("holdfast node: disconnecting a client", "pid", s.conn.pid, "error", err)
			s.fail(err)
			return
		case err != nil:
			code = wire.CodeFailed
			if s.lost.Load() {
				code = wire.CodeLost
			}
			err = s.conn.write(wire.Error(code, err.Error()))
		default:
			err = s.conn.write(wire.Done(code, value))
		}
		if s.then != nil {
			s.then()
			s.then = nil
		}
		if err != nil {
			s.fail(fmt.Errorf("%w (%w)", errGone, err))
			return
		}
	}
}

func (s *session) answer(m wire.Message) (code int32, value uint64, err error) {
	ctx := context.Background()
	switch m.Type {
	case wire.TypeProtect:
		return 0, 0, s.protect(m)
	case wire.TypeRestore:
		return s.restore(ctx)
	case wire.TypePoint:
		s.freeUnasked()
		return s.pointed(s.ck.Point(ctx))
	case wire.TypeCheckpoint:
		s.freeUnasked()
		return s.checkpoint(ctx, m.Again)
	case wire.TypeWait:
		return s.wait(ctx, m.Text, m.Flags&wire.WaitLook != 0)
	case wire.TypeFinalize:
		s.closed.Store(true)
		var errs []error
		for _, n := range s.named {
			errs = append(errs, n.close())
		}
		return 0, 0, errors.Join(append(errs, s.ck.Close())...)
	case wire.TypeUnprotect:
		return 0, 0, s.unprotect(m.Array)
	case wire.TypeSave:
		s.freeUnasked()
		return s.save(ctx, m)
	case wire.TypeFind:
		return s.find(ctx, m)
	case wire.TypeBegin:
		return 0, 0, s.beginRestart(ctx, m)
	case wire.TypeHeld:
		return s.held(m.Text)
	case wire.TypeRecover:
		return 0, 0, s.recover(m)
	case wire.TypeEnd:
		if s.begun != nil {
			s.freeLeft(s.begun.ck, s.begun.arenas)
		}
		s.begun = nil
		return 0, 0, nil
	}
	return 0, 0, fmt.Errorf("%w: type %d is not a request", wire.ErrMalformed, m.Type)
}

// protect takes a new array, or one that has moved or grown.
func (s *session) protect(m wire.Message) error {
	if a := s.arrays[m.Array]; a != nil {
		if a.name != m.Text || a.elem != m.Elem {
			return fmt.Errorf("%q has elements of another type than before; protect it under another name", m.Text)
		}
		a.count.Store(int64(m.Count))
		return nil
	}
	if reserved(m.Text) {
		return fmt.Errorf("%q: names that begin with \"holdfast.\" are the library's; use another", m.Text)
	}
	a := &array{name: m.Text, elem: m.Elem, Array: program.Array{AnySize: m.Flags&wire.ProtectAnySize != 0}}
	a.count.Store(int64(m.Count))
	a.ID, a.Layout, a.Elem = m.Array, wire.ElemLayout(m.Elem), wire.ElemBytes(m.Elem)
	a.Count = a.count.Load
	if err := s.ck.Protect(m.Text, &a.Array); err != nil {
		return err
	}
	s.arrays[m.Array] = a
	return nil
}

func (s *session) restore(ctx context.Context) (code int32, value uint64, err error) {
	restored, err := s.ck.Restore(ctx)
	if err != nil || !restored {
		return 0, 0, err
	}
	if err := s.rank.loaded(); err != nil {
		return 0, 0, err
	}
	s.freeLeft(s.ck, s.rank.arenas)
	return 1, uint64(s.ck.Stats().Restore.Epoch), nil
}

// freeLeft frees what was restored from memory, if it was, once the client need not wait for that.
func (s *session) freeLeft(ck *coordinated.Checkpointer, r *arenas) {
	if r.unmapLeft() {
		s.then = func() {
			r.Forget()
			program.Of(ck).Reserve()
		}
	}
}

func (s *session) pointed(err error) (code int32, value uint64, _ error) {
	if errors.Is(err, coordinated.ErrStop) {
		return wire.CodeStop, 0, nil
	}
	return 0, 0, err
}

// newest is the last epoch that was cut or given up.
func newest(ck *coordinated.Checkpointer) (e storage.Epoch, err error) {
	for _, es := range ck.Stats().Epochs {
		if es.Epoch >= e {
			e, err = es.Epoch, es.Err
		}
	}
	return e, err
}

// checkpoint stands at a point until a checkpoint has been taken there. The client repeats it
// until then, and counts each time, so that its points stay those of the other ranks.
func (s *session) checkpoint(ctx context.Context, again bool) (code int32, value uint64, err error) {
	if !again {
		s.before, _ = newest(s.ck)
		if s.rank.rank == 0 {
			if err := s.ck.Request(ctx); err != nil {
				return s.pointed(err)
			}
		}
	}
	for {
		if e, err := newest(s.ck); e > s.before {
			return 0, uint64(e), err
		}
		if s.rank.pages.armed() {
			break
		}
		select {
		case <-s.rank.armed:
		case <-s.over:
			return 0, 0, s.why()
		case <-time.After(100 * time.Millisecond): // an epoch may have been given up meanwhile
		}
		if s.lost.Load() {
			return 0, 0, errors.New("another rank is lost")
		}
	}
	if code, value, err = s.pointed(s.ck.Point(ctx)); code != 0 || err != nil {
		return code, value, err
	}
	if e, err := newest(s.ck); e > s.before {
		return 0, uint64(e), err
	}
	return wire.CodeAgain, 0, nil
}

package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/holdfast-hpc/holdfast/coordinated"
	"github.com/holdfast-hpc/holdfast/internal/layout"
	"github.com/holdfast-hpc/holdfast/internal/node/wire"
	"github.com/holdfast-hpc/holdfast/internal/program"
	"github.com/holdfast-hpc/holdfast/storage"
	"golang.org/x/sys/unix"
)

// session serves one client. Its goroutine is the main thread of the rank.
type session struct {
	d      *daemon
	log    *slog.Logger // names the rank after HELLO; not for read, which does not wait for that
	conn   *conn
	rank   *rank // after HELLO
	ck     *coordinated.Proxy
	opt    coordinated.Options
	inbox  chan wire.Message
	over   chan struct{} // closed when the client has gone
	left   chan struct{} // closed when no request is being answered any more
	ended  chan struct{} // closed when all that it left is done
	end    atomic.Int32  // one of those below
	lost   atomic.Bool   // another rank is lost
	goesOn bool          // the client was another daemon's, which has died
	arrays map[uint32]*array
	// shadows says that the client may bring device memory to arenas after it has answered COPY. Set before the first.
	shadows bool
	boxes   wire.Message  // of a DECLARE that goes on in the next
	before  storage.Epoch // newest epoch when CHECKPOINT began
	ending  sync.WaitGroup

	finalized bool             // and that is over, and the job need not start again
	named     []*named         // checkpoints of each name, in the order of their opening
	begun     *named           // the one that a restart was begun from
	kept      map[string]*kept // by the start before, by name, that has not been asked for
	told      bool             // that its start cannot be opened has been logged; guarded by d.mu
	then      func()           // what follows an answer; nil: nothing
	nextArena atomic.Uint32
	lengths   lengths

	mu     sync.Mutex // guards what follows, and rank until WELCOME is sent
	err    error      // the first one for which the client was given up
	coming *arrival   // what the client still brings to arenas; nil: nothing
	newest *arrival   // what it brings of the last COPY, until that is asked for
}

// array is what the client protects.
type array struct {
	program.Array
	name  string
	elem  uint32
	count atomic.Int64 // -1: the program has taken it out
	kind  uint32       // as in DECLARE; 0: it is the rank's own
	dims  []int64      // of a global array, and the parts of it that the rank owns
	parts []layout.Part
}

// What has begun of a session's end. A client may die with hf_finalize on its way: one of the two comes first.
const (
	endNone     = iota
	endFinalize // the client has called hf_finalize
	endGivenUp  // it has gone before that
)

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

// fail gives the client up because of err, and says so first where that is the client's doing.
func (s *session) fail(err error) {
	s.mu.Lock()
	first := s.err == nil
	s.err = cmp.Or(s.err, err)
	s.mu.Unlock()
	if first && errors.Is(err, wire.ErrMalformed) {
		s.d.log.Error("holdfast node: disconnecting a client", "pid", s.conn.pid, "error", err)
	}
	s.conn.hangUp()
}

// gone says whether the client has gone or is given up, also where nobody has noticed the end of its process yet.
func (s *session) gone() bool { return s.why() != nil || s.conn.dead() }

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
	if s.rank != nil && !s.finalized {
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
		switch {
		case err != nil || m.Type == wire.TypeSignal:
		case m.Type == wire.TypeArrived:
			err = s.arrived(m.Code)
		case len(s.inbox) > 0:
			err = fmt.Errorf("%w: type %d before the previous request was answered", wire.ErrMalformed, m.Type)
		case m.Type == wire.TypeCopied && m.Flags&wire.CopiedLater != 0:
			err = s.expect()
		}
		if err != nil {
			if !errors.Is(err, wire.ErrMalformed) {
				err = goneBy(err)
			}
			s.fail(err)
			close(s.over)
			return
		}
		switch m.Type {
		case wire.TypeSignal:
			s.signal(syscall.Signal(m.Signal))
		case wire.TypeArrived:
		default:
			s.inbox <- m
		}
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
		return wire.Message{}, goneBy(err)
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
			s.refuse(err)
		}
	}()
	if m.Type != wire.TypeHello {
		return fmt.Errorf("%w: type %d before HELLO", wire.ErrMalformed, m.Type)
	}
	s.d.mu.Lock()
	s.d.served = true
	s.d.mu.Unlock()
	widen(int(s.conn.pid))
	if m.Flags&wire.HelloGoesOn != 0 && m.Flags&wire.HelloAllHere == 0 {
		return s.orphaned()
	}
	if err := s.newRank(m); err != nil {
		return err
	}
	if err := s.welcome(m.Flags&wire.HelloShadows != 0); err != nil {
		return err
	}
	return s.open()
}

// refuse tells a client why its checkpoints are not opened.
func (s *session) refuse(err error) {
	s.sayNotOpened(err)
	if s.rank != nil && s.rank.group != nil {
		s.rank.group.leave()
	}
	code := int32(wire.CodeFailed)
	if errors.Is(err, errOrphaned) {
		code = wire.CodeLost
	}
	_ = s.conn.write(wire.Error(code, err.Error())) // it may have gone
	s.lastWord()
	if code == wire.CodeLost {
		time.Sleep(survivors)
		s.conn.kill()
	}
}

// newRank makes the rank that HELLO says the client is, and its options.
func (s *session) newRank(m wire.Message) error {
	p, err := newPages()
	if err != nil {
		return err
	}
	r := &rank{s: s, rank: int(m.Rank), size: int(m.Size), gathers: m.Flags&wire.HelloGathers != 0, pages: p,
		fence:   m.Flags&wire.HelloMembarrier == 0 || membarrier() != nil,
		kind:    byte(m.Flags & (wire.HelloGoesOn | wire.HelloMessages)),
		signals: make(chan os.Signal, 8), armed: make(chan struct{}, 1), arenas: newArenas(s, nil)}
	if m.Flags&wire.HelloMessages != 0 {
		if r.counts, err = newCounts(r.size); err != nil {
			return errors.Join(err, r.close())
		}
	}
	s.mu.Lock()
	s.rank = r
	s.mu.Unlock()
	s.log = s.log.With("rank", m.Rank)
	s.opt = s.d.opt.Checkpoints.OfStart(program.Start{Supervisor: m.Supervisor, Step: m.Step, Program: m.Text,
		Fresh: m.Flags&wire.HelloFresh != 0, Elastic: m.Flags&wire.HelloElastic != 0})
	s.opt.CheckpointSignals = signalsOf(s.opt.CheckpointSignals, unix.SIGUSR1)
	s.opt.StopSignals = signalsOf(s.opt.StopSignals, unix.SIGUSR2, unix.SIGTERM)
	if s.opt.Job == filepath.Base(os.Args[0]) {
		s.opt.Job = cmp.Or(m.Text, s.opt.Job)
	}
	s.kept = s.d.take(s.whose(""))
	r.arenas = newArenas(s, s.kept[""])
	delete(s.kept, "")
	if s.goesOn = m.Flags&wire.HelloGoesOn != 0; s.goesOn { // the run of the daemon that has died
		s.opt.Fresh, s.opt.Epoch = false, 0
	}
	s.opt.OnLost = s.rankLost
	s.opt.Logger = s.d.log
	return nil
}

// welcome gives the client what it shares with its agent.
func (s *session) welcome(shadows bool) error {
	r := s.rank
	var flags uint32
	if r.fence {
		flags = wire.WelcomeFence
	}
	if err := s.conn.write(wire.Welcome(mask(s.opt.CheckpointSignals), mask(s.opt.StopSignals), flags),
		int(r.pages.flags.file.Fd()), int(r.pages.points.file.Fd())); err != nil {
		return err
	}
	if r.counts != nil {
		if err := s.conn.write(wire.Messages(uint64(len(r.counts.b))), int(r.counts.file.Fd())); err != nil {
			return err
		}
	}
	if shadows && s.opt.MaxShadow >= 0 {
		s.shadows = true
		if err := s.conn.write(wire.Shadow(cmp.Or(uint64(s.opt.MaxShadow), math.MaxUint64))); err != nil {
			return err
		}
	}
	return r.arenas.tellAll() // it maps them while the Checkpointer opens
}

// open opens the Checkpointer, with those of all ranks, and says so.
func (s *session) open() (err error) {
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	go func() {
		select {
		case <-s.over:
			cancel(s.why())
		case <-ctx.Done():
		}
	}()
	if s.ck, err = coordinated.OpenProxy(ctx, s.rank, s.opt); err != nil {
		return err
	}
	s.d.freeKept() // all ranks have come, and taken theirs
	if err := s.rank.arenas.tellAll(); err != nil {
		return err
	}
	s.ending.Go(s.guard)
	if s.goesOn {
		s.ck.Begin()
		if s.rank.rank == 0 { // it has been without a checkpoint for long enough
			if err := s.ck.Request(ctx); err != nil {
				return err
			}
		}
	}
	return s.conn.write(wire.Done(s.d.here(s.rank.rank)))
}

// sayNotOpened logs why the checkpoints cannot be opened, before any client here is told: the program may end the job
// at once, and the log with it. What all ranks know is said once, where the lowest rank is that it comes from.
func (s *session) sayNotOpened(err error) {
	log, all := s.log.With("pid", s.conn.pid), (*coordinated.RanksError)(nil)
	if errors.As(err, &all) {
		log = s.d.log
	}
	s.d.opening.Lock()
	defer s.d.opening.Unlock()
	if all == nil || s.d.firstToSay(s, all) {
		log.Error("holdfast node: cannot open the checkpoints", "error", err)
	}
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
	if !s.end.CompareAndSwap(endNone, endGivenUp) {
		return
	}
	if !s.lost.Load() {
		s.log.Error("holdfast node: a rank has ended", "pid", s.conn.pid, "error", s.why())
	}
	s.settle()
	s.leave()
	for _, ck := range s.checkpointers() {
		ck.AbortWhile(s.why(), s.left) // a request may be under way
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
	if s.end.Load() == endFinalize {
		return
	}
	if s.d.firstLoss() { // all ranks here hear the same
		s.d.log.Error("holdfast node: the job has lost a rank; the others on this node have a moment to end", "error",
			e.Error())
	}
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

// isLoss says whether another rank is lost, also where err is the first to say so: a Close that ends because ranks are
// deadlocked returns before rankLost runs.
func (s *session) isLoss(err error) bool {
	var lost *coordinated.LostError
	return s.lost.Load() || errors.As(err, &lost)
}

// freeLeft frees what was restored from memory, if it was, once the client need not wait for that.
func (s *session) freeLeft(ck *coordinated.Proxy, r *arenas) {
	if r.unmapLeft() {
		s.then = func() {
			r.Forget()
			ck.Reserve()
		}
	}
}

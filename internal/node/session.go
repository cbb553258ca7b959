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
	"github.com/holdfast-hpc/holdfast/internal/node/messages"
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
	arrays map[uint32]*array
	tasks  sync.WaitGroup // goroutines of the session but for run

	// How far the session has come. The channels are closed in any order but for done, which is the last.
	phase        atomic.Int32  // one of those below
	disconnected chan struct{} // closed when the client has disconnected
	idle         chan struct{} // closed when no further request will be answered
	done         chan struct{} // closed when nothing of the session is left
	lost         atomic.Bool   // another rank is lost
	reconnected  bool          // the client was another daemon's, which has died

	// shadows: the client may copy device memory to arenas after it has answered COPY. Set before the first COPY.
	shadows    bool
	boxes      wire.Message         // of a DECLARE that the next one continues
	prior      storage.Epoch        // newest epoch when CHECKPOINT was received
	named      []*named             // checkpoints of each name, in the order of their opening
	restart    *named               // the one that the program restarts from; nil: none
	retained   map[string]*retained // memory of the previous start, by name, that no restart has claimed
	afterReply func()               // runs after the reply; nil: nothing
	nextArena  atomic.Uint32
	lengths    lengths

	notOpenedLogged bool // an error of opening the checkpoints of this start is in the log; guarded by d.mu

	mu   sync.Mutex // guards the fields below, and rank until WELCOME is sent
	err  error      // the first one for which the client was disconnected
	late *lateCopy  // of the newest COPY that has one; nil: none
}

// array is memory that the client protects.
type array struct {
	program.Array
	name  string
	elem  uint32
	count atomic.Int64 // -1: the program has taken it out
	kind  uint32       // as in DECLARE; 0: it is the rank's own
	dims  []int64      // of a global array, and the parts of it that the rank owns
	parts []layout.Part
}

// The phases of a session. A client may die while its hf_finalize is on its way: one of the two comes first.
const (
	phaseRunning    = iota
	phaseFinalizing // the client has called hf_finalize
	phaseFinalized  // hf_finalize is complete, and the job need not start again
	phaseAborted    // the client has disconnected before it called hf_finalize
)

// finalizes reports whether the client has called hf_finalize.
func (s *session) finalizes() bool {
	phase := s.phase.Load()
	return phase == phaseFinalizing || phase == phaseFinalized
}

func newSession(d *daemon, c *conn) *session {
	return &session{d: d, log: d.log, conn: c, inbox: make(chan wire.Message, 1), disconnected: make(chan struct{}),
		idle: make(chan struct{}), done: make(chan struct{}), arrays: map[uint32]*array{}}
}

// signal hands a signal of the client to its agent.
func (s *session) signal(sig os.Signal) bool {
	select {
	case <-s.disconnected:
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

// fail disconnects the client because of err, and logs it first if the client is at fault.
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

// isDisconnected reports whether the client is disconnected, or its process has ended and no read has noticed it yet.
func (s *session) isDisconnected() bool { return s.failure() != nil || s.conn.exited() }

// failure is why the client was disconnected; nil: it is connected.
func (s *session) failure() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

func (s *session) run() {
	watched := make(chan struct{})
	go func() {
		s.conn.watch()
		close(watched)
	}()
	s.tasks.Go(s.read)
	switch m, err := s.receive(); {
	case err != nil:
	case m.Type == wire.TypeHello && m.Flags&wire.HelloWatched != 0:
		s.watched(m)
	case s.hello(m) == nil:
		s.serve()
	}
	close(s.idle)
	s.conn.close()
	s.tasks.Wait()
	if s.rank != nil && s.phase.Load() != phaseFinalized {
		s.retainMemory()
	}
	s.freeUnclaimed()
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

// read receives the client's messages until it disconnects. The agent then aborts the job, unless the client has
// finalized.
func (s *session) read() {
	b := make([]byte, wire.MaxBytes)
	for {
		m, err := s.conn.read(b)
		switch {
		case err != nil || m.Type == wire.TypeSignal:
		case m.Type == wire.TypeArrived:
			err = s.lateArrived(m.Code)
		case len(s.inbox) > 0:
			err = fmt.Errorf("%w: type %d before the previous request was answered", wire.ErrMalformed, m.Type)
		case m.Type == wire.TypeCopied && m.Flags&wire.CopiedLater != 0:
			err = s.announceLate()
		}
		if err != nil {
			if !errors.Is(err, wire.ErrMalformed) {
				err = disconnectedBy(err)
			}
			s.fail(err)
			close(s.disconnected)
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

func (s *session) receive() (wire.Message, error) {
	select {
	case m := <-s.inbox:
		return m, nil
	case <-s.disconnected:
		return wire.Message{}, s.failure()
	}
}

// ask sends the client something to do, and waits until it has.
func (s *session) ask(ctx context.Context, answer wire.Type, b []byte, fds ...int) (wire.Message, error) {
	if err := s.conn.write(b, fds...); err != nil {
		return wire.Message{}, disconnectedBy(err)
	}
	select {
	case m := <-s.inbox:
		if m.Type != answer {
			err := fmt.Errorf("%w: type %d where %d is due", wire.ErrMalformed, m.Type, answer)
			s.fail(err)
			return m, err
		}
		return m, nil
	case <-s.disconnected:
		return wire.Message{}, s.failure()
	case <-ctx.Done():
		return wire.Message{}, ctx.Err()
	}
}

// hello answers HELLO and opens the Checkpointer.
func (s *session) hello(m wire.Message) (err error) {
	if err := s.d.awaitEarlier(s); err != nil {
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
	if m.Flags&wire.HelloGoesOn != 0 && m.Flags&wire.HelloAllHere == 0 { // killed in a second, as those elsewhere
		s.log.Error("holdfast node: the daemon of this rank has died, and the job has ranks on other nodes: the "+
			"rank has a moment to end", "pid", s.conn.pid)
		return errOrphaned
	}
	if err := s.newRank(m); err != nil {
		return err
	}
	if err := s.welcome(m.Flags&wire.HelloShadows != 0); err != nil {
		return err
	}
	return s.open()
}

// refuse sends a client the reason for which its checkpoints are not opened.
func (s *session) refuse(err error) {
	s.logNotOpened(err)
	if s.rank != nil && s.rank.group != nil {
		s.rank.group.leave()
	}
	code := int32(wire.CodeFailed)
	if errors.Is(err, errOrphaned) {
		code = wire.CodeLost
	}
	_ = s.conn.write(wire.Error(code, err.Error())) // it may have disconnected
	// The client has a second to read the error and to close the connection by itself.
	select {
	case <-s.disconnected:
	case <-time.After(time.Second):
	}
	if code == wire.CodeLost {
		time.Sleep(survivors)
		s.conn.kill()
	}
}

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
		if r.counts, err = newCounts(messages.Bytes(r.size)); err != nil {
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
	s.retained = s.d.takeRetained(s.retainKey(""))
	r.arenas = newArenas(s, s.retained[""])
	delete(s.retained, "")
	if s.reconnected = m.Flags&wire.HelloGoesOn != 0; s.reconnected { // the run of the daemon that has died
		s.opt.Fresh, s.opt.Epoch = false, 0
	}
	s.opt.OnLost = s.rankLost
	s.opt.Logger = s.d.log
	return nil
}

// welcome sends the client the memory that it shares with its agent.
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
	return r.arenas.sendAll() // it maps them while the Checkpointer opens
}

// open opens the Checkpointer, with those of all ranks, and replies.
func (s *session) open() (err error) {
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	go func() {
		select {
		case <-s.disconnected:
			cancel(s.failure())
		case <-ctx.Done():
		}
	}()
	if s.ck, err = coordinated.OpenProxy(ctx, s.rank, s.opt); err != nil {
		return err
	}
	s.d.freeRetained() // all ranks have come, and taken theirs
	if err := s.rank.arenas.sendAll(); err != nil {
		return err
	}
	s.tasks.Go(s.abortOnDisconnect)
	if s.reconnected {
		s.ck.SkipRestore()
		if s.rank.rank == 0 { // it has been without a checkpoint for long enough
			if err := s.ck.Request(ctx); err != nil {
				return err
			}
		}
	}
	return s.conn.write(wire.Done(s.d.localRanks(s.rank.rank)))
}

// logNotOpened logs why the checkpoints cannot be opened, before any client of the node gets the error: the program may
// end the job at once, and the log with it. Errors that all ranks know are logged once, on the node of the lowest rank
// at fault.
func (s *session) logNotOpened(err error) {
	log, all := s.log.With("pid", s.conn.pid), (*coordinated.RanksError)(nil)
	if errors.As(err, &all) {
		log = s.d.log
	}
	s.d.logging.Lock()
	defer s.d.logging.Unlock()
	if all == nil || s.d.firstToLog(s, all) {
		log.Error("holdfast node: cannot open the checkpoints", "error", err)
	}
}

// abortOnDisconnect aborts the job when the client disconnects before hf_finalize.
func (s *session) abortOnDisconnect() {
	<-s.disconnected
	if !s.phase.CompareAndSwap(phaseRunning, phaseAborted) {
		return
	}
	if !s.lost.Load() {
		s.log.Error("holdfast node: a rank has ended", "pid", s.conn.pid, "error", s.failure())
	}
	s.waitDurable()
	s.each(func(ck *coordinated.Proxy, r *arenas) {
		shard := ck.Retain()
		r.mu.Lock()
		r.forNext = shard
		r.mu.Unlock()
	})
	for _, ck := range s.checkpointers() {
		ck.AbortDuring(s.failure(), s.idle) // a request may be under way
	}
}

// waitDurable waits until the epochs that all ranks have captured are durable.
func (s *session) waitDurable() {
	limit := cmp.Or(s.opt.WriteTimeout, 5*time.Minute)
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	for _, ck := range s.checkpointers() {
		for _, level := range storage.LevelNames() {
			if s.lost.Load() {
				return
			}
			_ = ck.Wait(ctx, level) // the log has errors; a level may be out of use
		}
	}
}

// rankLost runs when another rank is lost: the program may hang in MPI.
func (s *session) rankLost(e *coordinated.LostError) {
	s.lost.Store(true)
	s.rank.pages.set(wire.PointOver, true)
	if s.finalizes() {
		return
	}
	s.d.mu.Lock()
	first := !s.d.lost
	s.d.lost = true
	s.d.mu.Unlock()
	if first { // all ranks of the node get the same
		s.d.log.Error("holdfast node: the job has lost a rank; the others on this node have a moment to end", "error",
			e.Error())
	}
	s.tasks.Go(func() {
		select {
		case <-s.disconnected:
		case <-time.After(survivors):
			s.log.Error("holdfast node: killing a rank that survived the loss of another", "pid", s.conn.pid)
			s.conn.kill()
		}
	})
}

// isLoss reports whether another rank is lost, even if err is the first sign of it: a Close that ends because ranks are
// deadlocked returns before rankLost runs.
func (s *session) isLoss(err error) bool {
	return s.lost.Load() || errors.As(err, new(*coordinated.LostError))
}

// freeAfterRestore frees the memory that was restored from, if any, after the reply to the client.
func (s *session) freeAfterRestore(ck *coordinated.Proxy, r *arenas) {
	if r.unmapPrevious() {
		s.afterReply = func() {
			r.FreePrevious()
			ck.Reserve()
		}
	}
}

package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/holdfast-hpc/holdfast/coordinated"
	"github.com/holdfast-hpc/holdfast/internal/handshake"
	"github.com/holdfast-hpc/holdfast/internal/node/wire"
	"golang.org/x/sys/unix"
)

// Options describe the job that the daemon serves.
type Options struct {
	// Key names the job: clients look for it. Empty: the key of the environment.
	Key string
	// Checkpoints are the options of each rank's agent. Signals and OnLost are the daemon's.
	Checkpoints coordinated.Options
	// Wait is how long the daemon waits for its first client; 0 means a minute.
	Wait time.Duration
	// Starter is the process that started the daemon for itself; 0: none. If it ends before any client has come, the
	// daemon ends too: it would hold the launcher's standard error.
	Starter int
	// Until, if not nil, keeps the daemon for one start of the program after the other until
	// it is closed, and until the ranks that are there then have ended.
	Until <-chan struct{}
	// Ready is called when clients can connect.
	Ready  func()
	Logger *slog.Logger
}

// linger is how long the daemon waits for further ranks when those that came have ended.
const linger = 500 * time.Millisecond

// survivors is how long ranks that have lost another one may take to leave by themselves.
const survivors = time.Second

// daemon serves the ranks of one job on this node.
type daemon struct {
	opt      Options
	log      *slog.Logger
	listener *net.UnixListener
	hub      hub
	sessions sync.WaitGroup
	watching watching
	logging  sync.Mutex // held while a session logs that checkpoints cannot be opened

	mu       sync.Mutex // guards the fields below
	alive    map[*session]bool
	retained map[retainKey]*retained // by ranks of the start before
	served   bool                    // a rank has come
	lost     bool                    // ranks of this start have heard of a loss
	empty    chan struct{}           // sent to when the last session ends
}

// ErrTaken means that a daemon of this job serves this node already.
var ErrTaken = errors.New("another daemon serves this job on this node")

// firstToLog reports whether a session is to log why the checkpoints of its start cannot be opened: the lowest rank
// that the error comes from is here, and no other session of the start has logged it.
func (d *daemon) firstToLog(s *session, e *coordinated.RanksError) (first bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if s.notOpenedLogged {
		return false
	}
	for one := range d.alive {
		one.mu.Lock()
		if one.rank != nil { // all ranks of this start have come
			one.notOpenedLogged = true
			first = first || one.rank.rank == e.Failed[0].Rank
		}
		one.mu.Unlock()
	}
	return first
}

// Address returns the socket of a job's daemon; see docs/internals/NODE.md.
func Address(key string) string {
	b := []byte(key)
	for i, c := range b {
		if !wire.PlainByte(c) {
			b[i] = '_'
		}
	}
	const most = 64
	return fmt.Sprintf("@holdfast-node-%d-%s", os.Geteuid(), b[:min(len(b), most)])
}

// Run serves clients until the last has ended, or ctx or SIGINT ends it. Other signals are for
// the agents, as those that the ranks get. It returns ErrTaken when the job has its daemon.
func Run(ctx context.Context, opt Options) error {
	opt.Wait = cmp.Or(opt.Wait, time.Minute)
	if opt.Logger == nil {
		opt.Logger = slog.Default()
	}
	signal.Ignore(unix.SIGPIPE) // the reader of the log may have exited
	l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: Address(opt.Key), Net: "unixpacket"})
	if errors.Is(err, unix.EADDRINUSE) {
		return fmt.Errorf("%w: %s has the key %s", ErrTaken, owner(opt.Key), opt.Key)
	}
	if err != nil {
		return fmt.Errorf("listen for the ranks of this node: %w", err)
	}
	d := &daemon{opt: opt, log: opt.Logger, listener: l, alive: map[*session]bool{},
		retained: map[retainKey]*retained{}, empty: make(chan struct{}, 1)}
	stop := context.AfterFunc(ctx, func() { _ = l.Close() }) // ends accept
	defer stop()
	var accepting sync.WaitGroup
	accepting.Go(d.accept)
	if opt.Ready != nil {
		opt.Ready()
	}
	err = d.wait(ctx)
	if cerr := l.Close(); !errors.Is(cerr, net.ErrClosed) {
		err = errors.Join(err, cerr)
	}
	accepting.Wait()
	d.mu.Lock()
	for s := range d.alive {
		s.conn.hangUp()
	}
	d.mu.Unlock()
	d.sessions.Wait()
	return err
}

func owner(key string) string {
	c, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: Address(key), Net: "unixpacket"})
	if err == nil {
		defer c.Close()
		if who, err := handshake.Peer(c); err == nil {
			return fmt.Sprintf("process %d of user %d", who.Pid, who.Uid)
		}
	}
	return "a process that does not answer"
}

// wait returns when no client is left to serve.
func (d *daemon) wait(ctx context.Context) error {
	signals := make(chan os.Signal, 8)
	all := append(append([]os.Signal{}, signalsOf(d.opt.Checkpoints.CheckpointSignals, unix.SIGUSR1)...),
		signalsOf(d.opt.Checkpoints.StopSignals, unix.SIGUSR2, unix.SIGTERM)...)
	signal.Notify(signals, append(all, unix.SIGTERM, unix.SIGINT)...)
	defer signal.Stop(signals)
	idle := time.NewTimer(d.opt.Wait)
	defer idle.Stop()
	until := d.opt.Until
	if until != nil {
		idle.Stop()
	}
	starter, abandoned := exitOf(d.opt.Starter), false
	for {
		select {
		case <-starter:
			starter, abandoned = nil, true
			idle.Reset(linger) // another rank may be about to come
		case <-until:
			until = nil
			d.mu.Lock()
			d.served = true // or need not be any more
			d.mu.Unlock()
			idle.Reset(linger)
		case <-ctx.Done():
			return nil
		case s := <-signals:
			if s == unix.SIGINT || !d.deliver(s) && s == unix.SIGTERM {
				return nil
			}
		case <-d.empty:
			if until == nil {
				idle.Reset(linger)
			}
		case <-idle.C:
			d.mu.Lock()
			over, served := len(d.alive) == 0, d.served
			d.mu.Unlock()
			if !over && !served { // a client that has not sent HELLO yet
				idle.Reset(linger)
			}
			if over && !served && !abandoned {
				return fmt.Errorf("no rank has connected within %v; start the program with the same HOLDFAST_NODE_KEY",
					d.opt.Wait)
			}
			if over {
				return nil
			}
		}
	}
}

// exitOf returns a channel that is closed when a process has ended, or nil without a process to watch.
func exitOf(pid int) <-chan struct{} {
	if pid <= 0 {
		return nil
	}
	exited := make(chan struct{})
	fd, err := unix.PidfdOpen(pid, 0)
	if errors.Is(err, unix.ESRCH) {
		close(exited)
		return exited
	}
	if err != nil {
		return nil // the kernel has none, or not for this process
	}
	go func() { // it ends with the process
		defer unix.Close(fd)
		for {
			n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, -1)
			if n > 0 || err != nil && !errors.Is(err, unix.EINTR) {
				close(exited)
				return
			}
		}
	}()
	return exited
}

// signalsOf returns the signals of an option, whose nil means a default.
func signalsOf(set []os.Signal, otherwise ...os.Signal) []os.Signal {
	if set == nil {
		return otherwise
	}
	return set
}

// mask has bit s-1 for each signal s.
func mask(set []os.Signal) (m uint64) {
	for _, s := range set {
		if n, ok := s.(syscall.Signal); ok && n > 0 && n <= 64 {
			m |= 1 << (n - 1)
		}
	}
	return m
}

// deliver sends a signal to an agent, as if its rank had received it, and reports whether there is one.
func (d *daemon) deliver(s os.Signal) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	for one := range d.alive {
		if one.signal(s) {
			return true
		}
	}
	return false
}

// awaitEarlier waits for the sessions of an earlier start whose clients have disconnected, or will be killed because a
// rank was lost: a launcher may end before its ranks. Their epochs are on their way to the directories that the new
// ones open, and the memory of their captures is retained for the new ones.
func (d *daemon) awaitEarlier(s *session) error {
	d.mu.Lock()
	var ending []*session
	for one := range d.alive {
		if one != s && (one.isDisconnected() || one.lost.Load()) {
			ending = append(ending, one)
		}
	}
	d.mu.Unlock()
	for _, one := range ending {
		select {
		case <-one.done:
		case <-s.disconnected:
			return s.failure()
		}
	}
	return nil
}

func (d *daemon) accept() {
	for {
		c, err := d.listener.AcceptUnix()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // too many files: clients that wait get their turn
			d.log.Error("holdfast node: cannot accept a client", "error", err)
			time.Sleep(10 * time.Millisecond)
			continue
		}
		conn, err := newConn(c)
		if err != nil {
			d.log.Warn("holdfast node: a client is refused", "error", err)
			_ = c.Close() // the client sees that
			continue
		}
		s := newSession(d, conn)
		d.mu.Lock()
		d.alive[s] = true
		d.mu.Unlock()
		d.sessions.Go(func() {
			s.run()
			close(s.done)
			d.mu.Lock()
			delete(d.alive, s)
			last := len(d.alive) == 0 && d.served
			d.lost = d.lost && len(d.alive) > 0
			d.mu.Unlock()
			if last {
				select {
				case d.empty <- struct{}{}:
				default: // it is full: wait will see that
				}
			}
		})
	}
}

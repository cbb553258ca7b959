package gpud

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/holdfast-hpc/holdfast/gpustate/gpud/internal/session"
	"github.com/holdfast-hpc/holdfast/gpustate/gpud/internal/usage"
	"github.com/holdfast-hpc/holdfast/gpustate/gpud/internal/worker"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/driver"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/drivers"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/wire"
)

// Bounds of connections: of those that have not proven a key yet, at all addresses
// together, and of those that have and are no clients of a device.
const (
	maxUnauthenticated = 1024
	maxOthers          = 1024
)

// Server serves the devices of a machine. All its calls are local and may be made by several goroutines.
type Server struct {
	opt             Options
	service         *session.Service
	workers         *worker.Launcher
	listeners       []net.Listener
	listening       []string // addresses
	counts          counts
	keys            wire.Keys
	unauthenticated *unauthenticated
	others          *semaphore.Weighted

	mu       sync.Mutex
	clients  map[uint64]*client
	free     []int                 // pages of usages
	conns    map[net.Conn]struct{} // all, to close them at the end
	next     uint64
	draining bool
	left     chan struct{} // closed and made again when a client has gone
	moves    map[uint64]chan wire.Moved

	closed chan struct{}
	wg     sync.WaitGroup
}

// counts are for metrics.
type counts struct {
	admitted, refused, handshakeFailures, commands, written, read, moved atomic.Int64
}

// New finds the devices, makes the keys that are missing, and listens. Serve answers. The errors name the option that
// cannot be used, the address that is in use, or the devices that there are.
func New(opt Options) (*Server, error) {
	if err := opt.validate(); err != nil {
		return nil, err
	}
	keys, err := ensureKeys(&opt)
	if err != nil {
		return nil, err
	}
	s := &Server{opt: opt, keys: keys, clients: map[uint64]*client{}, conns: map[net.Conn]struct{}{},
		unauthenticated: newUnauthenticated(maxUnauthenticated), others: semaphore.NewWeighted(maxOthers),
		left: make(chan struct{}), moves: map[uint64]chan wire.Moved{}, closed: make(chan struct{})}
	name, _ := os.Hostname() // for people
	s.service = &session.Service{Name: name, Quota: opt.Quota, Patience: opt.patience, Frozen: opt.frozen,
		Trusts: opt.TrustSources, Log: opt.Logger}
	if err := s.discover(); err != nil {
		return nil, err
	}
	s.workers, err = worker.NewLauncher(s.service, worker.Options{Command: opt.Worker, Unconfined: opt.Unconfined,
		Dirs: opt.WorkerDirs, User: opt.User, Grace: opt.grace})
	if err != nil {
		return nil, err
	}
	if s.service.Usages, err = usage.New(opt.MaxClients); err != nil {
		return nil, err
	}
	for i := range opt.MaxClients {
		s.free = append(s.free, i)
	}
	for _, a := range opt.Listen {
		if err := s.listen(a); err != nil {
			s.hangUp()
			return nil, errors.Join(err, s.service.Usages.Close())
		}
	}
	return s, nil
}

// discover lists the devices that are offered.
func (s *Server) discover() error {
	var missing []error
	var spared []string // devices of the node that are not to be offered
	for from, lib := range drivers.All {
		infos, err := lib.Devices()
		if err != nil {
			missing = append(missing, err)
		}
		for _, i := range infos {
			if s.opt.Offer(i) {
				d := session.Device{Info: i, At: i.Index, From: from}
				d.Info.Index = len(s.service.Devices)
				s.service.Devices = append(s.service.Devices, d)
			} else {
				spared = append(spared, i.String())
			}
		}
	}
	if len(s.service.Devices) == 0 && spared != nil {
		return fmt.Errorf("gpud: none of this node's devices is selected; there are: %s", strings.Join(spared, ", "))
	}
	if len(s.service.Devices) == 0 {
		return errors.Join(append([]error{errors.New("gpud: this node has no device to offer")}, missing...)...)
	}
	return nil
}

// Addrs returns the addresses that the server listens at, with the ports that it got. The slice is the caller's.
func (s *Server) Addrs() []string { return slices.Clone(s.listening) }

// Devices returns the devices that the server offers.
func (s *Server) Devices() []driver.Info { return s.service.Infos() }

// Serve answers until ctx ends or Leave is called, and then hangs up: see Leave for a gentler end. It is called once.
// It returns when all workers have ended, which takes a worker in a long kernel some seconds, and nil unless its
// resources cannot be freed.
func (s *Server) Serve(ctx context.Context) error {
	for _, l := range s.listeners {
		s.wg.Go(func() { s.accept(l) })
	}
	select {
	case <-ctx.Done():
	case <-s.closed:
	}
	s.end("the server is shutting down")
	s.wg.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.service.Usages.Close()
}

// serveConn does the handshake and serves the connection to its end. proven is called
// when the handshake is over.
func (s *Server) serveConn(c net.Conn, proven func()) {
	defer c.Close()
	if !s.track(c) {
		proven()
		return
	}
	defer s.untrack(c)
	err := errors.Join(wire.LimitSilence(c, s.opt.silence), c.SetDeadline(time.Now().Add(wire.HandshakeTime)))
	var p wire.Purpose
	var cl *client
	visits := false
	if err == nil {
		p, err = wire.Admit(c, s.keys, func(p wire.Purpose) bool {
			if p == wire.ForDevice {
				cl = s.reserve()
				return cl == nil
			}
			visits = s.others.TryAcquire(1)
			return !visits
		})
	}
	proven()
	if visits {
		defer s.others.Release(1)
	}
	if cl != nil {
		defer s.remove(cl)
	}
	if err != nil {
		s.refuse(c, err)
		return
	}
	if err := c.SetDeadline(time.Time{}); err != nil {
		return
	}
	switch p {
	case wire.ForDevice:
		s.counts.admitted.Add(1)
		s.serveClient(c, cl)
	case wire.ForAdmin:
		s.serveAdmin(c, true)
	case wire.ForStatus:
		s.serveAdmin(c, false)
	case wire.ForMemory:
		if u, ok := c.(*net.UnixConn); ok {
			if w := s.owner(u); w != nil {
				w.Share(u)
			}
		}
	}
}

// serveClient has a worker serve a client to its end.
func (s *Server) serveClient(c net.Conn, cl *client) {
	w, err := s.workers.Start(c, worker.Client{Identity: cl.Identity, Page: cl.page, Frontend: cl})
	if err != nil {
		s.opt.Logger.Error("cannot start a worker for a client", "id", cl.ID, "err", err)
		_ = wire.NewSender(c, s.opt.patience).Now(&wire.Bye{
			Why: "the server cannot start a process for this client: " + err.Error()})
		return
	}
	_ = c.Close() // the worker has it
	s.mu.Lock()
	cl.backend = w
	s.mu.Unlock()
	w.Serve(s.closed)
}

func (s *Server) refuse(c net.Conn, err error) {
	if errors.Is(err, wire.ErrRefused) {
		s.counts.refused.Add(1)
	} else {
		s.counts.handshakeFailures.Add(1)
	}
	s.opt.Logger.Warn("connection refused", "from", c.RemoteAddr().String(), "err", err)
}

func (s *Server) track(c net.Conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-s.closed:
		return false
	default:
	}
	s.conns[c] = struct{}{}
	return true
}

func (s *Server) untrack(c net.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.conns, c)
}

// Drain refuses new clients from now on, which get gpustate.ErrRefused; the present ones stay. It does not wait, and
// there is no way back.
func (s *Server) Drain() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.draining = true
}

// Leave refuses new clients, waits until all have gone or ctx ends, and makes Serve return. Clients that are still
// there are informed; their calls fail with gpustate.ErrDeviceLost.
func (s *Server) Leave(ctx context.Context) {
	s.Drain()
	for ctx.Err() == nil {
		s.mu.Lock()
		n, left := len(s.clients), s.left
		s.mu.Unlock()
		if n == 0 {
			break
		}
		select {
		case <-left:
		case <-ctx.Done():
		}
	}
	s.end("the server is shutting down")
}

// end says goodbye to all and closes all connections.
func (s *Server) end(why string) {
	s.mu.Lock()
	select {
	case <-s.closed:
		s.mu.Unlock()
		return
	default:
	}
	close(s.closed)
	s.draining = true
	s.mu.Unlock()
	var goodbyes sync.WaitGroup // a client that does not read delays no other
	for _, w := range s.backends() {
		goodbyes.Go(func() { w.Dismiss(why) })
	}
	goodbyes.Wait()
	s.hangUp()
}

func (s *Server) hangUp() {
	for _, l := range s.listeners {
		_ = l.Close() // a Unix socket's file goes with it
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.conns {
		_ = c.Close()
	}
}

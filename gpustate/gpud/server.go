package gpud

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/holdfast-hpc/holdfast/gpustate/internal/driver"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/drivers"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/wire"
)

// Options say what to serve, where and how. Listen, KeyFile and one of Worker and
// InProcess are required.
type Options struct {
	// Listen are the addresses: "unix:PATH" or "HOST:PORT". Nothing else listens.
	Listen []string
	// KeyFile holds the key that clients prove; it is made when it is not there.
	KeyFile string
	// MoveKeyFile holds the key that who moves programs proves: DialAdmin. It is made
	// when it is not there, and is another one than the clients'. Empty: MoveKeyFile
	// of KeyFile.
	MoveKeyFile string
	// Worker is the command line of a program that calls RunWorker. The server
	// starts it for each client, so that no client's kernel can harm another
	// client or the server. `holdfast gpud` starts itself.
	Worker []string
	// InProcess serves all clients in this process, without workers: for tests,
	// and where clients trust each other. A kernel that writes out of bounds then
	// ends the server, or spoils the device for all.
	InProcess bool
	// Name is the server's name for people. Empty: the host's.
	Name string
	// Advertise are addresses by which other servers reach this one. Empty: those
	// it listens at, if they name a host.
	Advertise []string
	// Offer chooses the devices. nil: all.
	Offer func(driver.Info) bool
	// Quota bounds the device memory of one client in bytes; 0 is no bound.
	Quota int64
	// MaxClients bounds the clients at a time; 0 is 256.
	MaxClients int
	// Patience is how long a client may not read what it is sent. 0 is 30 s.
	Patience time.Duration
	// Silence is how long a client's host may not acknowledge what it is sent, or
	// asked while nothing is sent, before its connection is given up. 0 is 15 s.
	Silence time.Duration
	// Frozen is how long a client may say nothing although it has not hung up and
	// its host is there: its program is stopped, perhaps by a debugger. 0 is
	// without end. Waiting for a long command is no silence.
	Frozen time.Duration
	// Unconfined lets workers reach all that this user can: files, processes, sockets.
	// Without it they reach devices, libraries and caches of compilers, as far as the
	// kernel knows Landlock; they have no privileges, and an environment without what
	// drivers do not read.
	Unconfined bool
	// WorkerDirs are directories that workers may use beyond that.
	WorkerDirs []string
	// User is the user that workers run as. It takes a server that root has started.
	// Empty: the server's.
	User string
	// TrustSources gives programs to compilers with whatever options, and whatever
	// files of this machine they include. Without it a client's programs are built with
	// known options and headers of the compiler alone.
	TrustSources bool
	// Peers are the servers that programs move to when this one is evacuated.
	Peers []string
	// Logger gets what happens; nil: nothing.
	Logger *slog.Logger

	libs  []driver.Driver // nil: those of this machine
	grace time.Duration   // that a worker has to end after its client has gone or the server is shutting down
}

// Bounds of connections: of those that have not proven a key yet, at all addresses
// together, and of those that have and are no clients of a device.
const (
	maxUnauthenticated = 1024
	maxOthers          = 1024
)

func (o *Options) validate() error {
	if len(o.Listen) == 0 {
		return errors.New("gpud: Options.Listen is empty: want unix:PATH or HOST:PORT")
	}
	if o.KeyFile == "" {
		return errors.New("gpud: Options.KeyFile is empty")
	}
	if o.InProcess == (len(o.Worker) > 0) {
		return errors.New("gpud: set either Options.Worker, the command line of a worker, or Options.InProcess")
	}
	if o.Quota < 0 || o.MaxClients < 0 {
		return errors.New("gpud: Options.Quota and Options.MaxClients must not be negative")
	}
	if o.Name == "" {
		o.Name, _ = os.Hostname()
	}
	o.Name = cmp.Or(o.Name, "gpud")
	o.MaxClients = cmp.Or(o.MaxClients, 256)
	o.Patience = cmp.Or(o.Patience, 30*time.Second)
	o.grace = cmp.Or(o.grace, 5*time.Second)
	o.Silence = cmp.Or(o.Silence, wire.Silence)
	if o.Frozen != 0 && o.Frozen < wire.MinSilence || o.Silence < wire.MinSilence {
		return fmt.Errorf("gpud: Options.Silence and Options.Frozen must be at least %v", wire.MinSilence)
	}
	if o.Offer == nil {
		o.Offer = func(driver.Info) bool { return true }
	}
	if o.libs == nil {
		o.libs = drivers.All
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.NewTextHandler(io.Discard, nil))
	}
	return nil
}

// Server is a running server.
type Server struct {
	service
	opt             Options
	listeners       []net.Listener
	listening       []string // addresses
	counts          counts
	keys            wire.Keys
	starts          chan func() // of workers
	unauthenticated *unauthenticated
	others          semaphore
	drop            *syscall.Credential // of workers, nil: the server's
	home            string              // of that user

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
	admitted, refused, strangers, commands, written, read, moved atomic.Int64
}

// New finds the devices and listens. Serve answers.
func New(opt Options) (*Server, error) {
	if err := opt.validate(); err != nil {
		return nil, err
	}
	keys, err := ensureKeys(&opt)
	if err != nil {
		return nil, err
	}
	s := &Server{opt: opt, keys: keys, clients: map[uint64]*client{}, conns: map[net.Conn]struct{}{},
		starts: make(chan func()), unauthenticated: newUnauthenticated(maxUnauthenticated),
		others: newSemaphore(maxOthers),
		left:   make(chan struct{}), moves: map[uint64]chan wire.Moved{}, closed: make(chan struct{})}
	s.service = service{name: opt.Name, quota: opt.Quota, patience: opt.Patience, frozen: opt.Frozen,
		trusts: opt.TrustSources, key: keys.Use, log: opt.Logger}
	if err := s.discover(); err != nil {
		return nil, err
	}
	if err := s.lookUpUser(); err != nil {
		return nil, err
	}
	if !opt.InProcess && !opt.Unconfined && landlockVersion() == 0 {
		opt.Logger.Warn("this kernel has no Landlock: workers can access all files that their user can; see --user")
	}
	if !opt.InProcess && !opt.Unconfined {
		s.sweep()
	}
	if s.usages, err = newUsages(opt.MaxClients); err != nil {
		return nil, err
	}
	for i := range opt.MaxClients {
		s.free = append(s.free, i)
	}
	for _, a := range opt.Listen {
		if err := s.listen(a); err != nil {
			s.hangUp()
			return nil, errors.Join(err, s.usages.close())
		}
	}
	s.addrs = s.advertised()
	return s, nil
}

// MoveKeyFile is where the key for moving programs lies when nothing is said: beside
// the key for using devices, gpud-move.key for gpud.key.
func MoveKeyFile(keyFile string) string { return wire.MoveKeyFile(keyFile) }

// ensureKeys reads the two keys, and makes those that are not there.
func ensureKeys(opt *Options) (keys wire.Keys, err error) {
	if keys.Use, err = wire.EnsureKey(opt.KeyFile); err != nil {
		return keys, err
	}
	file := cmp.Or(opt.MoveKeyFile, MoveKeyFile(opt.KeyFile))
	if keys.Move, err = wire.EnsureKey(file); err != nil {
		return keys, err
	}
	if keys.Use == keys.Move {
		return keys, fmt.Errorf("gpud: %s and %s hold the same key, so every client could move all others: remove "+
			"%[2]s; gpud makes a new one",
			opt.KeyFile, file)
	}
	return keys, nil
}

// discover lists the devices that are offered.
func (s *Server) discover() error {
	var missing []error
	for from, lib := range s.opt.libs {
		infos, err := lib.Devices()
		if err != nil {
			missing = append(missing, err)
		}
		for _, i := range infos {
			if s.opt.Offer(i) {
				d := &device{info: i, lib: lib, at: i.Index, from: from}
				d.info.Index = len(s.devices)
				s.devices = append(s.devices, d)
			}
		}
	}
	if len(s.devices) == 0 {
		return errors.Join(append([]error{errors.New("gpud: this node has no device to offer")}, missing...)...)
	}
	return nil
}

// Addrs are the addresses that the server listens at, with the ports that it got.
func (s *Server) Addrs() []string { return slices.Clone(s.listening) }

// Devices describes what is offered.
func (s *Server) Devices() []driver.Info { return s.infos() }

// Serve answers until ctx ends and then hangs up: see Leave for a gentler end.
func (s *Server) Serve(ctx context.Context) error {
	var starter sync.WaitGroup
	starter.Go(s.workerThread)
	for _, l := range s.listeners {
		s.wg.Go(func() { s.accept(l) })
	}
	select {
	case <-ctx.Done():
	case <-s.closed:
	}
	s.end("the server is shutting down")
	s.wg.Wait()
	close(s.starts)
	starter.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.usages.close()
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
	err := errors.Join(wire.LimitSilence(c, s.opt.Silence), c.SetDeadline(time.Now().Add(wire.HandshakeTime)))
	var p wire.Purpose
	var cl *client
	visits := false
	if err == nil {
		p, err = wire.Admit(c, s.keys, func(p wire.Purpose) bool {
			if p == wire.ForDevice {
				cl = s.reserve()
				return cl == nil
			}
			visits = s.others.try()
			return !visits
		})
	}
	proven()
	if visits {
		defer s.others.give()
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
	case wire.ForPeer:
		s.servePeer(c)
	case wire.ForMemory:
		s.serveMemory(c)
	}
}

// serveClient serves a client to its end, here or in a worker.
func (s *Server) serveClient(c net.Conn, cl *client) {
	if s.opt.InProcess {
		cl.session = newSession(&s.service, c, cl.identity, cl.usage, cl)
		cl.session.run()
		return
	}
	s.serveInWorker(c, cl)
}

func (s *Server) refuse(c net.Conn, err error) {
	if errors.Is(err, wire.ErrRefused) {
		s.counts.refused.Add(1)
	} else {
		s.counts.strangers.Add(1)
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

// Drain refuses new clients from now on.
func (s *Server) Drain() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.draining = true
}

// Leave refuses new clients, waits until all have gone or ctx ends, and makes
// Serve return. Clients that are still there are told.
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
	var told sync.WaitGroup // one that does not read keeps no other from being told
	for _, l := range s.backends() {
		told.Go(func() { l.dismiss(why) })
	}
	told.Wait()
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

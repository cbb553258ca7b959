package gpud

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/holdfast-hpc/holdfast/gpustate/internal/wire"
)

// listen makes a listener at one of the addresses.
func (s *Server) listen(addr string) error {
	network, address, err := wire.SplitAddr(addr)
	if err != nil {
		return fmt.Errorf("gpud: %w", err)
	}
	if network == "unix" {
		if err := clearSocket(address); err != nil {
			return err
		}
	} else {
		address = ofInterface(address)
	}
	was := syscall.Umask(0o177) // a socket is its user's alone from the beginning
	l, err := (&net.ListenConfig{KeepAliveConfig: wire.KeepAlive}).Listen(context.Background(), network, address)
	syscall.Umask(was)
	if unknown, ok := errors.AsType[*net.DNSError](err); ok {
		return fmt.Errorf("gpud: listen at %s: %s is neither a network interface of this node nor a host: %w", addr,
			unknown.Name, unknown)
	}
	if err != nil {
		return fmt.Errorf("gpud: %w", err)
	}
	s.listeners = append(s.listeners, l)
	if network == "unix" {
		s.listening = append(s.listening, "unix:"+address)
		return os.Chmod(address, 0o600)
	}
	s.listening = append(s.listening, l.Addr().String())
	return nil
}

// ofInterface puts the address of a network interface in place of its name: IPv4,
// or IPv6 if there is no other.
func ofInterface(address string) string {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return address // Listen reports its faults
	}
	i, err := net.InterfaceByName(host)
	if err != nil {
		return address
	}
	addrs, _ := i.Addrs()
	if ip := preferred(addrs); ip != nil {
		return net.JoinHostPort(ip.String(), port)
	}
	return address
}

// preferred returns the first IPv4 address, otherwise the first IPv6 address that is
// not good on one link only; nil if there is none.
func preferred(addrs []net.Addr) (ip net.IP) {
	for _, a := range addrs {
		n, ok := a.(*net.IPNet)
		switch {
		case !ok:
		case n.IP.To4() != nil:
			return n.IP
		case ip == nil && !n.IP.IsLinkLocalUnicast():
			ip = n.IP
		}
	}
	return ip
}

// SocketDir makes the directory of a socket in a place where everybody can make files, or checks an existing one: this
// user owns it, and no other user can enter it. Otherwise the error names the remedy.
func SocketDir(dir string) error {
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return fmt.Errorf("gpud: %w", err)
	}
	info, err := os.Lstat(dir)
	if err != nil {
		return fmt.Errorf("gpud: %w", err)
	}
	s, ok := info.Sys().(*syscall.Stat_t)
	switch {
	case !info.IsDir():
		return fmt.Errorf("gpud: %s is not a directory, and may belong to another user: give another address with "+
			"--listen", dir)
	case ok && int(s.Uid) != os.Geteuid():
		return fmt.Errorf("gpud: directory %s belongs to user %d: give another address with --listen", dir, s.Uid)
	case info.Mode().Perm()&0o077 != 0:
		return fmt.Errorf("gpud: other users can enter directory %s: chmod 700 %[1]s", dir)
	}
	return nil
}

// clearSocket removes the socket of a server that is gone.
func clearSocket(path string) error {
	info, err := os.Lstat(path)
	if err != nil {
		return nil // Listen reports the path's faults
	}
	if info.Mode().Type() != os.ModeSocket {
		return fmt.Errorf("gpud: %s exists and is not a socket", path)
	}
	c, err := net.Dial("unix", path)
	switch {
	case err == nil:
		_ = c.Close()
		return fmt.Errorf("gpud: another server listens at %s", path)
	case !errors.Is(err, syscall.ECONNREFUSED): // no server listens
		return fmt.Errorf("gpud: is another server at %s? %w", path, err)
	}
	return os.Remove(path)
}

// accept serves the connections of one listener until it closes.
func (s *Server) accept(l net.Listener) {
	for {
		c, err := l.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // out of descriptors: those of others come free
			s.opt.Logger.Warn("accept", "err", err)
			select {
			case <-s.closed:
				return
			case <-time.After(100 * time.Millisecond):
			}
			continue
		}
		leave, dropped := s.unauthenticated.add(c)
		if dropped { // one that has said nothing for long
			s.counts.handshakeFailures.Add(1)
		}
		s.wg.Go(func() { s.serveConn(c, leave) })
	}
}

// unauthenticated holds the connections that have not proven a key yet. When it is full the
// oldest one of the host that has most there is dropped: connections without the key keep out
// one another, not clients.
type unauthenticated struct {
	mu     sync.Mutex // guards the fields below
	most   int
	order  []*waiting // oldest first
	byHost map[string]int
}

type waiting struct {
	conn net.Conn
	host string
}

func newUnauthenticated(most int) *unauthenticated {
	return &unauthenticated{most: most, byHost: map[string]int{}}
}

// add takes a connection in; leave is called when it has proven the key, or ended.
// dropped reports whether another one had to go.
func (l *unauthenticated) add(c net.Conn) (leave func(), dropped bool) {
	host := ""
	if a, ok := c.RemoteAddr().(*net.TCPAddr); ok {
		host = a.IP.String()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if dropped = len(l.order) >= l.most; dropped { // the oldest one of the host that has most
		out := l.order[0]
		for _, w := range l.order {
			if l.byHost[w.host] > l.byHost[out.host] {
				out = w
			}
		}
		_ = out.conn.Close() // its handshake ends with an error
		l.remove(out)
	}
	w := &waiting{c, host}
	l.order = append(l.order, w)
	l.byHost[host]++
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.remove(w)
	}, dropped
}

// remove takes a connection out if it is there; mu is held.
func (l *unauthenticated) remove(w *waiting) {
	i := slices.Index(l.order, w)
	if i < 0 {
		return
	}
	l.order = slices.Delete(l.order, i, i+1)
	if l.byHost[w.host]--; l.byHost[w.host] == 0 {
		delete(l.byHost, w.host)
	}
}

package control

import (
	"context"
	"fmt"
	"net"
	"time"

	"github.com/holdfast-hpc/holdfast/internal/handshake"
)

// DialClient connects a process that is no rank to the Plane of a rank, at its address, as AcceptClient returns it
// there. Errors match ErrUnauthenticated if the key is not the job's. The caller closes the connection.
func DialClient(ctx context.Context, addr string, rank int, key Key) (net.Conn, error) {
	d := net.Dialer{Timeout: handshake.Limit}
	c, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("control: connect to the job at %s: %w", addr, err)
	}
	stop := context.AfterFunc(ctx, func() { _ = c.Close() }) // ends the handshake
	defer stop()
	if err := greet(c, key, clientRank, rank, purposeClient); err != nil {
		_ = c.Close() // of no use
		return nil, fmt.Errorf("control: connect to the job at %s: %w", addr, err)
	}
	return c, nil
}

// AcceptClient waits for a process that DialClient connects. The caller closes the connection. A client that is not
// accepted within five seconds is dropped.
func (p *Plane) AcceptClient(ctx context.Context) (net.Conn, error) {
	select {
	case c := <-p.clients:
		return c, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-p.ctx.Done():
		return nil, ErrClosed
	}
}

// clientPatience is how long a client may wait to be accepted.
const clientPatience = 5 * time.Second

// clientAlive detects within seconds that the machine of a silent client has died.
var clientAlive = net.KeepAliveConfig{Enable: true, Idle: time.Second, Interval: time.Second, Count: 4}

func (p *Plane) offerClient(c net.Conn) {
	if t, ok := c.(*net.TCPConn); ok {
		_ = t.SetKeepAliveConfig(clientAlive) // else it takes the system's time
	}
	select {
	case p.clients <- tracked{c, p}:
	case <-time.After(clientPatience): // no goroutine serves clients on this rank
		p.forget(c)
	case <-p.ctx.Done():
		p.forget(c)
	}
}

package gpud

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"github.com/holdfast-hpc/holdfast/gpustate/internal/wire"
)

// order is an admin's question or order.
type order struct {
	Do     string `json:"do"` // "status" or "move"
	Client uint64 `json:"client,omitempty"`
	To     string `json:"to,omitempty"` // a selection, see gpustate.ParseSelect
}

// maxOrder bounds the frame of an order.
const maxOrder = 1 << 20

// orderTime is how long a connection with orders may say nothing.
const orderTime = 5 * time.Minute

// serveAdmin answers one order after the other, of clients that may not move programs
// questions alone.
func (s *Server) serveAdmin(conn net.Conn, moves bool) {
	in, out := bufio.NewReader(conn), wire.NewSender(conn, s.opt.patience)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() { // orders end with the server
		select {
		case <-s.closed:
			cancel()
		case <-ctx.Done():
		}
	}()
	for {
		if conn.SetReadDeadline(time.Now().Add(orderTime)) != nil {
			return
		}
		op, body, err := wire.ReadSmallFrame(in, maxOrder)
		if err != nil || op != wire.OpOrder {
			return
		}
		var m wire.Order
		var o order
		if err := errors.Join(wire.Decode(body, &m), json.Unmarshal(m.JSON, &o)); err != nil {
			return
		}
		var result any
		if err = errMoveKey; moves || o.Do == "status" {
			result, err = s.carryOut(ctx, o)
		}
		reply := &wire.Reply{Req: m.Req, Err: err}
		if err == nil {
			reply.Body, reply.Err = json.Marshal(result)
		}
		if out.Now(reply) != nil {
			return
		}
	}
}

func (s *Server) carryOut(ctx context.Context, o order) (any, error) {
	switch o.Do {
	case "status":
		return s.status(), nil
	case "move":
		return s.move(ctx, o.Client, o.To)
	}
	return nil, fmt.Errorf("this server does not know order %q", o.Do)
}

// Admin is a connection that asks and commands a server from outside. Its calls are local; one goroutine makes them at
// a time. The server ends a connection that has asked for nothing for five minutes.
type Admin struct {
	addr string
	conn net.Conn
	in   *bufio.Reader
	out  *wire.Sender
}

// errMoveKey answers a client that orders moves with the clients' key.
var errMoveKey = errors.New("moving programs needs the server's other key, gpud-move.key")

// DialAdmin connects to the server at addr, "unix:PATH" or "HOST:PORT", to ask it and to have programs moved.
// moveKeyFile holds the key for that, see MoveKeyFile. The caller closes the Admin. It waits at most five seconds for
// the connection and five for the handshake, or until ctx ends while it connects. With the clients' key the error
// matches gpustate.ErrKey and names the other key.
func DialAdmin(ctx context.Context, addr, moveKeyFile string) (*Admin, error) {
	a, err := dialAdmin(ctx, addr, moveKeyFile, wire.ForAdmin)
	var unreachable *net.OpError
	if errors.Is(err, wire.ErrKey) || errors.Is(err, os.ErrNotExist) && !errors.As(err, &unreachable) {
		err = fmt.Errorf("%w: moving programs needs the server's other key, which gpud makes beside the clients' "+
			"key: gpud-move.key beside gpud.key", err)
	}
	return a, err
}

// DialStatus is DialAdmin with the key for using devices. That key is enough to ask for the server's state; the server
// moves no program for it.
func DialStatus(ctx context.Context, addr, keyFile string) (*Admin, error) {
	return dialAdmin(ctx, addr, keyFile, wire.ForStatus)
}

func dialAdmin(ctx context.Context, addr, keyFile string, p wire.Purpose) (*Admin, error) {
	key, err := wire.ReadKey(keyFile)
	if err != nil {
		return nil, err
	}
	c, err := wire.Dial(ctx, addr, key, p)
	if err != nil {
		return nil, err
	}
	return &Admin{addr: addr, conn: c, in: bufio.NewReader(c), out: wire.NewSender(c, wire.HandshakeTime)}, nil
}

// Close ends the connection. A call that waits for an answer fails. Close may be called by another goroutine.
func (a *Admin) Close() error { return a.conn.Close() }

func (a *Admin) do(ctx context.Context, o order, result any) error {
	stop := context.AfterFunc(ctx, func() { _ = a.conn.Close() })
	defer stop()
	err := a.exchange(o, result)
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		return &wire.ServerError{Server: a.addr, Op: o.Do + " on", Err: err}
	}
	return nil
}

func (a *Admin) exchange(o order, result any) error {
	text, err := json.Marshal(o)
	if err != nil {
		return err
	}
	if err := a.out.Now(&wire.Order{Req: 1, JSON: text}); err != nil {
		return err
	}
	op, body, _, err := wire.ReadFrame(a.in, nil)
	if err != nil {
		return err
	}
	var reply wire.Reply
	if err := wire.Decode(body, &reply); err != nil || op != wire.OpReply {
		return errors.Join(wire.ErrProtocol, err)
	}
	if reply.Err != nil {
		return reply.Err
	}
	return json.Unmarshal(reply.Body, result)
}

// Status asks for the server's state: one message and its answer. When ctx ends first, the error matches its cause, and
// the Admin can only be closed.
func (a *Admin) Status(ctx context.Context) (st Status, err error) {
	err = a.do(ctx, order{Do: "status"}, &st)
	return st, err
}

// Move has a client moved to a device, by a selection that gpustate.ParseSelect reads. client is a ClientStatus.ID. It
// returns when the client has moved or has not; the program continues in both cases. It takes as long as the move, see
// gpustate.Device.MigrateTo. When ctx ends first, the program may still move, and the Admin can only be closed.
func (a *Admin) Move(ctx context.Context, client uint64, to string) (m Moved, err error) {
	err = a.do(ctx, order{Do: "move", Client: client, To: to}, &m)
	return m, err
}

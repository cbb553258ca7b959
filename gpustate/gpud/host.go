package gpud

import (
	"log/slog"
	"net"
	"time"

	"github.com/holdfast-hpc/holdfast/gpustate/internal/driver"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/wire"
)

// device is one that is offered.
type device struct {
	info driver.Info // Index is the place among those that are offered
	lib  driver.Driver
	at   int // index of the driver
	from int // place of lib in Options.libs
}

// host is what clients are served with. A server has one; so has each worker, for
// its only client.
type host struct {
	name     string
	addrs    []string // by which other servers reach the server
	quota    int64
	patience time.Duration
	frozen   time.Duration // a client that says nothing for so long is dropped, 0: never
	trusts   bool          // sources and options of programs
	key      wire.Key
	devices  []*device
	seats    *seats
	log      *slog.Logger
}

// infos describes what is offered.
func (h *host) infos() []driver.Info {
	var list []driver.Info
	for _, d := range h.devices {
		list = append(list, d.info)
	}
	return list
}

// pass is what a client is known by to its server.
type pass struct {
	ID    uint64
	Token [32]byte // by which its memory finds it
}

// front is what serving a client tells the server.
type front interface {
	// opened lets a client in that has chosen its device.
	opened(who wire.Open) error
	// moved takes in how a move went that the server asked for.
	moved(m wire.Moved)
}

// link is how a server reaches who serves a client: itself, or a worker.
type link interface {
	// dismiss tells the client why it is dropped, and drops it.
	dismiss(why string)
	// order asks the client to move.
	order(m *wire.Move) error
	// share takes memory of the client through a connection of its own.
	share(c *net.UnixConn)
	// give sends another server the bytes behind a ticket.
	give(c net.Conn, m *wire.Fetch) error
}

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

// service is what clients are served with. A server has one; so has each worker, for
// its only client.
type service struct {
	name     string
	addrs    []string // by which other servers reach the server
	quota    int64
	patience time.Duration
	frozen   time.Duration // a client that says nothing for so long is dropped, 0: never
	trusts   bool          // sources and options of programs
	key      wire.Key
	devices  []*device
	usages   *usages
	log      *slog.Logger
}

// infos describes what is offered.
func (s *service) infos() []driver.Info {
	var list []driver.Info
	for _, d := range s.devices {
		list = append(list, d.info)
	}
	return list
}

// identity is what a client is known by to its server.
type identity struct {
	ID    uint64
	Token [32]byte // by which its memory finds it
}

// frontend is what a session tells the server.
type frontend interface {
	// opened lets a client stay that has chosen its device.
	opened(who wire.Open) error
	// moved takes in how a move went that the server asked for.
	moved(m wire.Moved)
}

// backend is how a server reaches a session: in this process, or through a worker.
type backend interface {
	// dismiss tells the client why it is dropped, and drops it.
	dismiss(why string)
	// order asks the client to move.
	order(m *wire.Move) error
	// share takes memory of the client through a connection of its own.
	share(c *net.UnixConn)
	// give sends another server the bytes behind a ticket.
	give(c net.Conn, m *wire.Fetch) error
}

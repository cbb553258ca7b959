package session

import (
	"log/slog"
	"time"

	"github.com/holdfast-hpc/holdfast/gpustate/gpud/internal/usage"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/driver"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/wire"
	"github.com/holdfast-hpc/holdfast/internal/random"
)

// Device is one that is offered.
type Device struct {
	Info driver.Info // Index is the place among those that are offered
	From int         // place of its driver in drivers.All
	At   int         // index of the driver
}

// Service has the devices and limits for clients. A server has one, and sends it to each worker, for its only client.
type Service struct {
	Name     string
	Quota    int64
	Patience time.Duration
	Frozen   time.Duration // a client that is silent for longer is dropped, 0: never
	Trusts   bool          // sources and options of programs
	Devices  []Device
	Usages   *usage.Table `json:"-"`
	Log      *slog.Logger `json:"-"`
}

// Infos describes the offered devices.
func (s *Service) Infos() []driver.Info {
	var list []driver.Info
	for _, d := range s.Devices {
		list = append(list, d.Info)
	}
	return list
}

// Identity identifies a client to its server.
type Identity struct {
	ID    uint64
	Token [32]byte // by which its memory finds it
}

// NewIdentity makes the identity of client id.
func NewIdentity(id uint64) (p Identity) {
	p.ID = id
	random.Fill(p.Token[:])
	return p
}

// Frontend has the reports of a session to the server.
type Frontend interface {
	// Opened lets a client stay that has chosen its device.
	Opened(who wire.Open) error
	// Moved takes in how a move went that the server asked for.
	Moved(m wire.Moved)
}

package control

import (
	"cmp"
	"fmt"
	"log/slog"
	"net"
	"time"

	"github.com/holdfast-hpc/holdfast/internal/handshake"
)

// Key is the secret of one job. Rank 0 makes it and MPI carries it to the
// others.
type Key = handshake.Key

// DefaultPeerTimeout is longer than a switch takes to find another path: a job of days must not end because of it.
const DefaultPeerTimeout = 15 * time.Second

// Options describe a Plane. Rank, Size and Key are required.
type Options struct {
	Rank, Size int
	Key        Key

	// Interface is a network interface ("eth0") or an address ("10.0.0.3") to
	// listen on, Fastest or Common.
	Interface string
	// Heartbeat is the time between signs of life to neighbours; 0 means 250 ms, or a
	// quarter of PeerTimeout if that is less.
	Heartbeat time.Duration
	// PeerTimeout is the silence after which a neighbour is lost; 0 means DefaultPeerTimeout.
	// A connection that breaks does not wait for it.
	PeerTimeout time.Duration
	Logger      *slog.Logger // nil discards
}

func (o *Options) validate() error {
	if o.Size < 1 || o.Rank < 0 || o.Rank >= o.Size {
		return fmt.Errorf("control: rank %d is not in 0..%d", o.Rank, o.Size-1)
	}
	o.PeerTimeout = cmp.Or(o.PeerTimeout, DefaultPeerTimeout)
	o.Heartbeat = cmp.Or(o.Heartbeat, min(250*time.Millisecond, o.PeerTimeout/4))
	if o.PeerTimeout < 2*o.Heartbeat {
		return fmt.Errorf("control: peer timeout %v is less than two heartbeats of %v", o.PeerTimeout, o.Heartbeat)
	}
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	return nil
}

// interfaceError reports that no address to listen on was found.
type interfaceError struct {
	Interface string
	Have      []string
	Err       error
}

func (e *interfaceError) Error() string {
	return fmt.Sprintf("control: no address on interface %q; set control.interface to one of %v", e.Interface, e.Have)
}

func (e *interfaceError) Unwrap() error { return e.Err }

// usable returns an address of i, IPv4 first: link-local IPv6 needs a zone that
// means nothing on another node.
func usable(i net.Interface) net.IP {
	addrs, err := i.Addrs()
	if err != nil {
		return nil
	}
	var six net.IP
	for _, a := range addrs {
		n, ok := a.(*net.IPNet)
		switch {
		case !ok || n.IP.IsLinkLocalUnicast():
		case n.IP.To4() != nil:
			return n.IP
		case six == nil:
			six = n.IP
		}
	}
	return six
}

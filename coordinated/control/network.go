package control

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Network is an interface of this node and the address to listen on.
type Network struct {
	Name string // of the interface, "ib0"; an address, if the user named one
	Kind string // one of the kinds below
	IP   net.IP
}

// The kinds of networks.
const (
	KindInfiniBand = "InfiniBand" // and Omni-Path: all that runs IP over InfiniBand's interface
	KindSlingshot  = "Slingshot"
	KindEthernet   = "Ethernet" // and all that looks so
	KindLoopback   = "loopback"
	KindNamed      = "as set" // by an address
)

// String returns the name and the kind.
func (n Network) String() string { return fmt.Sprintf("%s (%s)", n.Name, n.Kind) }

// Fast reports whether it is a network that messages of programs use, beside which the nodes have a
// slower one for their management.
func (n Network) Fast() bool { return n.Kind == KindInfiniBand || n.Kind == KindSlingshot }

// Which of this node's networks FindNetwork looks for.
const (
	Fastest = ""          // the fast one if there is one, else as Common
	Common  = "-ethernet" // the network that nodes without a fast one also have: the first that is up
)

// FindNetwork finds the address to listen on. name is an interface ("eth0"), an address ("10.0.0.3"), Fastest or
// Common. If only the loopback device is up, the result is that device. It reads the system's interfaces and sends
// nothing.
func FindNetwork(name string) (Network, error) {
	if ip := net.ParseIP(name); ip != nil {
		if ip.IsLoopback() {
			return Network{name, KindLoopback, ip}, nil
		}
		return Network{name, KindNamed, ip}, nil
	}
	have, err := networks()
	if err != nil {
		return Network{}, &interfaceError{Interface: name, Err: err}
	}
	return choose(have, name)
}

// nic is an interface as far as the choice needs it.
type nic struct {
	Network
	flags net.Flags
}

func networks() ([]nic, error) {
	ifaces, err := net.Interfaces()
	if err != nil {
		return nil, err
	}
	have := make([]nic, 0, len(ifaces))
	for _, i := range ifaces {
		have = append(have, nic{Network{i.Name, kindOf(i), usable(i)}, i.Flags})
	}
	return have, nil
}

// choose takes the named interface, or the best of those that are up and have an address.
func choose(have []nic, name string) (Network, error) {
	if name != Fastest && name != Common {
		at := slices.IndexFunc(have, func(n nic) bool {
			return n.Name == name && n.flags&net.FlagUp != 0 && n.IP != nil
		})
		if at < 0 {
			e := &interfaceError{Interface: name}
			for _, n := range have {
				e.Have = append(e.Have, n.Name)
			}
			return Network{}, e
		}
		return have[at].Network, nil
	}
	best, most := Network{"lo", KindLoopback, net.IPv4(127, 0, 0, 1)}, 0
	for _, n := range have {
		if w := n.worth(name == Fastest); w > most { // of equal ones the first, on each node alike
			best, most = n.Network, w
		}
	}
	return best, nil
}

// worth orders interfaces; 0 is of no use.
func (n *nic) worth(fastFirst bool) int {
	const linked = net.FlagUp | net.FlagRunning
	switch {
	case n.IP == nil || n.flags&net.FlagUp == 0 || n.flags&net.FlagLoopback != 0:
		return 0
	case n.flags&linked != linked: // no cable, or a bridge without anything behind it
		return 1
	case n.flags&net.FlagPointToPoint != 0: // a tunnel
		return 2
	case !n.Fast():
		return 4
	case fastFirst:
		return 5
	}
	return 3
}

// kindOf recognises an interface by its type in the kernel, and Slingshot, which looks like Ethernet, by the name that
// its software gives it.
func kindOf(i net.Interface) string {
	const infiniBand = "32" // ARPHRD_INFINIBAND
	kind, err := os.ReadFile(filepath.Join("/sys/class/net", i.Name, "type"))
	switch {
	case i.Flags&net.FlagLoopback != 0:
		return KindLoopback
	case err == nil && strings.TrimSpace(string(kind)) == infiniBand:
		return KindInfiniBand
	case strings.HasPrefix(i.Name, "hsn"):
		return KindSlingshot
	}
	return KindEthernet
}

package control

import (
	"errors"
	"net"
	"testing"
)

func TestChooseNetwork(t *testing.T) {
	const up = net.FlagUp | net.FlagRunning
	ip := net.IPv4(10, 0, 0, 1)
	lo := nic{Network{"lo", KindLoopback, net.IPv4(127, 0, 0, 1)}, up | net.FlagLoopback}
	eth0, eth1 := nic{Network{"eth0", KindEthernet, ip}, up}, nic{Network{"eth1", KindEthernet, ip}, up}
	ib0, hsn0 := nic{Network{"ib0", KindInfiniBand, ip}, up}, nic{Network{"hsn0", KindSlingshot, ip}, up}
	bare := nic{Network{"ib0", KindInfiniBand, nil}, up}
	unplugged := nic{Network{"ib0", KindInfiniBand, ip}, net.FlagUp}
	bridge := nic{Network{"docker0", KindEthernet, ip}, net.FlagUp | net.FlagBroadcast}
	tunnel := nic{Network{"tun0", KindEthernet, ip}, up | net.FlagPointToPoint}
	down := nic{Network{"eth0", KindEthernet, ip}, net.FlagBroadcast}
	for _, c := range []struct {
		what         string
		have         []nic
		fast, common string
	}{
		{"nothing", nil, "lo", "lo"},
		{"loopback alone", []nic{lo}, "lo", "lo"},
		{"one", []nic{lo, eth0}, "eth0", "eth0"},
		{"the first of two", []nic{lo, eth0, eth1}, "eth0", "eth0"},
		{"InfiniBand over management", []nic{lo, eth0, ib0}, "ib0", "eth0"},
		{"Slingshot over management", []nic{lo, eth0, hsn0}, "hsn0", "eth0"},
		{"InfiniBand without an address", []nic{lo, eth0, bare}, "eth0", "eth0"},
		{"InfiniBand without a cable", []nic{lo, eth0, unplugged}, "eth0", "eth0"},
		{"nothing else", []nic{lo, ib0}, "ib0", "ib0"},
		{"an empty bridge first", []nic{lo, bridge, eth1}, "eth1", "eth1"},
		{"a tunnel first", []nic{lo, tunnel, eth1}, "eth1", "eth1"},
		{"one that is down", []nic{lo, down, eth1}, "eth1", "eth1"},
	} {
		for name, want := range map[string]string{Fastest: c.fast, Common: c.common} {
			if got, err := choose(c.have, name); err != nil || got.Name != want {
				t.Errorf("%s, %q: got %v, %v, want %s", c.what, name, got, err, want)
			}
		}
	}
	if got, err := choose([]nic{lo, eth0, ib0}, "eth0"); err != nil || got.Name != "eth0" {
		t.Errorf("by name: got %v, %v", got, err)
	}
	var none *interfaceError
	if _, err := choose([]nic{lo, down}, "eth0"); !errors.As(err, &none) || len(none.Have) != 2 {
		t.Errorf("by the name of one that is down: got %v", err)
	}
	if got, err := FindNetwork("10.1.2.3"); err != nil || got.IP.String() != "10.1.2.3" {
		t.Errorf("an address: got %v, %v", got, err)
	}
}

package wire

import (
	"errors"
	"fmt"
	"net"

	"github.com/holdfast-hpc/holdfast/internal/handshake"
)

// Version is the version of the protocol. Both sides must have the same.
const Version = 8

// Conditions of a connection that did not come about.
var (
	// ErrKey: the two sides have different keys.
	ErrKey = handshake.ErrKey
	// ErrNoServer: the other end is no server of devices.
	ErrNoServer = errors.New("the process that answers is not holdfast gpud")
	// ErrRefused: the server takes no more clients.
	ErrRefused = handshake.ErrRefused
)

// VersionError is a server that speaks another version of the protocol.
type VersionError = handshake.VersionError

// Key is the secret that clients and servers share.
type Key = handshake.Key

// Keys are those of a server. The key Use allows its holder to use the devices. The key Move allows moving programs,
// and so pointing them to other servers.
type Keys struct{ Use, Move Key }

// of returns the key that a purpose takes.
func (k Keys) of(p Purpose) Key {
	if p == ForAdmin {
		return k.Move
	}
	return k.Use
}

// Purpose is the purpose of a connection.
type Purpose byte

// The purposes.
const (
	ForDevice Purpose = 1 // a client of a device
	ForAdmin  Purpose = 2 // questions and orders about the server, with the key for moving programs
	ForMemory Purpose = 3 // memory that a client of a device shares, through a Unix socket
	ForStatus Purpose = 4 // questions about the server
)

// HandshakeTime bounds a handshake.
const HandshakeTime = handshake.Limit

// protocol is that of a server of devices. A client claims its purpose.
var protocol = handshake.Protocol{Magic: "HFGPUD\r\n", Version: Version, Claim: 1}

// Greet is the client's side of the handshake. It sets no deadline.
func Greet(c net.Conn, k Key, p Purpose) error {
	err := protocol.Greet(c, k, []byte{byte(p)})
	if errors.Is(err, handshake.ErrOther) {
		return ErrNoServer
	}
	return err
}

// Admit returns the server's side of the handshake. refuse decides on a client that
// has proven itself. It sets no deadline.
func Admit(c net.Conn, keys Keys, refuse func(Purpose) bool) (Purpose, error) {
	var p Purpose
	err := protocol.Admit(c, func(claim []byte) Key { p = Purpose(claim[0]); return keys.of(p) },
		func([]byte) error {
			switch {
			case p < ForDevice || p > ForStatus:
				return fmt.Errorf("%w: purpose %d", ErrProtocol, p)
			case refuse(p):
				return ErrRefused
			}
			return nil
		})
	return p, err
}

package wire

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"time"
)

// Version is the version of the protocol. Both sides must have the same.
const Version = 6

// Conditions of a connection that did not come about.
var (
	// ErrKey: the two sides have different keys.
	ErrKey = errors.New("the server has a different key")
	// ErrNoServer: what answers is no server of devices.
	ErrNoServer = errors.New("the process that answers is not holdfast gpud")
	// ErrRefused: the server takes no more clients.
	ErrRefused = errors.New("the server takes no new clients")
)

// VersionError is a server that speaks another version of the protocol.
type VersionError struct{ Server, Client uint32 }

// Error gives both versions.
func (e *VersionError) Error() string {
	return fmt.Sprintf("the server uses protocol version %d, this program version %d: use the same release on both "+
		"sides",
		e.Server, e.Client)
}

// keyBytes is the size of a key.
const keyBytes = 32

// Key is the secret that clients and servers share.
type Key [keyBytes]byte

// Keys are those of a server. Who knows Use can use its devices; who knows Move can
// move programs, and so point them to other servers.
type Keys struct{ Use, Move Key }

// of is the key that a purpose takes.
func (k Keys) of(p Purpose) Key {
	if p == ForAdmin {
		return k.Move
	}
	return k.Use
}

// Purpose says what a connection is for.
type Purpose byte

// The purposes.
const (
	ForDevice Purpose = 1 // a client of a device
	ForAdmin  Purpose = 2 // questions and orders about the server, with the key for moving programs
	ForPeer   Purpose = 3 // another server that fetches an object's bytes
	ForMemory Purpose = 4 // memory that a client of a device shares, through a Unix socket
	ForStatus Purpose = 5 // questions about the server
)

// The handshake has records of fixed sizes:
//
//	server -> client  8 bytes magic, 4 bytes version, 32 bytes nonce
//	client -> server  4 bytes version, 1 byte purpose, 32 bytes nonce, 32 bytes proof
//	server -> client  1 byte answer, 32 bytes proof
//
// A proof is HMAC-SHA256 under the key of a direction byte, both nonces and the
// purpose. The server's proof is zero unless the answer is "welcome".
const (
	magic      = "HFGPUD\r\n"
	nonceBytes = 32
	helloBytes = len(magic) + 4 + nonceBytes
	proofBytes = sha256.Size
	greetBytes = 4 + 1 + nonceBytes + proofBytes

	answerWelcome = 0
	answerKey     = 1
	answerVersion = 2
	answerRefused = 3

	// HandshakeTime bounds a handshake.
	HandshakeTime = 5 * time.Second
)

func proof(k Key, dir byte, serverNonce, clientNonce []byte, p Purpose) []byte {
	h := hmac.New(sha256.New, k[:])
	h.Write([]byte{dir})
	h.Write(serverNonce)
	h.Write(clientNonce)
	h.Write([]byte{byte(p)})
	return h.Sum(nil)
}

// Greet is the client's side of the handshake. It sets no deadline.
func Greet(c net.Conn, k Key, p Purpose) error {
	var hello [helloBytes]byte
	if _, err := io.ReadFull(c, hello[:]); err != nil {
		if errors.Is(err, io.ErrUnexpectedEOF) {
			return ErrNoServer
		}
		return fmt.Errorf("read the server's greeting: %w", err)
	}
	if string(hello[:len(magic)]) != magic {
		return ErrNoServer
	}
	theirs := hello[len(magic)+4:]
	greet := binary.LittleEndian.AppendUint32(nil, Version)
	greet = append(greet, byte(p))
	var ours [nonceBytes]byte
	if _, err := rand.Read(ours[:]); err != nil {
		return fmt.Errorf("make a nonce: %w", err)
	}
	greet = append(greet, ours[:]...)
	greet = append(greet, proof(k, 'c', theirs, ours[:], p)...)
	if v := binary.LittleEndian.Uint32(hello[len(magic):]); v != Version {
		_, _ = c.Write(greet) // so that the server can count us
		return &VersionError{Server: v, Client: Version}
	}
	if _, err := c.Write(greet); err != nil {
		return fmt.Errorf("send the proof: %w", err)
	}
	var answer [1 + proofBytes]byte
	if _, err := io.ReadFull(c, answer[:]); err != nil {
		return fmt.Errorf("read the server's answer: %w", err)
	}
	switch answer[0] {
	case answerWelcome:
	case answerKey:
		return ErrKey
	case answerRefused:
		return ErrRefused
	default:
		return ErrNoServer
	}
	if !hmac.Equal(answer[1:], proof(k, 's', theirs, ours[:], p)) {
		return ErrKey
	}
	return nil
}

// Admit is the server's side of the handshake. refuse decides on a client that
// has proven itself. It sets no deadline.
func Admit(c net.Conn, keys Keys, refuse func(Purpose) bool) (Purpose, error) {
	hello := append([]byte(magic), 0, 0, 0, 0)
	binary.LittleEndian.PutUint32(hello[len(magic):], Version)
	var ours [nonceBytes]byte
	if _, err := rand.Read(ours[:]); err != nil {
		return 0, fmt.Errorf("make a nonce: %w", err)
	}
	if _, err := c.Write(append(hello, ours[:]...)); err != nil {
		return 0, err
	}
	var greet [greetBytes]byte
	if _, err := io.ReadFull(c, greet[:]); err != nil {
		return 0, err
	}
	answer := make([]byte, 1+proofBytes)
	p, theirs := Purpose(greet[4]), greet[5:5+nonceBytes]
	k := keys.of(p)
	var err error
	switch v := binary.LittleEndian.Uint32(greet[:]); {
	case v != Version:
		answer[0], err = answerVersion, &VersionError{Server: Version, Client: v}
	case !hmac.Equal(greet[5+nonceBytes:], proof(k, 'c', ours[:], theirs, p)):
		answer[0], err = answerKey, ErrKey
	case p < ForDevice || p > ForStatus:
		answer[0], err = answerVersion, fmt.Errorf("%w: purpose %d", ErrProtocol, p)
	case refuse(p):
		answer[0], err = answerRefused, ErrRefused
	default:
		copy(answer[1:], proof(k, 's', ours[:], theirs, p))
	}
	if _, werr := c.Write(answer); err == nil {
		err = werr
	}
	return p, err
}

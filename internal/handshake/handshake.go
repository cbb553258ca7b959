// Package handshake lets the two ends of a connection prove to each other that they have the same key, before either
// believes anything else of the other.
//
// The records have fixed sizes, so that nothing is parsed before it is proven:
//
//	server -> client  8 bytes magic, 4 bytes version, 32 bytes nonce
//	client -> server  4 bytes version, the claim, 32 bytes nonce, 32 bytes proof
//	server -> client  1 byte answer, 32 bytes proof
//
// A proof is HMAC-SHA256 under the key of a direction byte, both nonces, the claim, and the server's name if it has
// one. The server's proof is zero unless the answer is "welcome". Integers are little-endian.
//
// At a Unix socket the kernel identifies the other end: Peer.
package handshake

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/holdfast-hpc/holdfast/internal/random"
)

// Limit bounds a handshake. Callers set the deadlines.
const Limit = 5 * time.Second

// KeyBytes is the size of a key.
const KeyBytes = 32

// Key is the secret that both ends have.
type Key [KeyBytes]byte

// NewKey returns a random key.
func NewKey() (k Key) {
	random.Fill(k[:])
	return k
}

// Conditions of a connection that did not come about.
var (
	// ErrKey: the two ends have different keys.
	ErrKey = errors.New("the server has a different key")
	// ErrOther: the server does not speak the protocol.
	ErrOther = errors.New("the process that answers speaks another protocol")
	// ErrRefused: the server takes no more clients.
	ErrRefused = errors.New("the server takes no new clients")
)

// VersionError is a server that speaks another version of the protocol.
type VersionError struct{ Server, Client uint32 }

// Error gives both versions.
func (e *VersionError) Error() string {
	return fmt.Sprintf("the server uses protocol version %d, this program version %d: use the same release on both "+
		"sides", e.Server, e.Client)
}

// Protocol describes a protocol whose two ends prove themselves.
type Protocol struct {
	Magic   string // 8 bytes
	Version uint32
	Claim   int    // size of a client's claim about itself, in bytes
	Server  []byte // the name of the server that the client means; not sent
}

const (
	nonceBytes = 32
	proofBytes = sha256.Size
)

// answers are the meanings of the server's answer to the client; 2 is also for an impossible claim.
var answers = [...]error{0: nil, 1: ErrKey, 2: ErrOther, 3: ErrRefused}

// proof returns the proof of an end with the key, computed from the messages so far.
func (p *Protocol) proof(k Key, dir byte, server, client, claim []byte) []byte {
	h := hmac.New(sha256.New, k[:])
	h.Write(slices.Concat([]byte{dir}, server, client, claim, p.Server))
	return h.Sum(nil)
}

// Greet is the client's side: it makes a claim of p.Claim bytes.
func (p *Protocol) Greet(c io.ReadWriter, k Key, claim []byte) error {
	hello := make([]byte, len(p.Magic)+4+nonceBytes)
	if _, err := io.ReadFull(c, hello); errors.Is(err, io.ErrUnexpectedEOF) {
		return ErrOther
	} else if err != nil {
		return fmt.Errorf("read the server's greeting: %w", err)
	}
	magic, rest := string(hello[:len(p.Magic)]), hello[len(p.Magic):]
	if magic != p.Magic {
		return ErrOther
	}
	version, theirs, ours := binary.LittleEndian.Uint32(rest), rest[4:], NewKey()
	greet := binary.LittleEndian.AppendUint32(nil, p.Version)
	_, err := c.Write(slices.Concat(greet, claim, ours[:], p.proof(k, 'c', theirs, ours[:], claim)))
	switch {
	case version != p.Version: // the record is sent all the same, so that the server can count us
		return &VersionError{Server: version, Client: p.Version}
	case err != nil:
		return fmt.Errorf("send the proof: %w", err)
	}
	var answer [1 + proofBytes]byte
	if _, err := io.ReadFull(c, answer[:]); err != nil {
		return fmt.Errorf("read the server's answer: %w", err)
	}
	if int(answer[0]) >= len(answers) {
		return ErrOther
	}
	if err = answers[answer[0]]; err == nil && !hmac.Equal(answer[1:], p.proof(k, 's', theirs, ours[:], claim)) {
		return ErrKey
	}
	return err
}

// Admit is the server's side. keyOf gives the key for a claim, and accept decides on one that is proven: its error
// keeps the client out.
func (p *Protocol) Admit(c io.ReadWriter, keyOf func(claim []byte) Key, accept func(claim []byte) error) error {
	ours := NewKey()
	hello := binary.LittleEndian.AppendUint32([]byte(p.Magic), p.Version)
	if _, err := c.Write(append(hello, ours[:]...)); err != nil {
		return fmt.Errorf("send the greeting: %w", err)
	}
	greet := make([]byte, 4+p.Claim+nonceBytes+proofBytes)
	if _, err := io.ReadFull(c, greet); err != nil {
		return fmt.Errorf("read the proof: %w", err)
	}
	version, claim, rest := binary.LittleEndian.Uint32(greet), greet[4:4+p.Claim], greet[4+p.Claim:]
	theirs, proven := rest[:nonceBytes], rest[nonceBytes:]
	k, answer := keyOf(claim), make([]byte, 1+proofBytes)
	var err error
	switch {
	case version != p.Version:
		err = &VersionError{Server: p.Version, Client: version}
	case !hmac.Equal(proven, p.proof(k, 'c', ours[:], theirs, claim)):
		err = ErrKey
	default:
		err = accept(claim)
	}
	answer[0] = 2
	if i := slices.IndexFunc(answers[:], func(e error) bool { return errors.Is(err, e) }); i >= 0 {
		answer[0] = byte(i)
	}
	if err == nil {
		copy(answer[1:], p.proof(k, 's', ours[:], theirs, claim))
	}
	if _, werr := c.Write(answer); err == nil {
		err = werr
	}
	return err
}

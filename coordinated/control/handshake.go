package control

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

// ErrUnauthenticated marks a connection whose other side does not know the key
// of the job.
var ErrUnauthenticated = errors.New("the peer does not have the job's key")

// The handshake has fixed sizes, so nothing is parsed before it is proven:
//
//	listener -> dialler  32 bytes nonce
//	dialler -> listener  4 bytes rank, 1 byte purpose, 32 bytes nonce, 32 bytes proof
//	listener -> dialler  32 bytes proof
//
// A proof is HMAC-SHA256 under the job's key of a direction byte, both nonces,
// the dialler's rank, the listener's rank and the purpose.
const (
	nonceBytes       = 32
	helloBytes       = 4 + 1 + nonceBytes + sha256.Size
	handshakeTimeout = 5 * time.Second
)

// purpose says what a connection is for.
type purpose byte

const (
	purposeMessages purpose = 1 // frames, dialler to listener only
	purposeStream   purpose = 2 // bytes both ways, for whoever accepts streams
	purposeClient   purpose = 3 // bytes both ways, with a process that is no rank
)

// clientRank stands for the rank of a process that has none.
const clientRank = 1<<32 - 1

func proof(k Key, dir byte, listenerNonce, diallerNonce []byte, dialler, listener int, p purpose) []byte {
	h := hmac.New(sha256.New, k[:])
	h.Write([]byte{dir})
	h.Write(listenerNonce)
	h.Write(diallerNonce)
	h.Write(binary.LittleEndian.AppendUint32(nil, uint32(dialler)))
	h.Write(binary.LittleEndian.AppendUint32(nil, uint32(listener)))
	h.Write([]byte{byte(p)})
	return h.Sum(nil)
}

func plausible(rank, size int, p purpose) bool {
	switch p {
	case purposeMessages, purposeStream:
		return rank < size
	case purposeClient:
		return rank == clientRank
	}
	return false
}

// greet proves ourselves to the listener of rank to, and checks its proof.
func greet(c net.Conn, k Key, self, to int, p purpose) error {
	if err := c.SetDeadline(time.Now().Add(handshakeTimeout)); err != nil {
		return err
	}
	var theirs, ours [nonceBytes]byte
	if _, err := io.ReadFull(c, theirs[:]); err != nil {
		return fmt.Errorf("read nonce: %w", err)
	}
	if _, err := rand.Read(ours[:]); err != nil {
		return fmt.Errorf("make nonce: %w", err)
	}
	hello := binary.LittleEndian.AppendUint32(nil, uint32(self))
	hello = append(hello, byte(p))
	hello = append(hello, ours[:]...)
	hello = append(hello, proof(k, 'd', theirs[:], ours[:], self, to, p)...)
	if _, err := c.Write(hello); err != nil {
		return fmt.Errorf("send proof: %w", err)
	}
	var answer [sha256.Size]byte
	if _, err := io.ReadFull(c, answer[:]); err != nil {
		return fmt.Errorf("read proof: %w", err)
	}
	if !hmac.Equal(answer[:], proof(k, 'l', theirs[:], ours[:], self, to, p)) {
		return ErrUnauthenticated
	}
	return c.SetDeadline(time.Time{})
}

// admit checks who has dialled; nothing but the fixed record is read from a
// peer that cannot prove itself.
func admit(c net.Conn, k Key, self, size int) (rank int, p purpose, err error) {
	if err := c.SetDeadline(time.Now().Add(handshakeTimeout)); err != nil {
		return 0, 0, err
	}
	var ours [nonceBytes]byte
	if _, err := rand.Read(ours[:]); err != nil {
		return 0, 0, fmt.Errorf("make nonce: %w", err)
	}
	if _, err := c.Write(ours[:]); err != nil {
		return 0, 0, fmt.Errorf("send nonce: %w", err)
	}
	var hello [helloBytes]byte
	if _, err := io.ReadFull(c, hello[:]); err != nil {
		return 0, 0, fmt.Errorf("read proof: %w", err)
	}
	rank = int(binary.LittleEndian.Uint32(hello[:4]))
	p = purpose(hello[4])
	theirs := hello[5 : 5+nonceBytes]
	if !hmac.Equal(hello[5+nonceBytes:], proof(k, 'd', ours[:], theirs, rank, self, p)) {
		return 0, 0, ErrUnauthenticated
	}
	if !plausible(rank, size, p) {
		return 0, 0, fmt.Errorf("rank %d of %d, purpose %d: %w", rank, size, p, ErrUnauthenticated)
	}
	if _, err := c.Write(proof(k, 'l', ours[:], theirs, rank, self, p)); err != nil {
		return 0, 0, fmt.Errorf("send proof: %w", err)
	}
	return rank, p, c.SetDeadline(time.Time{})
}

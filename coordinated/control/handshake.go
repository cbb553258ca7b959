package control

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/holdfast-hpc/holdfast/internal/handshake"
)

// ErrUnauthenticated marks a connection whose other side does not know the key
// of the job.
var ErrUnauthenticated = errors.New("the peer does not have the job's key")

// purpose is the use of a connection.
type purpose byte

const (
	purposeMessages purpose = 1 // frames, dialler to listener only
	purposeStream   purpose = 2 // bytes both ways, for whoever accepts streams
	purposeClient   purpose = 3 // bytes both ways, with a process that is no rank
)

// clientRank is the rank of a process that is none.
const clientRank = 1<<32 - 1

// protocol returns the protocol of the listener of a rank. A dialler claims 4 bytes rank and 1 byte purpose.
func protocol(rank int) *handshake.Protocol {
	return &handshake.Protocol{Magic: "HFCTRL\r\n", Version: 1, Claim: 4 + 1,
		Server: binary.LittleEndian.AppendUint32(nil, uint32(rank))}
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
	if err := c.SetDeadline(time.Now().Add(handshake.Limit)); err != nil {
		return err
	}
	claim := append(binary.LittleEndian.AppendUint32(nil, uint32(self)), byte(p))
	if err := protocol(to).Greet(c, k, claim); err != nil {
		return unauthenticated(err)
	}
	return c.SetDeadline(time.Time{})
}

// admit checks the dialling process.
func admit(c net.Conn, k Key, self, size int) (rank int, p purpose, err error) {
	if err := c.SetDeadline(time.Now().Add(handshake.Limit)); err != nil {
		return 0, 0, err
	}
	err = protocol(self).Admit(c, func([]byte) Key { return k }, func(claim []byte) error {
		rank, p = int(binary.LittleEndian.Uint32(claim)), purpose(claim[4])
		if !plausible(rank, size, p) {
			return fmt.Errorf("rank %d of %d, purpose %d: %w", rank, size, p, ErrUnauthenticated)
		}
		return nil
	})
	if err != nil {
		return 0, 0, unauthenticated(err)
	}
	return rank, p, c.SetDeadline(time.Time{})
}

func unauthenticated(err error) error {
	if errors.Is(err, handshake.ErrKey) {
		return ErrUnauthenticated
	}
	return err
}

// Package fake plays clients of the node daemon in tests: it makes their messages, as bytes.
package fake

import (
	"encoding/binary"

	"github.com/holdfast-hpc/holdfast/internal/codec"
	"github.com/holdfast-hpc/holdfast/internal/node/wire"
)

// Bytes returns a message of a client.
func Bytes(m *wire.Message) []byte { return wire.Bytes(m.Type, codec.Encode(m.Fields)) }

// Repair makes the header of a message right, except for its type: tests send errors in the body.
func Repair(b []byte) {
	t := wire.Type(binary.LittleEndian.Uint16(b[6:]))
	copy(b, wire.Bytes(t, b[wire.HeaderBytes:]))
}

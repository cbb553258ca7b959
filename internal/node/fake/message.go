// Package fake plays clients of the node daemon in tests: it makes their messages, as bytes.
package fake

import (
	"encoding/binary"

	"github.com/holdfast-hpc/holdfast/internal/node/wire"
)

// Bytes returns a message of a client.
func Bytes(m *wire.Message) []byte {
	le := binary.LittleEndian
	b := begin(m.Type)
	value := func(b []byte, s string) []byte { return append(le.AppendUint32(b, uint32(len(s))), s...) }
	text := func(b []byte) []byte { return value(b, m.Text) }
	picked := func(b []byte) []byte {
		for _, id := range m.Picked {
			b = le.AppendUint32(b, id)
		}
		return b
	}
	switch m.Type {
	case wire.TypeHello:
		b = le.AppendUint32(le.AppendUint32(le.AppendUint32(b, uint32(m.Rank)), uint32(m.Size)), m.Flags)
		b = value(value(text(b), m.Supervisor), m.Step)
	case wire.TypeProtect:
		b = le.AppendUint64(le.AppendUint32(le.AppendUint32(b, m.Array), m.Elem), m.Count)
		b = text(le.AppendUint32(b, m.Flags|m.Item<<wire.ProtectItem))
	case wire.TypeDeclare:
		b = appendDeclare(b, m)
	case wire.TypeUnprotect:
		b = le.AppendUint32(le.AppendUint32(b, m.Array), 0)
	case wire.TypePoint:
		b = le.AppendUint64(b, m.Count)
	case wire.TypeCheckpoint:
		again := uint32(0)
		if m.Again {
			again = 1
		}
		b = le.AppendUint32(le.AppendUint32(b, again), 0)
	case wire.TypeWait, wire.TypeHeld:
		b = text(le.AppendUint32(b, m.Flags))
	case wire.TypeSave, wire.TypeFind, wire.TypeBegin:
		b = le.AppendUint32(le.AppendUint64(b, uint64(m.Version)), m.Keep)
		b = picked(text(le.AppendUint32(b, howMany(m))))
	case wire.TypeRecover:
		b = picked(le.AppendUint32(le.AppendUint32(b, howMany(m)), 0))
	case wire.TypeMailed:
		b = text(le.AppendUint64(b, m.Count))
	case wire.TypeSignal:
		b = le.AppendUint32(le.AppendUint32(b, uint32(m.Signal)), 0)
	case wire.TypeExchanged, wire.TypeCopied, wire.TypeArrived:
		b = le.AppendUint32(le.AppendUint32(b, uint32(m.Code)), m.Flags|m.Array<<1)
	}
	return end(b)
}

// Repair makes the header of a message right, except for its type: tests send errors in the body.
func Repair(b []byte) {
	t := wire.Type(binary.LittleEndian.Uint16(b[6:]))
	copy(b, begin(t))
	end(b)
}

func howMany(m *wire.Message) uint32 {
	if m.All {
		return wire.All
	}
	return uint32(len(m.Picked))
}

func appendDeclare(b []byte, m *wire.Message) []byte {
	le := binary.LittleEndian
	for _, v := range []uint32{m.Array, m.Elem, m.Kind, m.Flags} {
		b = le.AppendUint32(b, v)
	}
	b = le.AppendUint64(b, m.Count)
	b = le.AppendUint32(le.AppendUint32(b, uint32(len(m.Dims))), uint32(len(m.Boxes)))
	b = append(le.AppendUint32(b, uint32(len(m.Text))), m.Text...)
	for _, n := range m.Dims {
		b = le.AppendUint64(b, uint64(n))
	}
	for _, box := range m.Boxes {
		for _, a := range box {
			for _, v := range []int64{a.Start, a.Count, a.Block, a.Stride} {
				b = le.AppendUint64(b, uint64(v))
			}
		}
	}
	return b
}

func begin(t wire.Type) []byte {
	le := binary.LittleEndian
	b := le.AppendUint16(le.AppendUint16(le.AppendUint32(nil, wire.Magic), wire.Version), uint16(t))
	return le.AppendUint64(b, 0) // length, set at the end, and zero
}

func end(b []byte) []byte {
	binary.LittleEndian.PutUint32(b[8:], uint32(len(b)))
	return b
}

package wire

import (
	"encoding/binary"

	"github.com/holdfast-hpc/holdfast/internal/units"
)

// Welcome needs the descriptors of flags page and points page.
func Welcome(checkpoint, stop uint64, flags uint32) []byte {
	le := binary.LittleEndian
	b := le.AppendUint64(le.AppendUint64(nil, checkpoint), stop)
	return Bytes(TypeWelcome, le.AppendUint32(le.AppendUint32(b, flags), PageBytes))
}

// Shadow announces how much memory of each device captures may use in the background; all ones: the client chooses.
func Shadow(bytes uint64) []byte {
	return Bytes(TypeShadow, binary.LittleEndian.AppendUint64(nil, bytes))
}

// Messages needs the descriptor of the page, which has the given size: the client counts its messages there.
func Messages(bytes uint64) []byte {
	return Bytes(TypeMessages, binary.LittleEndian.AppendUint64(nil, bytes))
}

// Mail requests one of MailCut, MailSave, MailTake, MailLoad and MailSync. MailTake and MailLoad need a descriptor of
// memory of the given size.
func Mail(what uint32, bytes uint64) []byte {
	le := binary.LittleEndian
	return Bytes(TypeMail, le.AppendUint64(le.AppendUint32(le.AppendUint32(nil, what), 0), bytes))
}

// Exchange needs the descriptor of (size+1)*n bytes.
func Exchange(n uint64) []byte {
	return Bytes(TypeExchange, binary.LittleEndian.AppendUint64(nil, n))
}

// Arena needs its descriptor. A sealed arena can only be mapped privately, to be read.
func Arena(id uint32, bytes uint64, sealed bool) []byte {
	le, flags := binary.LittleEndian, uint32(0)
	if sealed {
		flags = ArenaSealed
	}
	return Bytes(TypeArena, le.AppendUint64(le.AppendUint32(le.AppendUint32(nil, id), flags), bytes))
}

// Drop announces that an arena is no longer used.
func Drop(id uint32) []byte {
	le := binary.LittleEndian
	return Bytes(TypeDrop, le.AppendUint32(le.AppendUint32(nil, id), 0))
}

// Item is one copy between an array of the program and an arena.
type Item struct {
	Array, Arena  uint32
	Offset, Bytes uint64
	Late          bool // the bytes may come after COPIED
}

// Copy asks for copies to arenas, or with load from them; MostItems at most.
func Copy(load bool, items []Item) []byte {
	le := binary.LittleEndian
	way := uint32(0)
	if load {
		way = 1
	}
	b := le.AppendUint32(le.AppendUint32(nil, way), uint32(len(items)))
	for _, i := range items {
		array := i.Array
		if i.Late {
			array |= CopyLate
		}
		b = le.AppendUint32(le.AppendUint32(b, array), i.Arena)
		b = le.AppendUint64(le.AppendUint64(b, i.Offset), i.Bytes)
	}
	return Bytes(TypeCopy, b)
}

// Done ends a request.
func Done(code int32, value uint64) []byte {
	le := binary.LittleEndian
	return Bytes(TypeDone, le.AppendUint64(le.AppendUint32(le.AppendUint32(nil, uint32(code)), 0), value))
}

// mostText bounds an error's text for a client.
const mostText = 4000

// Error ends a request that has failed.
func Error(code int32, text string) []byte {
	le := binary.LittleEndian
	text = units.Cut(text, mostText)
	b := le.AppendUint32(le.AppendUint32(nil, uint32(code)), uint32(len(text)))
	return Bytes(TypeError, append(b, text...))
}

package wire

import (
	"encoding/binary"

	"github.com/holdfast-hpc/holdfast/internal/units"
)

// Welcome needs the descriptors of flags page and points page.
func Welcome(checkpoint, stop uint64, flags uint32) []byte {
	le := binary.LittleEndian
	b := le.AppendUint64(le.AppendUint64(begin(TypeWelcome), checkpoint), stop)
	return end(le.AppendUint32(le.AppendUint32(b, flags), PageBytes))
}

// Shadow announces how much memory of each device captures may use in the background; all ones: the client chooses.
func Shadow(bytes uint64) []byte {
	return end(binary.LittleEndian.AppendUint64(begin(TypeShadow), bytes))
}

// Messages needs the descriptor of the page, which has the given size: the client counts its messages there.
func Messages(bytes uint64) []byte {
	return end(binary.LittleEndian.AppendUint64(begin(TypeMessages), bytes))
}

// Mail requests one of MailCut, MailSave, MailTake, MailLoad and MailSync. MailTake and MailLoad need a descriptor of
// memory of the given size.
func Mail(what uint32, bytes uint64) []byte {
	le := binary.LittleEndian
	return end(le.AppendUint64(le.AppendUint32(le.AppendUint32(begin(TypeMail), what), 0), bytes))
}

// Exchange needs the descriptor of (size+1)*n bytes.
func Exchange(n uint64) []byte {
	return end(binary.LittleEndian.AppendUint64(begin(TypeExchange), n))
}

// Arena needs its descriptor. A sealed arena can only be mapped privately, to be read.
func Arena(id uint32, bytes uint64, sealed bool) []byte {
	le, flags := binary.LittleEndian, uint32(0)
	if sealed {
		flags = ArenaSealed
	}
	return end(le.AppendUint64(le.AppendUint32(le.AppendUint32(begin(TypeArena), id), flags), bytes))
}

// Drop announces that an arena is no longer used.
func Drop(id uint32) []byte {
	le := binary.LittleEndian
	return end(le.AppendUint32(le.AppendUint32(begin(TypeDrop), id), 0))
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
	b := le.AppendUint32(le.AppendUint32(begin(TypeCopy), way), uint32(len(items)))
	for _, i := range items {
		array := i.Array
		if i.Late {
			array |= CopyLate
		}
		b = le.AppendUint32(le.AppendUint32(b, array), i.Arena)
		b = le.AppendUint64(le.AppendUint64(b, i.Offset), i.Bytes)
	}
	return end(b)
}

// Done ends a request.
func Done(code int32, value uint64) []byte {
	le := binary.LittleEndian
	return end(le.AppendUint64(le.AppendUint32(le.AppendUint32(begin(TypeDone), uint32(code)), 0), value))
}

// mostText bounds an error's text for a client.
const mostText = 4000

// Error ends a request that has failed.
func Error(code int32, text string) []byte {
	le := binary.LittleEndian
	text = units.Cut(text, mostText)
	b := le.AppendUint32(le.AppendUint32(begin(TypeError), uint32(code)), uint32(len(text)))
	return end(append(b, text...))
}

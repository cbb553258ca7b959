package endpoint

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
)

// RecordVersion is the version of the records that are written. Older ones stay readable: 1 has no Receives.
const RecordVersion = 2

// Record is what a checkpoint keeps of the messages of a rank whose program is in another process: the section
// mailbox of FORMAT.md.
type Record struct {
	Version, Rank, Size int
	Comms               []RecordComm
	Boxes               []RecordMessage
	Receives            []PendingReceive `json:",omitempty"`
}

// RecordComm is a communicator that lived at the checkpoint.
type RecordComm struct {
	Name     string
	How      RecordCreation
	Members  []int // world ranks
	Children int   // communicators made on it
}

// RecordCreation says how a communicator was made.
type RecordCreation struct{ Parent, Op string }

// RecordMessage is a drained message. The bytes of all follow the description in order.
type RecordMessage struct {
	Comm        string
	Source, Tag int
	Bytes       int
	Cut         bool   `json:",omitempty"` // the beginning of a message that was too long for its receive
	Receive     int    `json:",omitempty"` // number in Receives of the one that had it, from 1
	Data        []byte `json:"-"`
}

// Encode writes the length of the description, the description and the bytes of the messages.
func (r *Record) Encode() ([]byte, error) {
	for i := range r.Boxes {
		r.Boxes[i].Bytes = len(r.Boxes[i].Data)
	}
	head, err := json.Marshal(r)
	if err != nil {
		return nil, err
	}
	out := append(binary.LittleEndian.AppendUint64(nil, uint64(len(head))), head...)
	for i := range r.Boxes {
		out = append(out, r.Boxes[i].Data...)
	}
	return out, nil
}

// DecodeRecord is the reverse of Encode. It trusts no length, and refuses the record of another rank or world.
func DecodeRecord(b []byte, rank, size int) (*Record, error) {
	r := &Record{}
	n := uint64(len(b))
	if n < 8 || binary.LittleEndian.Uint64(b) > n-8 {
		return nil, fmt.Errorf("messages of the checkpoint: truncated record of %d bytes", len(b))
	}
	head, data := b[8:8+binary.LittleEndian.Uint64(b)], b[8+binary.LittleEndian.Uint64(b):]
	if err := json.Unmarshal(head, r); err != nil {
		return nil, fmt.Errorf("messages of the checkpoint: %w", err)
	}
	switch {
	case r.Version < 1 || r.Version > RecordVersion:
		return nil, fmt.Errorf("messages of the checkpoint have version %d, this holdfast reads up to %d; use a newer "+
			"one", r.Version, RecordVersion)
	case r.Rank != rank || r.Size != size:
		return nil, fmt.Errorf("the checkpoint is of rank %d of %d, this is rank %d of %d; start as many ranks as then",
			r.Rank, r.Size, rank, size)
	}
	for i := range r.Boxes {
		m := &r.Boxes[i]
		if m.Bytes < 0 || m.Bytes > len(data) || m.Receive < 0 || m.Receive > len(r.Receives) {
			return nil, fmt.Errorf("messages of the checkpoint: message %d of %d bytes, %d are left", i, m.Bytes,
				len(data))
		}
		m.Data, data = bytes.Clone(data[:m.Bytes]), data[m.Bytes:]
	}
	if len(data) != 0 {
		return nil, fmt.Errorf("messages of the checkpoint: %d bytes too many", len(data))
	}
	return r, nil
}

package endpoint

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"iter"
)

// Versions of records. Older ones than the newest stay readable: 1 has no Receives. A record without Requests is
// written as PlainVersion, and one with them as RecordVersion.
const (
	PlainVersion  = 2
	RecordVersion = 3
)

// Record has the messages of a rank whose program is in another process, for a checkpoint: the section mailbox of
// FORMAT.md.
type Record struct {
	Version, Rank, Size int
	Comms               []RecordComm
	Boxes               []RecordMessage
	Receives            []PendingReceive `json:",omitempty"`
	Requests            []RecordRequest  `json:",omitempty"`
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

// RecordRequest is a request that the program protects. Without a call it is one that is over.
type RecordRequest struct {
	Name, Comm, Call string
	Peer, Tag        int    // as posted; -1 for any, Peer -2 for no rank
	Receive          int    // number in Receives, from 1; 0: it waits for no message
	Started          bool   // it was under way
	Array            string // that the buffer is a part of
	Offset           int64  // of the buffer in it, in bytes
	Count            int64
	Type             string // as docs/internals/MESSAGES.md writes datatypes
}

// Encode is EncodeRecord of r, with the version that it needs.
func (r *Record) Encode() ([]byte, error) {
	r.Version = PlainVersion
	if len(r.Requests) > 0 {
		r.Version = RecordVersion
	}
	return EncodeRecord(r, r.messages)
}

func (r *Record) messages(yield func(*RecordMessage) bool) {
	for i := range r.Boxes {
		if !yield(&r.Boxes[i]) {
			return
		}
	}
}

// EncodeRecord writes the length of a description, the description, and the bytes of the messages that it holds.
func EncodeRecord(description any, messages iter.Seq[*RecordMessage]) ([]byte, error) {
	n := 0
	for m := range messages {
		m.Bytes = len(m.Data)
		n += m.Bytes
	}
	head, err := json.Marshal(description)
	if err != nil {
		return nil, err
	}
	out := make([]byte, 0, 8+len(head)+n)
	out = append(binary.LittleEndian.AppendUint64(out, uint64(len(head))), head...)
	for m := range messages {
		out = append(out, m.Data...)
	}
	return out, nil
}

// TakeDescription reads the description of a record, and returns the bytes behind it. It trusts no length.
func TakeDescription(b []byte, description any) (rest []byte, err error) {
	if len(b) < 8 {
		return nil, fmt.Errorf("truncated: %d bytes", len(b))
	}
	n := binary.LittleEndian.Uint64(b)
	if n > uint64(len(b)-8) {
		return nil, fmt.Errorf("description of %d bytes in a record of %d", n, len(b))
	}
	return b[8+n:], json.Unmarshal(b[8:8+n], description)
}

// TakeMessages gives the messages of a description their bytes, which must be all of b. It trusts no length.
func TakeMessages(b []byte, messages iter.Seq[*RecordMessage]) error {
	i := 0
	for m := range messages {
		if m.Bytes < 0 || m.Bytes > len(b) {
			return fmt.Errorf("message %d of %d bytes, %d are left", i, m.Bytes, len(b))
		}
		m.Data, b = bytes.Clone(b[:m.Bytes]), b[m.Bytes:]
		i++
	}
	if len(b) != 0 {
		return fmt.Errorf("%d bytes too many", len(b))
	}
	return nil
}

// DecodeRecord reads the result of Encode. It refuses the record of another rank or world.
func DecodeRecord(b []byte, rank, size int) (*Record, error) {
	r := &Record{}
	rest, err := TakeDescription(b, r)
	if err != nil {
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
	if err := TakeMessages(rest, r.messages); err != nil {
		return nil, fmt.Errorf("messages of the checkpoint: %w", err)
	}
	for i, m := range r.Boxes {
		if m.Receive < 0 || m.Receive > len(r.Receives) {
			return nil, fmt.Errorf("messages of the checkpoint: message %d of receive %d, there are %d", i, m.Receive,
				len(r.Receives))
		}
	}
	for _, q := range r.Requests {
		if q.Receive < 0 || q.Receive > len(r.Receives) {
			return nil, fmt.Errorf("messages of the checkpoint: request %q of receive %d, there are %d", q.Name,
				q.Receive, len(r.Receives))
		}
	}
	return r, nil
}

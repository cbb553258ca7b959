package program

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"

	"github.com/holdfast-hpc/holdfast/internal/endpoint"
)

// NoMessages is the message layer of a rank that has none in flight at its points. The
// record that it saves is that of a rank without messages and communicators.
func NoMessages(rank, size int) endpoint.Endpoint { return noMessages{rank, size} }

type noMessages struct{ rank, size int }

// record is what FORMAT.md calls the description of a mailbox.
type record struct {
	Version, Rank, Size int
	Comms, Boxes        []json.RawMessage
}

const recordVersion = 2

func (noMessages) Activity() endpoint.Activity                 { return endpoint.Activity{} }
func (noMessages) Sent(int) uint64                             { return 0 }
func (noMessages) Received(int) uint64                         { return 0 }
func (noMessages) Polling() (endpoint.Wait, uint64)            { return endpoint.Wait{}, 0 }
func (noMessages) Collectives() []endpoint.Collective          { return nil }
func (noMessages) Concurrent() bool                            { return false }
func (noMessages) LimitMailbox(int64)                          {}
func (noMessages) GPUAware(bool)                               {}
func (noMessages) Mailbox() (int, int64)                       { return 0, 0 }
func (noMessages) DrainSome() (int, error)                     { return 0, nil }
func (noMessages) Hold() (resume func())                       { return func() {} }
func (noMessages) OpenEpochs() error                           { return nil }
func (noMessages) PreferQuiet(bool)                            {}
func (noMessages) Ended(bool)                                  {}
func (noMessages) NoteSites()                                  {}
func (noMessages) UnpostedReceives() []endpoint.PendingReceive { return nil }

// Drain has nothing to wait for.
func (noMessages) Drain(ctx context.Context) (endpoint.DrainStats, error) {
	return endpoint.DrainStats{}, ctx.Err()
}

// SaveMailbox returns a record of no message.
func (m noMessages) SaveMailbox() ([]byte, error) {
	head, err := json.Marshal(record{Version: recordVersion, Rank: m.rank, Size: m.size})
	if err != nil {
		return nil, err
	}
	return append(binary.LittleEndian.AppendUint64(nil, uint64(len(head))), head...), nil
}

// StageMailbox refuses a record of another rank or world, and one with messages: this
// program could not receive them.
func (m noMessages) StageMailbox(b []byte) (apply func(), err error) {
	var r record
	n := len(b) - 8
	if n < 0 || binary.LittleEndian.Uint64(b) > uint64(n) {
		return nil, fmt.Errorf("messages of the checkpoint: truncated record of %d bytes", len(b))
	}
	if err := json.Unmarshal(b[8:8+binary.LittleEndian.Uint64(b)], &r); err != nil {
		return nil, fmt.Errorf("messages of the checkpoint: %w", err)
	}
	switch {
	case r.Version < 1 || r.Version > recordVersion:
		return nil, fmt.Errorf("messages of the checkpoint have version %d, this holdfast reads up to %d; use a newer "+
			"one", r.Version, recordVersion)
	case r.Rank != m.rank || r.Size != m.size:
		return nil, fmt.Errorf("the checkpoint is of rank %d of %d, this is rank %d of %d; start as many ranks as then",
			r.Rank, r.Size, m.rank, m.size)
	case len(r.Boxes) > 0:
		return nil, fmt.Errorf("the checkpoint holds %d messages in flight, and this program has no way to receive "+
			"them; restart the program that wrote it", len(r.Boxes))
	}
	return func() {}, nil
}

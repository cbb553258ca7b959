package program

import (
	"context"
	"fmt"

	"github.com/holdfast-hpc/holdfast/internal/endpoint"
)

// NoMessages returns the message layer of a rank that has none in flight at its points. The
// record that it saves is that of a rank without messages and communicators.
func NoMessages(rank, size int) endpoint.Endpoint { return noMessages{rank, size} }

type noMessages struct{ rank, size int }

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
	return (&endpoint.Record{Rank: m.rank, Size: m.size}).Encode()
}

// StageMailbox refuses a record of another rank or world, and one with messages: this
// program could not receive them.
func (m noMessages) StageMailbox(b []byte) (apply func(), err error) {
	r, err := endpoint.DecodeRecord(b, m.rank, m.size)
	if err == nil && len(r.Boxes) > 0 {
		err = fmt.Errorf("the checkpoint holds %d messages in flight, and this program has no way to receive them; "+
			"restart the program that wrote it, with libholdfast-mpi if it had that", len(r.Boxes))
	}
	return func() {}, err
}

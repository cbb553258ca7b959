package mpiwrap

import (
	"errors"
	"fmt"
)

// ErrMailboxFull: the messages in flight to a rank take more memory than may be used for
// them at a cut.
var ErrMailboxFull = errors.New("messages in flight take more memory than is allowed for them")

// LimitMailbox bounds the bytes of drained messages that wait for the program; 0 means no
// bound. A message that would go beyond stays in the network: Pump and Settle return an
// error that matches ErrMailboxFull, and the program may go on. From any goroutine.
func (e *Endpoint) LimitMailbox(bytes int64) { e.s.budget.Store(bytes) }

// room returns an error if the next message on c goes beyond the budget.
func (c *Comm) room() error {
	budget := c.st.budget.Load()
	if budget <= 0 {
		return nil
	}
	st, ok, err := c.st.drv.Iprobe(AnySource, AnyTag, c.h)
	if err != nil {
		return c.wrap("Pump", AnySource, AnyTag, err)
	}
	if !ok {
		return nil
	}
	_, have, _ := c.st.endpoint.mailboxSize()
	if have+int64(st.Bytes) <= budget {
		return nil
	}
	return &Error{Call: "Pump", Comm: c.name, Peer: int(st.Source), Tag: int(st.Tag), Err: ErrMailboxFull,
		Text: fmt.Sprintf("%d bytes wait already, this one has %d, and %d are allowed: place Points where less is in "+
			"flight, or raise max_mailbox", have, st.Bytes, budget)}
}

package peer

import (
	"context"
	"net"
)

// Transport carries bytes between the stores of a job's ranks, for the levels
// that keep redundancy on other nodes. Its connections are authenticated: who
// comes through is a rank of this job.
type Transport interface {
	// Dial opens a connection to the store of a rank. The caller closes it.
	Dial(ctx context.Context, rank int) (net.Conn, error)
	// Accept waits for a connection that another rank's store dialled. The
	// caller closes it. An error ends the accepting.
	Accept(ctx context.Context) (conn net.Conn, from int, err error)
}

package job

import (
	"bufio"
	"encoding/json"
	"errors"
	"net"
	"os"
	"sync"
	"time"
)

// line is a connection on which both sides send JSON, a line each.
type line struct {
	conn     net.Conn
	in       *bufio.Scanner
	first    []byte        // that was read to identify the caller; nil when it was taken
	patience time.Duration // of next
	mu       sync.Mutex    // guards writing
}

// longestLine bounds a line: the first report of a job names the node of each rank.
const longestLine = 64 << 20

func newLine(c net.Conn) *line {
	l := &line{conn: c}
	l.in = bufio.NewScanner(patientReader{l})
	l.in.Buffer(nil, longestLine)
	return l
}

// next returns the next line. It is valid up to the call that follows. Silence for
// longer than patience, and the end of the connection, are errors.
func (l *line) next(patience time.Duration) ([]byte, error) {
	if b := l.first; b != nil {
		l.first = nil
		return b, nil
	}
	l.patience = patience
	if !l.in.Scan() {
		return nil, errors.Join(l.in.Err(), net.ErrClosed)
	}
	return l.in.Bytes(), nil
}

// sendTime bounds sending a line to a peer that does not read.
const sendTime = 2 * time.Second

func (l *line) send(v any) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.conn.SetWriteDeadline(time.Now().Add(sendTime)); err != nil {
		return err
	}
	return json.NewEncoder(l.conn).Encode(v)
}

// Close hangs up; the other side goes on.
func (l *line) Close() error { return l.conn.Close() }

// patientReader reads bytes that come within the patience of next. Time in which this process itself stands still,
// because its job is suspended for one, is no silence of the other side: the wait is counted in pieces.
type patientReader struct{ l *line }

// pieces of the patience.
const pieces = 10

func (r patientReader) Read(b []byte) (n int, err error) {
	for range pieces {
		if err = r.l.conn.SetReadDeadline(time.Now().Add(r.l.patience / pieces)); err != nil {
			return 0, err
		}
		if n, err = r.l.conn.Read(b); n > 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
			return n, err
		}
	}
	return 0, err
}

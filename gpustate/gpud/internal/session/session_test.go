package session

import (
	"bytes"
	"errors"
	"io"
	"net"
	"strings"
	"testing"

	"github.com/holdfast-hpc/holdfast/gpustate/internal/driver"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/wire"
)

func ok(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// pipe is a connection that ends when its reading does.
type pipe struct{ net.Conn }

func (p pipe) CloseRead() error { return p.Close() }

// TestLastWord: a client that is dropped while something else is being sent to it
// is told why.
func TestLastWord(t *testing.T) {
	near, far := net.Pipe() // a write waits for its reader
	c := &Session{conn: pipe{near}, out: wire.NewSender(near, 0)}
	go func() { _ = c.out.Now(&wire.Beat{}) }()
	var first [1]byte
	_, err := far.Read(first[:])
	ok(t, err) // it is being sent
	go c.Dismiss("enough")
	rest, err := io.ReadAll(far)
	ok(t, err)
	got := append(first[:], rest...)
	if want := wire.Append(wire.Append(nil, &wire.Beat{}), &wire.Bye{Why: "enough"}); !bytes.Equal(got, want) {
		t.Errorf("the client got % x, want % x", got, want)
	}
}

// TestSources: the sources of all programs of a client are bounded together.
func TestSources(t *testing.T) {
	c := &Session{}
	ok(t, c.addSource(maxSources-10))
	if err := c.addSource(11); !errors.Is(err, errTooMany) {
		t.Errorf("got %v, want errTooMany", err)
	}
	c.dropSource(1)
	ok(t, c.addSource(11))
	long := &driver.BuildError{Log: strings.Repeat("x", 2*maxLogBytes)}
	if n := len(shortLog(long).(*driver.BuildError).Log); n > maxLogBytes+100 {
		t.Errorf("a log of %d bytes is sent", n)
	}
}

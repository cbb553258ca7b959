package session

import (
	"bytes"
	"errors"
	"io"
	"net"
	"strings"
	"testing"

	"github.com/holdfast-hpc/holdfast/gpustate/gpud/internal/usage"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/driver"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/fake"
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
// gets the reason.
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
	ok(t, c.addSource(-1))
	ok(t, c.addSource(11))
	long := &driver.BuildError{Log: strings.Repeat("x", 2*maxLogBytes)}
	if n := len(shortLog(long).(*driver.BuildError).Log); n > maxLogBytes+100 {
		t.Errorf("a log of %d bytes is sent", n)
	}
}

// TestNumbersAgain: a number that is released stands for nothing, and then for the object that is made under
// it next, even if the session has just found the one before.
func TestNumbersAgain(t *testing.T) {
	near, far := net.Pipe()
	defer far.Close()
	s := New(&Service{Usages: &usage.Table{}}, near, Identity{}, &usage.Usage{}, nil)
	lib := &fake.Library{}
	var err error
	if s.drv, err = lib.Open(0); err != nil {
		t.Fatal(err)
	}
	const id = 7
	other := uint64(id + len(s.recent)) // is remembered in the same place
	for round := range 3 {
		if _, err := object[*sampler](s, id, "sampler"); !errors.Is(err, wire.ErrProtocol) {
			t.Fatalf("round %d, before it is made: got %v, want ErrProtocol", round, err)
		}
		h, err := s.drv.CreateSampler(driver.SamplerDesc{})
		if err != nil {
			t.Fatal(err)
		}
		o := &sampler{h}
		if err := s.add(id, o); err != nil {
			t.Fatal(err)
		}
		for _, n := range []uint64{id, other, id} {
			got, err := object[*sampler](s, n, "sampler")
			if found := n == id; (err == nil) != found || found && got != o {
				t.Fatalf("round %d, number %d: got %p, %v", round, n, got, err)
			}
		}
		if _, err := object[*queue](s, id, "queue"); !errors.Is(err, wire.ErrProtocol) {
			t.Fatalf("a sampler taken for a queue: got %v, want ErrProtocol", err)
		}
		if err := s.doRelease(id); err != nil {
			t.Fatal(err)
		}
	}
}

// TestUnfinished: of what a queue has in flight its window counts, whatever the order in which commands are
// issued and complete.
func TestUnfinished(t *testing.T) {
	for _, c := range []struct {
		window int
		want   []int64 // after each change
	}{
		{0, []int64{1, 3, 13, 3, 5, 0}},
		{4, []int64{1, 3, 4, 3, 4, 0}},
		{100, []int64{1, 3, 13, 3, 5, 0}},
	} {
		own := &usage.Usage{}
		q := &queue{s: &Session{usage: usage.NewShare(nil, own, 0)}, desc: driver.QueueDesc{Window: c.window}}
		for i, change := range []int64{1, 2, 10, -10, 2, -5} {
			q.count(change)
			if got := own.Unfinished.Load(); got != c.want[i] {
				t.Errorf("window %d, step %d: %d unfinished, want %d", c.window, i, got, c.want[i])
			}
		}
	}
}

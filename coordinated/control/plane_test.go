package control

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/holdfast-hpc/holdfast/internal/handshake"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// mesh starts n planes that are all neighbours of each other and patient.
func mesh(t testing.TB, n int, change func(i int, o *Options)) []*Plane {
	t.Helper()
	key := handshake.NewKey()
	planes := make([]*Plane, n)
	addrs := make([]string, n)
	for i := range planes {
		opt := Options{Rank: i, Size: n, Key: key, Interface: "127.0.0.1", PeerTimeout: time.Minute}
		if change != nil {
			change(i, &opt)
		}
		p, err := Listen(opt)
		if err != nil {
			t.Fatal(err)
		}
		planes[i] = p
		t.Cleanup(func() { _ = planes[i].Close() })
		addrs[i] = planes[i].Addr()
	}
	errs := make(chan error, n)
	for i, p := range planes {
		go func() {
			var others []int
			for j := range n {
				if j != i {
					others = append(others, j)
				}
			}
			errs <- p.Start(t.Context(), addrs, others)
		}()
	}
	for range planes {
		if err := <-errs; err != nil {
			t.Fatal(err)
		}
	}
	return planes
}

func next(t *testing.T, p *Plane) Inbound {
	t.Helper()
	select {
	case m := <-p.Messages():
		return m
	case <-time.After(time.Minute):
		t.Fatal("no message within a minute")
		return Inbound{}
	}
}

func TestMessagesArriveInOrder(t *testing.T) {
	p := mesh(t, 2, nil)
	const n = 2000
	for i := range n {
		if err := p[1].Send(0, fmt.Appendf(nil, "%d", i)); err != nil {
			t.Fatal(err)
		}
	}
	for i := range n {
		if m := next(t, p[0]); m.From != 1 || string(m.Payload) != fmt.Sprint(i) {
			t.Fatalf("got %q from %d, want %d from 1", m.Payload, m.From, i)
		}
	}
}

func TestLargeMessage(t *testing.T) {
	p := mesh(t, 2, nil)
	want := bytes.Repeat([]byte("0123456789abcdef"), 1<<18)
	if err := p[0].Send(1, want); err != nil {
		t.Fatal(err)
	}
	if m := next(t, p[1]); !bytes.Equal(m.Payload, want) {
		t.Fatalf("got %d bytes, want %d", len(m.Payload), len(want))
	}
}

func TestGoodbyeIsNoLoss(t *testing.T) {
	p := mesh(t, 2, nil)
	if err := p[1].Send(0, []byte("last words")); err != nil {
		t.Fatal(err)
	}
	if err := p[1].Close(); err != nil {
		t.Fatal(err)
	}
	if m := next(t, p[0]); string(m.Payload) != "last words" {
		t.Fatalf("got %q", m.Payload)
	}
	if err := p[0].Close(); err != nil {
		t.Fatal(err)
	}
	select {
	case l := <-p[0].Lost():
		t.Fatalf("rank %d said goodbye and was reported lost: %v", l.Rank, l.Err)
	default:
	}
}

// TestBrokenConnection: a peer whose sockets close without a goodbye, as the
// kernel does for a killed process, is lost.
func TestBrokenConnection(t *testing.T) {
	p := mesh(t, 3, nil)
	p[2].mu.Lock()
	for c := range p[2].conns {
		_ = c.Close()
	}
	p[2].mu.Unlock()
	for _, i := range []int{0, 1} {
		select {
		case l := <-p[i].Lost():
			if l.Rank != 2 {
				t.Errorf("rank %d lost %d, want 2", i, l.Rank)
			}
		case <-time.After(time.Minute):
			t.Errorf("rank %d did not notice", i)
		}
	}
}

// TestSilence: a peer that keeps its connections but sends nothing, as a
// stopped process or a cut link does, is lost after PeerTimeout.
func TestSilence(t *testing.T) {
	p := mesh(t, 2, func(i int, o *Options) {
		o.Heartbeat, o.PeerTimeout = 50*time.Millisecond, 300*time.Millisecond
		if i == 1 {
			o.Heartbeat, o.PeerTimeout = time.Hour, 3*time.Hour // never beats
		}
	})
	select {
	case l := <-p[0].Lost():
		if l.Rank != 1 {
			t.Errorf("lost %d, want 1", l.Rank)
		}
	case <-time.After(time.Minute):
		t.Error("silence was not noticed")
	}
}

// TestStallInLook: a process that is stopped between the tick and the look at a neighbour has not heard it since, and
// starts counting again. One that was not stopped reports it.
func TestStallInLook(t *testing.T) {
	p := mesh(t, 2, func(_ int, o *Options) { o.Heartbeat, o.PeerTimeout = time.Hour, 2*time.Hour })
	talk(t, p)
	p[0].mu.Lock()
	in := p[0].in[1]
	p[0].mu.Unlock()
	silent := now() - int64(3*time.Hour)
	in.last.Store(silent)
	p[0].inspect(1, silent, false)
	if in.last.Load() == silent {
		t.Error("the time in which nobody could hear counts as silence")
	}
	in.last.Store(silent)
	p[0].inspect(1, now(), false)
	if l := <-p[0].Lost(); l.Rank != 1 || !strings.Contains(l.Err.Error(), "silent") {
		t.Errorf("got %+v, want the silence of rank 1", l)
	}
}

// TestUnknownConnections: connections without the key change nothing but the counter,
// while the ranks go on talking.
func TestUnknownConnections(t *testing.T) {
	const connections = 10000
	p := mesh(t, 2, nil)
	for i := range connections {
		if i%1000 == 0 {
			talk(t, p)
		}
		c, err := net.Dial("tcp", p[0].Addr())
		if err != nil {
			t.Fatal(err)
		}
		if i%2 == 0 {
			_, _ = c.Write(bytes.Repeat([]byte{byte(i)}, 1+i*7%400)) // the plane may have hung up already
		}
		_ = c.Close()
	}
	talk(t, p)
	for deadline := time.Now().Add(2 * time.Minute); p[0].dropped.Load() < connections; {
		if time.Now().After(deadline) {
			t.Fatalf("dropped %d, want %d", p[0].dropped.Load(), connections)
		}
		<-time.After(time.Millisecond)
	}
	select {
	case l := <-p[0].Lost():
		t.Errorf("rank %d was taken for lost: %v", l.Rank, l.Err)
	default:
	}
}

func talk(t *testing.T, p []*Plane) {
	t.Helper()
	if err := p[1].Send(0, []byte("still here")); err != nil {
		t.Fatal(err)
	}
	if m := next(t, p[0]); string(m.Payload) != "still here" {
		t.Fatalf("got %q", m.Payload)
	}
}

// TestIPv6 connects over the IPv6 loopback.
func TestIPv6(t *testing.T) {
	if l, err := net.Listen("tcp6", "[::1]:0"); err != nil {
		t.Skipf("this machine has no IPv6 loopback: %v", err)
	} else if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	talk(t, mesh(t, 2, func(_ int, o *Options) { o.Interface = "::1" }))
}

// BenchmarkIdle reports the share of a core, in percent, that a rank with eight
// neighbours takes when nothing is asked.
func BenchmarkIdle(b *testing.B) {
	const ranks = 9
	mesh(b, ranks, nil)
	var before, after syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &before) // cannot fail with these arguments
	begin := time.Now()
	for range b.N {
		time.Sleep(time.Second) // what is measured is the cost of doing nothing
	}
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &after)
	used := time.Duration(after.Utime.Nano() - before.Utime.Nano() + after.Stime.Nano() - before.Stime.Nano())
	b.ReportMetric(100*used.Seconds()/time.Since(begin).Seconds()/ranks, "%core/rank")
}

func TestWrongKey(t *testing.T) {
	p := mesh(t, 1, nil)
	other, err := Listen(Options{Rank: 1, Size: 2, Interface: "127.0.0.1"})
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	c, err := net.Dial("tcp", p[0].Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := greet(c, other.opt.Key, 0, 0, purposeMessages); err == nil {
		t.Fatal("a wrong key was admitted")
	}
	if _, err := c.Read(make([]byte, 1)); !errors.Is(err, io.EOF) && err == nil {
		t.Fatalf("the listener answered a wrong proof: %v", err)
	}
}

func TestStream(t *testing.T) {
	p := mesh(t, 2, nil)
	got := make(chan []byte, 1)
	go func() {
		s, err := p[1].Accept(context.Background())
		if err != nil {
			got <- nil
			return
		}
		defer s.Close()
		b, _ := io.ReadAll(s)
		got <- b
	}()
	c, err := p[0].Dial(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	want := bytes.Repeat([]byte("shard"), 100000)
	if _, err := c.Write(want); err != nil {
		t.Fatal(err)
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	if b := <-got; !bytes.Equal(b, want) {
		t.Fatalf("got %d bytes, want %d", len(b), len(want))
	}
}

// TestListenElsewhere: ranks that speak over loopback can be asked from another node.
func TestListenElsewhere(t *testing.T) {
	planes := mesh(t, 2, nil)
	addr, err := planes[0].ListenElsewhere()
	if err != nil {
		t.Fatal(err)
	}
	want, err := FindNetwork(Common)
	if err != nil {
		t.Fatal(err)
	}
	if host, _, err := net.SplitHostPort(addr); err != nil || host != want.IP.String() {
		t.Errorf("clients are sent to %s (%v), want an address of %v", addr, err, want)
	}
	go func() {
		c, err := planes[0].AcceptClient(t.Context())
		if err == nil {
			_, _ = c.Write([]byte("here"))
			_ = c.Close()
		}
	}()
	c, err := DialClient(t.Context(), addr, 0, planes[0].opt.Key)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if b, err := io.ReadAll(c); err != nil || string(b) != "here" {
		t.Errorf("got %q, %v", b, err)
	}
	if _, err := DialClient(t.Context(), addr, 0, Key{}); err == nil {
		t.Error("a client with another key was admitted")
	}
}

func TestBadOptions(t *testing.T) {
	for _, o := range []Options{{Rank: 2, Size: 2}, {Size: 0},
		{Size: 1, Heartbeat: time.Second, PeerTimeout: time.Second}} {
		if _, err := Listen(o); err == nil {
			t.Errorf("%+v was accepted", o)
		}
	}
	var ie *interfaceError
	if _, err := Listen(Options{Size: 1, Interface: "nosuch0"}); !errors.As(err, &ie) || len(ie.Have) == 0 {
		t.Errorf("got %v, want an interfaceError that lists what there is", err)
	}
}

func FuzzReadFrame(f *testing.F) {
	f.Add(appendFrame(nil, frameData, []byte("x")))
	f.Add(appendFrame(nil, frameHeartbeat, nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		kind, payload, err := readFrame(bytes.NewReader(b))
		if err == nil && !bytes.HasPrefix(b, appendFrame(nil, kind, payload)) {
			t.Fatalf("%x read as kind %d, %x", b, kind, payload)
		}
	})
}

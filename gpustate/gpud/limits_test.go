package gpud

import (
	"bufio"
	"bytes"
	"errors"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast-hpc/holdfast/gpustate/gpud/internal/session"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/driver"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/fake"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/wire"
	"github.com/holdfast-hpc/holdfast/internal/shm"
)

// replyTo reads until the answer to a request comes.
func replyTo(t *testing.T, in *bufio.Reader, req uint64) error {
	t.Helper()
	for {
		op, body, _, err := wire.ReadFrame(in, nil)
		ok(t, err)
		var reply wire.Reply
		if _ = wire.Decode(body, &reply); op == wire.OpReply && reply.Req == req {
			return reply.Err
		}
	}
}

// TestTooMuch: a client that makes queue after queue, or keeps a value of megabytes
// as an argument, is refused that and nothing else; others notice nothing.
func TestTooMuch(t *testing.T) {
	p := serve(t, Options{Listen: []string{"127.0.0.1:0"}})
	good := open(t, p.sel)
	c := raw(t, p)
	in := bufio.NewReader(c)
	say(t, c, &wire.Open{Req: 1, Index: 0})
	ok(t, replyTo(t, in, 1))
	for i := range uint64(session.MaxQueues) {
		say(t, c, &wire.CreateQueue{Req: 10 + i, ID: 10 + i})
	}
	ok(t, replyTo(t, in, 9+session.MaxQueues))
	say(t, c, &wire.CreateQueue{Req: 2, ID: 2})
	if err := replyTo(t, in, 2); err == nil || !strings.Contains(err.Error(), "queues") {
		t.Errorf("one more queue: got %v", err)
	}
	say(t, c, &wire.Release{ID: 10}, &wire.CreateQueue{Req: 3, ID: 3})
	ok(t, replyTo(t, in, 3)) // what is released counts no more
	say(t, c, &wire.Build{Req: 4, ID: 4, Desc: driver.ProgramDesc{OpenCL: "count"}})
	ok(t, replyTo(t, in, 4))
	say(t, c, &wire.CreateKernel{Req: 5, ID: 5, Program: 4, Name: "count"})
	ok(t, replyTo(t, in, 5))
	say(t, c, &wire.SetArg{Kernel: 5, Arg: wire.Arg{Kind: driver.ArgValue, Value: make([]byte, session.MaxArgBytes+1)}},
		&wire.Launch{Queue: 3, Kernel: 5, Grid: driver.Grid{Dims: 1, Global: [3]int{1, 1, 1}}},
		&wire.Finish{Req: 6, Queue: 3})
	if err := replyTo(t, in, 6); err == nil || !strings.Contains(err.Error(), "bytes of an argument") {
		t.Errorf("a huge argument: got %v", err)
	}
	ok(t, good.step())
	ok(t, good.check())
	ok(t, good.d.Close())
}

// TestEventsWithoutEnd: a client that begins events and completes none is dropped.
func TestEventsWithoutEnd(t *testing.T) {
	p := serve(t, Options{Listen: []string{"127.0.0.1:0"}})
	c := raw(t, p)
	say(t, c, &wire.Open{Req: 1, Index: 0},
		&wire.CreateMem{Req: 2, ID: 2, Mem: driver.Mem{Kind: driver.MemBuffer, Bytes: 64}},
		&wire.CreateQueue{Req: 3, ID: 3})
	free := make(chan int, wire.Slots)
	for slot := range wire.Slots {
		free <- slot
	}
	ended := make(chan struct{})
	defer close(ended)
	go func() {
		for i := range uint64(session.MaxOpen + 2) {
			m := &wire.Transfer{Queue: 3, Mem: 2, Event: 100 + i, Write: true, Inline: true,
				Place: driver.Bytes(0, 1)}
			select {
			case m.Slot = <-free:
			case <-ended:
				return
			}
			if _, err := c.Write(append(wire.Append(nil, m), 0)); err != nil {
				return
			}
		}
		_ = c.SetReadDeadline(time.Now().Add(time.Minute)) // not before: a busy machine takes long to send them
	}()
	said := bufio.NewReader(c)
	why := &wire.Bye{}
	for {
		op, body, err := wire.ReadSmallFrame(said, wire.MaxBody)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatal("the client is not dropped")
		}
		if err != nil {
			break
		}
		switch d := (wire.Done{}); op {
		case wire.OpBye: // commands that complete later are still told of
			_ = wire.Decode(body, why)
		case wire.OpDone:
			_ = wire.Decode(body, &d)
			if d.Slot > 0 {
				free <- d.Slot - 1
			}
		}
	}
	if !strings.Contains(why.Why, "events are not complete") {
		t.Errorf("the client is told %q; want the reason", why.Why)
	}
	p.quiet(t)
}

// TestSharedTooLarge: a client shares no more memory than the machine can stand: a
// sparse file of a pebibyte costs it nothing.
func TestSharedTooLarge(t *testing.T) {
	p := serve(t, Options{})
	key := must(wire.ReadKey(p.sel.KeyFile))(t)
	_, _, hangUp, token := rawUnix(t, p, key)
	grant := func(bytes int64) error {
		u := must(wire.Dial(t.Context(), p.addr, key, wire.ForMemory))(t).(*net.UnixConn)
		defer u.Close()
		_, err := u.Write(token)
		ok(t, err)
		f := os.NewFile(uintptr(must(unix.MemfdCreate("huge", unix.MFD_ALLOW_SEALING|unix.MFD_CLOEXEC))(t)), "huge")
		defer f.Close()
		ok(t, f.Truncate(bytes))
		_, err = unix.FcntlInt(f.Fd(), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK)
		ok(t, err)
		ok(t, wire.Grant(u, f, uint64(bytes), int(bytes)))
		return replyTo(t, bufio.NewReader(u), 0)
	}
	total, _ := shm.Machine()
	if err := grant(total); err == nil {
		t.Error("as much as the machine has was mapped")
	}
	if err := grant(1 << 50); err == nil {
		t.Error("a pebibyte was mapped")
	}
	ok(t, grant(1<<20))
	if n := p.list()[0].usage.Shared.Load(); n != 1<<20 {
		t.Errorf("%d bytes are counted, want those that were taken", n)
	}
	hangUp()
	p.quiet(t)
}

// TestSilentConnections: connections that say nothing, more than there is room for, keep
// no client out.
func TestSilentConnections(t *testing.T) {
	p := serve(t, Options{Listen: []string{"127.0.0.1:0"}})
	p.unauthenticated.mu.Lock()
	p.unauthenticated.most = 100 // as descriptors of this process allow
	p.unauthenticated.mu.Unlock()
	var silent []net.Conn
	for range 300 {
		silent = append(silent, must(net.Dial("tcp", p.addr))(t))
	}
	for range 3 {
		c := open(t, p.sel) // which bears no wait for the end of their time
		ok(t, c.step())
		ok(t, c.check())
		ok(t, c.d.Close())
	}
	for _, s := range silent {
		_ = s.Close()
	}
}

type addressed struct {
	net.Conn
	from   string
	closed bool
}

func (a *addressed) RemoteAddr() net.Addr { return &net.TCPAddr{IP: net.ParseIP(a.from)} }
func (a *addressed) Close() error         { a.closed = true; return nil }

// TestBusiestHostLosesItsOldest: the host with most connections loses its oldest one.
func TestBusiestHostLosesItsOldest(t *testing.T) {
	l := newUnauthenticated(3)
	a, b, c, d, e := &addressed{from: "10.0.0.1"}, &addressed{from: "10.0.0.2"}, &addressed{from: "10.0.0.2"},
		&addressed{from: "10.0.0.3"}, &addressed{from: "10.0.0.4"}
	l.add(a)
	leaveB, _ := l.add(b)
	_, dropped := l.add(c)
	if dropped {
		t.Error("there was room for three")
	}
	if _, dropped = l.add(d); !dropped || !b.closed || a.closed || c.closed {
		t.Error("want the oldest of the host with two to go")
	}
	leaveB() // late: it counts no more
	if l.add(e); !a.closed || c.closed || d.closed {
		t.Error("want the oldest of all to go")
	}
	if len(l.order) != 3 || len(l.byHost) != 3 {
		t.Errorf("%d connections of %d hosts, want 3 of 3", len(l.order), len(l.byHost))
	}
}

// TestSocketDir: a directory that somebody else made, that is a link, or that others
// can enter is not taken.
func TestSocketDir(t *testing.T) {
	dir := t.TempDir()
	good := filepath.Join(dir, "good")
	ok(t, SocketDir(good))
	ok(t, SocketDir(good)) // it is there
	if info := must(os.Stat(good))(t); info.Mode().Perm() != 0o700 {
		t.Errorf("mode %v, want 0700", info.Mode())
	}
	link, open, file := filepath.Join(dir, "link"), filepath.Join(dir, "open"), filepath.Join(dir, "file")
	ok(t, os.Symlink(good, link))
	ok(t, os.Mkdir(open, 0o700))
	ok(t, os.Chmod(open, 0o755))
	ok(t, os.WriteFile(file, nil, 0o600))
	for _, bad := range []string{link, open, file} {
		if SocketDir(bad) == nil {
			t.Errorf("%s was taken", bad)
		}
	}
	if os.Geteuid() == 0 {
		foreign := filepath.Join(dir, "foreign")
		ok(t, os.Mkdir(foreign, 0o700))
		ok(t, os.Chown(foreign, 12345, 0))
		if SocketDir(foreign) == nil {
			t.Error("a directory of another user was taken")
		}
	}
}

// waitersFile has how many goroutines of a worker wait for commands that the kernel "counting" holds back.
func waitersFile() string { return filepath.Join(gateDir, "waiters") }

func init() {
	var one sync.Mutex
	fake.Register("counting", 1, func(fake.Launch) {
		waitForGate(func() {
			if !one.TryLock() {
				return
			}
			defer one.Unlock()
			stacks := make([]byte, 4<<20)
			n := bytes.Count(stacks[:runtime.Stack(stacks, true)], []byte("session.(*queue).complete("))
			_ = os.WriteFile(waitersFile()+"~", []byte(strconv.Itoa(n)), 0o644)
			_ = os.Rename(waitersFile()+"~", waitersFile())
		})
	})
}

// TestOutOfOrder: very many commands of an out-of-order queue hold few threads, and
// the end of each is reported.
func TestOutOfOrder(t *testing.T) {
	p := serve(t, Options{Listen: []string{"127.0.0.1:0"}})
	c := raw(t, p)
	in := bufio.NewReader(c)
	say(t, c, &wire.Open{Req: 1, Index: 0}, &wire.CreateQueue{Req: 2, ID: 2, Desc: driver.QueueDesc{OutOfOrder: true}},
		&wire.CreateMem{Req: 3, ID: 3, Mem: driver.Mem{Kind: driver.MemBuffer, Bytes: 64}},
		&wire.Build{Req: 4, ID: 4, Desc: driver.ProgramDesc{OpenCL: "counting"}})
	ok(t, replyTo(t, in, 4))
	say(t, c, &wire.CreateKernel{Req: 5, ID: 5, Program: 4, Name: "counting"})
	ok(t, replyTo(t, in, 5))
	release := closeGate()
	say(t, c, &wire.SetArg{Kernel: 5, Arg: wire.Arg{Kind: driver.ArgMem, Object: 3}})
	const n = 200
	for i := range uint64(n) {
		say(t, c, &wire.Launch{Queue: 2, Kernel: 5, Event: 100 + i,
			Grid: driver.Grid{Dims: 1, Global: [3]int{1, 1, 1}}})
	}
	waiting := 0
	for p.unfinished() < n || waiting == 0 {
		time.Sleep(time.Millisecond)
		text, _ := os.ReadFile(waitersFile())
		waiting, _ = strconv.Atoi(string(text))
	}
	if waiting > session.MaxWaiters {
		t.Errorf("%d commands are waited for by %d threads, want at most %d", n, waiting, session.MaxWaiters)
	}
	release()
	say(t, c, &wire.Marker{Queue: 2, Event: 99})
	for left := n + 1; left > 0; {
		op, body, _, err := wire.ReadFrame(in, nil)
		ok(t, err)
		if op != wire.OpDone {
			continue
		}
		var done wire.Done
		_ = wire.Decode(body, &done)
		ok(t, done.Err)
		left--
	}
	say(t, c, &wire.Finish{Req: 6, Queue: 2})
	ok(t, replyTo(t, in, 6))
}

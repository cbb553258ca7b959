package opencl

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-hpc/holdfast/internal/opencl/wire"
	"golang.org/x/sys/unix"
)

// TestFindAgain: a number stands for its object until that is removed, and then for the next one, even if
// the number was just looked for, or another one that is remembered in the same place.
func TestFindAgain(t *testing.T) {
	s := &Server{objects: map[uint64]clObject{}}
	const id = 3
	other := uint64(id + len(s.found))
	for round := range 3 {
		for _, n := range []uint64{id, other} {
			if _, err := find[*kernel](s, n); !errors.Is(err, wire.ErrProtocol) {
				t.Fatalf("round %d, %d before it is made: got %v, want errProtocol", round, n, err)
			}
		}
		made := map[uint64]*kernel{id: {}, other: {}}
		for n, k := range made {
			if err := s.add(n, k); err != nil {
				t.Fatal(err)
			}
		}
		for _, n := range []uint64{id, other, id, other} {
			if k, err := find[*kernel](s, n); err != nil || k != made[n] {
				t.Fatalf("round %d: got %p, %v for %d, want %p", round, k, err, n, made[n])
			}
			if _, err := find[*queue](s, n); !errors.Is(err, wire.ErrProtocol) {
				t.Fatalf("a kernel taken for a queue: got %v, want errProtocol", err)
			}
		}
		s.mu.Lock()
		s.remove(other)
		s.remove(id)
		s.mu.Unlock()
	}
}

// TestFindBesides: no request finds what another one has removed, whatever lookups run meanwhile.
func TestFindBesides(t *testing.T) {
	s := &Server{objects: map[uint64]clObject{}}
	const rounds = 2000
	var group sync.WaitGroup
	stop := make(chan struct{})
	for range 2 {
		group.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					_, _ = find[*kernel](s, 1)
				}
			}
		})
	}
	for round := range rounds {
		k := &kernel{count: round}
		if err := s.add(1, k); err != nil {
			t.Fatal(err)
		}
		if got, err := find[*kernel](s, 1); err != nil || got != k {
			t.Fatalf("round %d: got %v, %v", round, got, err)
		}
		s.mu.Lock()
		s.remove(1)
		s.mu.Unlock()
		if got, err := find[*kernel](s, 1); err == nil {
			t.Fatalf("round %d: found kernel %d after it was removed", round, got.count)
		}
	}
	close(stop)
	group.Wait()
}

// TestKeptFileDamaged: the state of a paused program is read as it was written, and refused when any byte of it has
// changed or is missing.
func TestKeptFileDamaged(t *testing.T) {
	contents := bytes.Repeat([]byte{7, 1, 0}, 3*page)[:2*page]
	w := &world{Program: "p", PID: 3, Used: []int{0}, Ring: 88, End: 2 * page,
		Sum:     new(uint32),
		Objects: []keptObject{{ID: 4, Op: 5, Body: []byte{1}, At: page, Bytes: 9}},
		Kernels: []keptKernel{{ID: 9, Program: 7, Name: "k", Args: []keptArg{{Kind: 4, Value: []byte{3}}}}},
		Events:  []keptEvent{{ID: 11, Device: -1, Times: &[4]uint64{1, 2, 3, 4}}}}
	*w.Sum = crc32.Checksum(contents, castagnoli)
	f, err := os.Create(filepath.Join(t.TempDir(), "state"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.Write(contents); err != nil {
		t.Fatal(err)
	}
	if err := (&kept{file: f}).describe(w); err != nil {
		t.Fatal(err)
	}
	got, bytesOf, err := readWorld(f)
	if err != nil || !reflect.DeepEqual(got, w) || !bytes.Equal(bytesOf, contents) {
		t.Fatalf("got %+v, %v, want %+v", got, err, w)
	}
	if err := unmap(bytesOf); err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(f.Name())
	if err != nil {
		t.Fatal(err)
	}
	refuse := func(what string, at int) {
		t.Helper()
		if _, b, err := readWorld(f); err == nil {
			t.Errorf("%s at %d: no error", what, at)
			_ = unmap(b)
		}
	}
	for at := 0; at < len(whole); at += 1 + 37*b2i(at < 2*page) {
		if _, err := f.WriteAt([]byte{whole[at] ^ 4}, int64(at)); err != nil {
			t.Fatal(err)
		}
		refuse("a byte changed", at)
		if _, err := f.WriteAt(whole[at:at+1], int64(at)); err != nil {
			t.Fatal(err)
		}
	}
	for _, n := range []int{len(whole) - 1, 2 * page, page, 5, 0} {
		if err := f.Truncate(int64(n)); err != nil {
			t.Fatal(err)
		}
		refuse("cut", n)
	}
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}

// TestPausedAndCheckpoints: a program whose checkpoints know its objects by their order is not paused, and one that
// was paused takes no such checkpoint.
func TestPausedAndCheckpoints(t *testing.T) {
	s := &Server{ring: &requestRing{lost: &atomic.Uint32{}}}
	if err := s.holdable(); err != nil {
		t.Errorf("before a checkpoint: %v", err)
	}
	if err := s.matchByOrder(); err != nil {
		t.Errorf("a checkpoint before a pause: %v", err)
	}
	if err := s.holdable(); err == nil {
		t.Error("a program with a checkpoint can be paused")
	}
	s = &Server{resumed: true}
	if err := s.matchByOrder(); codeOf(err) != clInvalidOperation {
		t.Errorf("a checkpoint after a pause: got %v", err)
	}
}

// TestQuietAwaitsArea: a request that waits for its area, which is still on the control socket, is carried out by a
// program that is about to be paused.
func TestQuietAwaitsArea(t *testing.T) {
	h := newHostile(t)
	h.populate()
	h.put(inRing(wire.OpAreaWait, 5, pack(uint64(1))))
	until := func(what string, reached func() bool) {
		t.Helper()
		for end := time.Now().Add(time.Minute); !reached(); time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatal(what)
			}
		}
	}
	areas := &h.server.areas
	until("the request is not carried out", func() bool {
		areas.mu.Lock()
		defer areas.mu.Unlock()
		return areas.more != nil
	})
	quiet := make(chan error, 1)
	go func() { quiet <- h.server.quiet(time.Minute) }()
	until("nobody waits for the gate", func() bool {
		open := h.server.held.gate.TryRLock()
		if open {
			h.server.held.gate.RUnlock()
		}
		return !open
	})
	f, err := sealed(4096)
	if err != nil {
		t.Fatal(err)
	}
	h.give('M', f)
	if err := <-quiet; err != nil {
		t.Fatalf("a pause while a request waits for its area: %v", err)
	}
	h.server.goOn()
	if got := h.ask(wire.OpAreaWait, uint64(1)); got != 0 {
		t.Errorf("it goes on with status %d", got)
	}
}

// slowConn begins to write, and goes on when it may.
type slowConn struct {
	net.Conn
	first      sync.Once
	begun, may chan struct{}
}

func (c *slowConn) Write(b []byte) (int, error) {
	c.first.Do(func() {
		close(c.begun)
		<-c.may
	})
	return c.Conn.Write(b)
}

// TestQuietAwaitsReply: a program is paused after the reply to a request that was carried out, not before.
func TestQuietAwaitsReply(t *testing.T) {
	h := newHostile(t)
	h.populate()
	if err := h.server.quiet(time.Minute); err != nil { // the goroutine below comes behind what has made the server
		t.Fatal(err)
	}
	h.server.goOn()
	near, far := pair(t)
	defer near.Close()
	defer far.Close()
	raw, err := far.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	slow := &slowConn{Conn: far, begun: make(chan struct{}), may: make(chan struct{})}
	served := make(chan error, 1)
	go func() { served <- (&handler{Server: h.server, conn: slow}).serveNext(raw) }()
	if _, err := near.Write(wire.Header(0, wire.OpDevices, 0, 0)); err != nil {
		t.Fatal(err)
	}
	<-slow.begun
	if err := h.server.quiet(50 * time.Millisecond); err == nil {
		t.Error("the program is paused, and its reply is not sent")
		h.server.goOn()
	}
	close(slow.may)
	if err := <-served; err != nil {
		t.Fatal(err)
	}
	if err := h.server.quiet(time.Minute); err != nil {
		t.Fatal(err)
	}
	h.server.goOn()
}

// TestServerOfStillKilled: a program that stands still runs again if the command that has stopped it is killed.
func TestServerOfStillKilled(t *testing.T) {
	program, server := exec.Command("sleep", "100"), exec.Command("sleep", "100")
	for _, c := range []*exec.Cmd{program, server} {
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		defer func() { _ = c.Process.Kill(); _ = c.Wait() }()
	}
	s := &Still{PID: program.Process.Pid, conn: new(net.UnixConn), stopped: true}
	var err error
	if s.server, err = unix.PidfdOpen(server.Process.Pid, 0); err == nil {
		s.Process, err = unix.PidfdOpen(s.PID, 0)
	}
	if err = errors.Join(err, program.Process.Signal(unix.SIGSTOP)); err != nil {
		t.Fatal(err)
	}
	time.AfterFunc(20*time.Millisecond, func() { _ = server.Process.Kill() })
	for state := ""; !strings.Contains(state, "T"); {
		if state, err = states(s.PID); err != nil {
			t.Fatal(err)
		}
	}
	gone := *s // one whose program had gone on, and that somebody else has stopped
	gone.stopped, gone.Process, gone.server = false, -1, -1
	gone.Close()
	if state, err := states(s.PID); err != nil || !strings.Contains(state, "T") {
		t.Errorf("a program that another has stopped: its threads are %q (%v)", state, err)
	}
	s.Close()
	if state, err := states(s.PID); err != nil || strings.Contains(state, "T") {
		t.Errorf("its threads are %q (%v)", state, err)
	}
}

// TestFeed: the state of a paused program comes out of a pipe as it was written. One that ends too early, or that has
// changed, is refused; an error of the reader is the feeder's.
func TestFeed(t *testing.T) {
	const large = 20 << 20 // more than one piece
	all := make([]byte, large+page)
	for i := 0; i < len(all); i += 512 {
		binary.LittleEndian.PutUint64(all[i:], uint64(i))
	}
	w := &world{Program: "p", PID: 3, End: int64(len(all)), Objects: []keptObject{{ID: 4, Bytes: 9},
		{ID: 5, At: page, Bytes: large - 7}}}
	f, err := os.Create(filepath.Join(t.TempDir(), "state"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.Write(all); err != nil {
		t.Fatal(err)
	}
	if err := (&kept{file: f}).describe(w); err != nil {
		t.Fatal(err)
	}
	size, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		t.Fatal(err)
	}
	bad := errors.New("bad")
	for _, c := range []struct {
		name   string
		read   func(b []byte, off int64) error
		whole  bool // whole objects, in place of pieces
		failed error
	}{
		{"in pieces", nil, false, nil},
		{"whole", nil, true, nil},
		{"in the middle", func(b []byte, off int64) error {
			if off > 0 && off < large {
				return bad
			}
			return nil
		}, false, bad},
		{"at the end", func(b []byte, off int64) error {
			if off >= large && len(b) > tailBytes {
				b[len(b)-1] ^= 1
			}
			return nil
		}, false, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			from, to, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			fed := make(chan error, 1)
			go func() {
				fed <- Feed(to, size, func(b []byte, off int64) error {
					_, err := f.ReadAt(b, off)
					if err == nil && c.read != nil {
						err = c.read(b, off)
					}
					return err
				})
			}()
			got, contents, err := readKept(from)
			for i := 0; err == nil && i < len(got.Objects); i++ {
				o := &got.Objects[i]
				for off := 0; err == nil && off < o.Bytes; {
					var b []byte
					if b, err = contents.next(o, off, c.whole); err == nil &&
						(!bytes.Equal(b, all[o.At:][off:off+len(b)]) || c.whole && len(b) < o.Bytes) {
						t.Fatalf("other bytes at %d of object %d", off, o.ID)
					}
					off += len(b)
				}
			}
			if want := c.read == nil; want != (err == nil) || !want && !errors.Is(err, errKept) {
				t.Errorf("got %v", err)
			}
			_ = from.Close() // the feeder ends
			if err := <-fed; err != c.failed {
				t.Errorf("the feeder: got %v, want %v", err, c.failed)
			}
		})
	}
}

package wire

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-hpc/holdfast/internal/shm"
)

// pairOf gives the two ends of a connection through a Unix socket.
func pairOf(t testing.TB) (a, b *net.UnixConn) {
	t.Helper()
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	var list []*net.UnixConn
	for _, fd := range fds {
		f := os.NewFile(uintptr(fd), "")
		c, err := net.FileConn(f)
		if err := errors.Join(err, f.Close()); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		list = append(list, c.(*net.UnixConn))
	}
	return list[0], list[1]
}

// rings gives two sides that have mapped the same memory, and the memory.
func rings(t testing.TB) (client, server *Ring, shared []byte) {
	t.Helper()
	a, b := pairOf(t)
	f, shared, err := shm.New("memory", SharedBytes)
	if err != nil {
		t.Fatal(err)
	}
	other, err := shm.Map(f)
	if err := errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
	if client, err = NewRing(a, shared, true); err != nil {
		t.Fatal(err)
	}
	if server, err = NewRing(b, other, false); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		client.Release()
		server.Release()
		if err := errors.Join(shm.Free(shared), shm.Free(other)); err != nil {
			t.Error(err)
		}
	})
	return client, server, shared
}

// TestRing: bytes arrive in order, whatever the sizes of writes and reads, both
// ways at once, with sides that stay awake and such that sleep.
func TestRing(t *testing.T) {
	for _, spare := range []bool{false, true} {
		client, server, _ := rings(t)
		client.awake.Spare, server.awake.Spare = spare, spare
		var all sync.WaitGroup
		for i, way := range [][2]*Ring{{client, server}, {server, client}} {
			const total = 8 << 20
			all.Go(func() {
				r := rand.New(rand.NewPCG(1, uint64(i)))
				for sent := 0; sent < total; {
					b := make([]byte, min(1+r.IntN(1<<r.IntN(19)), total-sent))
					for k := range b {
						b[k] = byte((sent + k) * (sent + k) >> 7)
					}
					if n, err := way[0].Write(b); n != len(b) || err != nil {
						t.Errorf("wrote %d of %d: %v", n, len(b), err)
						return
					}
					sent += len(b)
				}
			})
			all.Go(func() {
				r := rand.New(rand.NewPCG(2, uint64(i)))
				for got := 0; got < total; {
					b := make([]byte, 1+r.IntN(1<<r.IntN(19)))
					n, err := way[1].Read(b)
					if err != nil {
						t.Error(err)
						return
					}
					for k := range n {
						if want := byte((got + k) * (got + k) >> 7); b[k] != want {
							t.Errorf("byte %d is %d, want %d", got+k, b[k], want)
							return
						}
					}
					got += n
				}
			})
		}
		all.Wait()
	}
}

// TestRingEnds: a side that is gone ends the reads of the other, after the last
// words, and a writer that waits for room.
func TestRingEnds(t *testing.T) {
	client, server, _ := rings(t)
	if _, err := server.Write([]byte("last words")); err != nil {
		t.Fatal(err)
	}
	if err := server.Close(); err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(client)
	if err != nil || string(got) != "last words" {
		t.Errorf("got %q, %v", got, err)
	}
	if _, err := client.Write(make([]byte, 2*ringBytes)); !errors.Is(err, syscall.EPIPE) {
		t.Errorf("a full ring to nobody: got %v, want EPIPE", err)
	}
	client.Release()
	if _, err := client.Write([]byte{1}); !errors.Is(err, net.ErrClosed) {
		t.Errorf("write after Release: got %v", err)
	}
	if _, err := client.Read(make([]byte, 1)); !errors.Is(err, net.ErrClosed) {
		t.Errorf("read after Release: got %v", err)
	}

	client, server, _ = rings(t)
	if err := client.SetWriteDeadline(time.Now().Add(20 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	if _, err := client.Write(make([]byte, 2*ringBytes)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a full ring that nobody empties: got %v, want ErrDeadlineExceeded", err)
	}
	if err := server.CloseRead(); err != nil {
		t.Fatal(err)
	}
	if n, err := server.Read(make([]byte, 1)); n != 0 || err != io.EOF {
		t.Errorf("read after CloseRead: got %d bytes, %v", n, err)
	}
}

// FuzzRing: whatever the other side writes to the memory, each call gives bytes
// of the ring or an error, and what it gives parses as frames or is refused.
func FuzzRing(f *testing.F) {
	f.Add(uint64(0), uint64(0), uint32(0), []byte{})
	f.Add(uint64(1), uint64(1), uint32(1), []byte{0, 0, 0, 0, 66})
	f.Add(uint64(ringBytes), uint64(ringBytes+1), uint32(1<<31), bytes.Repeat([]byte{255}, 64))
	f.Add(^uint64(0), ^uint64(0)-5, uint32(7), Append(nil, &Bye{Why: "why"}))
	client, _, shared := rings(f)
	f.Fuzz(func(t *testing.T, written, read uint64, asleep uint32, garbage []byte) {
		clear(shared[ArenaBytes:])
		in, out := shared[ArenaBytes+ringHead+ringBytes:], shared[ArenaBytes:]
		client.in, client.out = shm.NewRingReader(in, ringLayout), shm.NewRingWriter(out, ringLayout)
		for _, b := range [][]byte{in, out} {
			binary.NativeEndian.PutUint64(b[ringLayout.Written:], written)
			binary.NativeEndian.PutUint64(b[ringLayout.Read:], read)
			binary.NativeEndian.PutUint32(b[ringLayout.Asleep:], asleep)
			copy(b[ringLayout.Data:][:ringLayout.Bytes], garbage)
		}
		var frames Frames
		for range 4 {
			n, err := frames.Fill(client.Poll)
			if impossible := written > ringBytes; impossible != (err != nil) {
				t.Fatalf("%d bytes written: got %d bytes, %v", written, n, err)
			} else if impossible && !errors.Is(err, ErrProtocol) {
				t.Fatalf("got %v, want ErrProtocol", err)
			}
			for {
				op, body, ok, err := frames.Next()
				if err != nil || !ok {
					break
				}
				if m := New(op); m != nil {
					_ = Decode(body, m)
				}
			}
		}
		n, err := client.out.Write(garbage)
		if -read > ringBytes && err == nil { // it has written nothing yet
			t.Fatalf("%d bytes read of none: %d written", read, n)
		}
	})
}

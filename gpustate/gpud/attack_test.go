package gpud

import (
	"bufio"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"github.com/holdfast-hpc/holdfast/gpustate/internal/driver"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/wire"
)

// recorded is a connection that keeps what is written to it.
type recorded struct {
	net.Conn
	sent []byte
}

func (c *recorded) Write(b []byte) (int, error) {
	c.sent = append(c.sent, b...)
	return c.Conn.Write(b)
}

// answerTo has a client without the key send bytes after the server's greeting, and gives the
// server's answer.
func answerTo(t *testing.T, p *place, say []byte) []byte {
	t.Helper()
	c := must(net.Dial("tcp", p.addr))(t)
	defer c.Close()
	ok(t, c.SetDeadline(time.Now().Add(time.Minute)))
	hello := make([]byte, 44)
	_, err := io.ReadFull(c, hello)
	ok(t, err)
	_, err = c.Write(say)
	ok(t, err)
	answer := must(io.ReadAll(c))(t)
	if len(answer) != 33 {
		t.Fatalf("the answer has %d bytes, want 33 and the end", len(answer))
	}
	return answer
}

// TestOverheard: the proof of a client is of no use to who has overheard it, nor
// is the server's own, nor one for another purpose.
func TestOverheard(t *testing.T) {
	p := serve(t, Options{Listen: []string{"127.0.0.1:0"}})
	key := must(wire.ReadKey(p.sel.KeyFile))(t)
	c := &recorded{Conn: must(net.Dial("tcp", p.addr))(t)}
	ok(t, wire.Greet(c, key, wire.ForStatus))
	ok(t, c.Close())
	before := p.status().Counts.HandshakeFailures
	reflected := make([]byte, len(c.sent)) // with the server's nonce and no proof of ours
	copy(reflected, c.sent[:5])
	other := append([]byte(nil), c.sent...)
	other[4] = byte(wire.ForDevice)
	for name, say := range map[string][]byte{"replayed": c.sent, "empty": reflected, "other purpose": other} {
		answer := answerTo(t, p, say)
		if answer[0] != 1 {
			t.Errorf("%s: the answer is %d, want 1, wrong key", name, answer[0])
		}
		for _, b := range answer[1:] {
			if b != 0 {
				t.Errorf("%s: a client without the key was given a proof", name)
				break
			}
		}
	}
	if n := p.status().Counts.HandshakeFailures - before; n != 3 {
		t.Errorf("%d handshake failures counted, want 3", n)
	}
}

// TestOtherClient: a client of another version gets an error that says so.
func TestOtherClient(t *testing.T) {
	p := serve(t, Options{Listen: []string{"127.0.0.1:0"}})
	for _, v := range []uint32{0, wire.Version - 1, wire.Version + 1} {
		say := make([]byte, 4+1+32+32)
		binary.LittleEndian.PutUint32(say, v)
		if answer := answerTo(t, p, say); answer[0] != 2 {
			t.Errorf("version %d: the answer is %d, want 2", v, answer[0])
		}
	}
}

// TestAnnounced: a client that announces more than there can be is refused, or
// dropped, and nothing is made for it.
func TestAnnounced(t *testing.T) {
	p := serve(t, Options{Listen: []string{"127.0.0.1:0"}})
	c := raw(t, p)
	say(t, c, &wire.Open{Req: 1, Index: 0},
		&wire.CreateMem{Req: 2, ID: 1, Mem: driver.Mem{Kind: driver.MemBuffer, Bytes: 1 << 60}})
	in := bufio.NewReader(c)
	for {
		op, body, _, err := wire.ReadFrame(in, nil)
		ok(t, err)
		var reply wire.Reply
		if op == wire.OpReply {
			_ = wire.Decode(body, &reply)
		}
		if reply.Req == 2 {
			if !errors.Is(reply.Err, driver.ErrOutOfMemory) {
				t.Errorf("2^60 bytes: got %v, want ErrOutOfMemory", reply.Err)
			}
			break
		}
	}
	if used := p.status().Devices[0].UsedBytes; used != 0 {
		t.Errorf("%d bytes are used", used)
	}
	ok(t, c.Close())
	c = raw(t, p)
	say(t, c, &wire.Open{Index: 0})
	_, err := c.Write([]byte{0xff, 0xff, 0xff, 0xff, byte(wire.OpBuild)}) // 4 GiB of frame
	ok(t, err)
	ok(t, c.SetReadDeadline(time.Now().Add(time.Minute)))
	if _, err := io.Copy(io.Discard, c); errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error("the connection is still open")
	}
	p.quiet(t)
}

// TestListensThereOnly: an address that was not given does not answer.
func TestListensThereOnly(t *testing.T) {
	p := serve(t, Options{Listen: []string{"127.0.0.1:0"}})
	_, port, err := net.SplitHostPort(p.addr)
	ok(t, err)
	for _, host := range []string{"127.0.0.2", "::1"} {
		if c, err := net.Dial("tcp", net.JoinHostPort(host, port)); err == nil {
			_ = c.Close()
			t.Errorf("%s answers", host)
		}
	}
}

// TestInterfaceAddress: an interface stands for its IPv4 address, or for IPv6
// if it has no other.
func TestInterfaceAddress(t *testing.T) {
	addrs := func(list ...string) (as []net.Addr) {
		for _, s := range list {
			as = append(as, &net.IPNet{IP: net.ParseIP(s)})
		}
		return as
	}
	for _, c := range []struct {
		list []net.Addr
		want string
	}{
		{addrs("fe80::1", "fd00::7", "10.0.0.7", "10.0.0.8"), "10.0.0.7"},
		{addrs("fe80::1", "fd00::7", "fd00::8"), "fd00::7"},
		{addrs("fe80::1"), "<nil>"},
		{nil, "<nil>"},
	} {
		if got := preferred(c.list).String(); got != c.want {
			t.Errorf("%v: got %s, want %s", c.list, got, c.want)
		}
	}
}

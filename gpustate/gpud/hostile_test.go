package gpud

import (
	"bufio"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-hpc/holdfast/gpustate"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/driver"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/wire"
)

// hostile returns a server that knows the key, opens a device, and answers the first
// request after it with what answer gives; then it hangs up, unless it stays.
func hostile(t *testing.T, key string, welcome wire.Message, stays bool, answer func(req uint64) []byte) string {
	t.Helper()
	k := must(wire.EnsureKey(key))(t)
	l := must(net.Listen("tcp", "127.0.0.1:0"))(t)
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				if _, err := wire.Admit(c, wire.Keys{Use: k}, func(wire.Purpose) bool { return false }); err != nil {
					return
				}
				_, _ = c.Write(wire.Append(nil, welcome))
				in := bufio.NewReader(c)
				if _, _, _, err := wire.ReadFrame(in, nil); err != nil {
					return
				}
				_, _ = c.Write(wire.Append(nil, &wire.Reply{}))
				_, body, _, err := wire.ReadFrame(in, nil)
				if err != nil {
					return
				}
				r := &wire.Reader{B: body}
				_, _ = c.Write(answer(r.Uint()))
				if !stays {
					_ = c.(*net.TCPConn).CloseWrite()
				}
				_, _ = io.Copy(io.Discard, in)
			}()
		}
	}()
	return l.Addr().String()
}

// TestHostileServer: a server that answers garbage is an error that names it,
// whatever it says, and nothing waits for it.
func TestHostileServer(t *testing.T) {
	key := filepath.Join(t.TempDir(), "key")
	good := &wire.Welcome{Server: "s", Devices: []driver.Info{{Kind: "fake", Name: "n", GlobalBytes: 1 << 30,
		MaxAllocBytes: 1 << 30}}}
	r := rand.New(rand.NewPCG(7, 7))
	noise := make([]byte, 4096)
	for i := range noise {
		noise[i] = byte(r.IntN(256))
	}
	for name, answer := range map[string]func(req uint64) []byte{
		"noise":              func(uint64) []byte { return noise },
		"nothing":            func(uint64) []byte { return nil },
		"half a frame":       func(uint64) []byte { return []byte{200, 0, 0, 0, byte(wire.OpReply), 1, 2} },
		"a huge frame":       func(uint64) []byte { return []byte{255, 255, 255, 255, byte(wire.OpReply)} },
		"a client's message": func(uint64) []byte { return wire.Append(nil, &wire.Flush{Queue: 1}) },
		"a slot not in use":  func(uint64) []byte { return wire.Append(nil, &wire.Done{Event: 1, Slot: 3}) },
		"bytes for no slot":  func(uint64) []byte { return wire.Append(nil, &wire.Done{Event: 1, Bytes: 99}) },
		"another reply":      func(req uint64) []byte { return wire.Append(nil, &wire.Reply{Req: req + 1}) },
		"a reply twice": func(req uint64) []byte {
			b := wire.Append(nil, &wire.Reply{Req: req})
			return append(b, b...)
		},
		"events nobody has": func(uint64) []byte { return wire.Append(nil, &wire.Done{Event: 1 << 60}) },
		"a move to nowhere": func(uint64) []byte { return wire.Append(nil, &wire.Move{Token: 1, To: "remote="}) },
		"goodbye and then more": func(uint64) []byte {
			return append(wire.Append(nil, &wire.Bye{Why: "tired"}), noise...)
		},
	} {
		t.Run(name, func(t *testing.T) {
			addr := hostile(t, key, good, name == "another reply", answer)
			d, err := gpustate.Open(gpustate.Select{Kind: "fake", Remote: addr, KeyFile: key})
			if err != nil {
				t.Fatal(err)
			}
			_, err = d.Queue("q")
			if err == nil { // it may have answered before it went mad
				_, err = d.Buffer("b", 64)
			}
			var server *gpustate.ServerError
			if !errors.As(err, &server) || server.Server != addr || !errors.Is(err, gpustate.ErrDeviceLost) {
				t.Errorf("got %v, want a ServerError that names %s", err, addr)
			}
			if name == "another reply" && !strings.Contains(err.Error(), "unknown request") {
				t.Errorf("got %v after the server's silence, want it to say what came", err)
			}
			_ = d.Close()
		})
	}
	_, err := gpustate.Open(gpustate.Select{Kind: "fake", Remote: hostile(t, key, &wire.Moved{}, false, nil),
		KeyFile: key})
	var server *gpustate.ServerError
	if !errors.As(err, &server) {
		t.Errorf("without a welcome: got %v, want a ServerError", err)
	}
}

// TestMetrics: what runs is counted, in the format that Prometheus reads.
func TestMetrics(t *testing.T) {
	p := serve(t, Options{})
	c := open(t, p.sel)
	ok(t, c.step())
	ok(t, c.check())
	w := httptest.NewRecorder()
	p.Metrics().ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	for _, want := range []string{"# TYPE holdfast_gpud_commands_total counter\n", "holdfast_gpud_admitted_total 1\n",
		"holdfast_gpud_clients{device=\"0\",name=\"plain Go\"} 1\n",
		"holdfast_gpud_used_bytes{device=\"0\",name=\"plain Go\"} 4096\n",
		"holdfast_gpud_written_bytes_total 4096\n", "holdfast_gpud_read_bytes_total 4096\n"} {
		if !strings.Contains(w.Body.String(), want) {
			t.Errorf("the metrics lack %q:\n%s", want, w.Body)
		}
	}
	ok(t, c.d.Close())
}

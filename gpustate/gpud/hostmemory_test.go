package gpud

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast-hpc/holdfast/gpustate"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/driver"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/wire"
	"github.com/holdfast-hpc/holdfast/internal/shm"
)

// regions counts the pieces of its clients' memory, of a number of bytes, that a server's workers have mapped.
func (p *place) regions(t testing.TB, bytes int) int {
	t.Helper()
	want := (bytes + os.Getpagesize() - 1) &^ (os.Getpagesize() - 1)
	files := map[string]int{} // mappings of that size, by worker and file
	for _, pid := range p.pids() {
		text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid)) // one that has just ended has none
		all := map[string]int{}
		for line := range strings.Lines(string(text)) {
			var from, to int
			var rights, off, dev, file string
			if n, _ := fmt.Sscanf(line, "%x-%x %s %s %s %s", &from, &to, &rights, &off, &dev, &file); n < 6 ||
				!strings.Contains(line, "memfd") {
				continue
			}
			if all[file]++; to-from == want {
				files[fmt.Sprint(pid, " ", file)]++
			}
		}
		for file, n := range all { // the table of usages, which is mapped twice
			if n > 1 {
				delete(files, fmt.Sprint(pid, " ", file))
			}
		}
	}
	return len(files)
}

// held returns a kernel that waits for the gate, on the buffer of c.
func (c *counter) held(t *testing.T) *gpustate.Kernel {
	t.Helper()
	p := must(c.d.Program("p", gpustate.Sources{OpenCL: "count gated"}, ""))(t)
	k := must(p.Kernel("gated"))(t)
	ok(t, k.SetArgs(c.b))
	return k
}

// hostMemory is HostMemory of bytes with a check of its error.
func hostMemory(t *testing.T, d *gpustate.Device, n int) ([]byte, func() error) {
	t.Helper()
	m, free, err := gpustate.HostMemory[byte](d, n)
	ok(t, err)
	return m, free
}

// TestNoCopy: the server moves bytes from and to host memory itself: what the
// program changes (which it must not) before the command's turn is moved too.
// Slices that lie outside of it, in part or in whole, are copied.
func TestNoCopy(t *testing.T) {
	p := serve(t, Options{})
	c := open(t, p.sel)
	defer c.d.Close()
	const n = 4 * elements
	m, free := hostMemory(t, c.d, n)
	other, _ := hostMemory(t, c.d, n)
	gated := c.held(t)
	for name, src := range map[string]struct {
		b      []byte
		shared bool
	}{
		"whole": {m, true}, "inside": {m[5 : n-3], true}, "the end": {m[n-1:], true},
		"the other": {other, true}, "plain": {make([]byte, n), false},
	} {
		release := closeGate()
		must(c.q.Launch(gated, []int{1}, nil))(t)
		copy(src.b, bytes.Repeat([]byte{1}, n))
		e := must(c.q.WriteAsync(c.b, 0, src.b))(t)
		must(c.q.Marker())(t)
		copy(src.b, bytes.Repeat([]byte{2}, n))
		release()
		ok(t, e.Wait())
		got := make([]byte, len(src.b))
		ok(t, c.q.Read(c.b, 0, got))
		want := byte(1)
		if src.shared {
			want = 2
		}
		if !bytes.Equal(got, bytes.Repeat([]byte{want}, len(got))) {
			t.Errorf("%s: the device has %d..., want %d", name, got[0], want)
		}
	}
	// a small write that blocks goes through the slots: it does not wait for its turn
	release := closeGate()
	must(c.q.Launch(gated, []int{1}, nil))(t)
	copy(m, bytes.Repeat([]byte{3}, n))
	ok(t, c.q.Write(c.b, 0, m))
	clear(m)
	release()
	ok(t, c.q.Read(c.b, 0, m))
	if !bytes.Equal(m, bytes.Repeat([]byte{3}, n)) {
		t.Error("the device has what the memory had after the write")
	}
	ok(t, free())
	ok(t, c.q.Finish()) // the server has the message
	if r := p.regions(t, n); r != 1 {
		t.Errorf("%d pieces of memory are mapped after one of two was freed", r)
	}
}

// TestHostMemoryMoves: host memory keeps its bytes and address while the program
// moves between its own machine, shared memory and TCP, and works everywhere.
func TestHostMemoryMoves(t *testing.T) {
	a := serve(t, Options{})
	b := serve(t, Options{KeyFile: a.sel.KeyFile})
	far := serve(t, Options{KeyFile: a.sel.KeyFile, Listen: []string{"127.0.0.1:0"}})
	home := gpustate.Select{Kind: "fake"}
	deadline := time.Now().Add(5 * time.Minute)
	for first, start := range map[string]gpustate.Select{"unix": a.sel, "tcp": far.sel, "local": home} {
		d := must(gpustate.Open(start))(t)
		const n = 5<<20 + 7
		q := must(d.Queue("q"))(t)
		x := must(d.Buffer("x", n))(t)
		m, free := hostMemory(t, d, n)
		for i, to := range []gpustate.Select{start, b.sel, far.sel, home, a.sel, home, b.sel} {
			repeat(m, 4096, func(k int) byte { return byte(k*11>>4 + i) })
			want := bytes.Clone(m)
			before := must(q.WriteAsync(x, 0, m))(t) // in flight when the device moves
			ok(t, d.MigrateTo(t.Context(), to))
			if !bytes.Equal(m, want) {
				t.Fatalf("%s, move %d: the memory has other bytes", first, i)
			}
			ok(t, before.Wait())
			clear(m)
			e := must(q.ReadAsync(x, 3, m[1:n-5]))(t)
			ok(t, e.Wait())
			if !bytes.Equal(m[1:n-5], want[3:n-3]) {
				t.Fatalf("%s, move %d: other bytes came back", first, i)
			}
			copy(m, want)
			m[0]++
			ok(t, q.Write(x, 0, m))
			got := make([]byte, n)
			ok(t, q.Read(x, 0, got))
			if !bytes.Equal(got, m) {
				t.Fatalf("%s, move %d: other bytes were written", first, i)
			}
			// a server on this machine has the memory mapped, if it can be; the
			// one before lets it go when it sees that the program has left
			mapped := 0
			if first != "local" && (to.Remote == a.addr || to.Remote == b.addr) {
				mapped = 1
			}
			for a.regions(t, n)+b.regions(t, n)+far.regions(t, n) != mapped {
				if time.Now().After(deadline) {
					t.Fatalf("%s, move %d: %d pieces of memory are mapped, want %d", first, i, a.regions(t, n)+
						b.regions(t, n)+far.regions(t, n), mapped)
				}
				time.Sleep(time.Millisecond)
			}
		}
		ok(t, d.Close())
		m[n-1] = 9
		ok(t, free())
	}
}

// TestHostMemoryEvacuated: a server is evacuated again and again while programs
// compute with host memory; no step and no byte is lost.
func TestHostMemoryEvacuated(t *testing.T) {
	b := serve(t, Options{})
	a := serve(t, Options{KeyFile: b.sel.KeyFile})
	stop := make(chan struct{})
	var running sync.WaitGroup
	var all []*counter
	for range 2 {
		c := open(t, a.sel)
		all = append(all, c)
		running.Go(func() {
			again(t, stop, func() error {
				m, free, err := gpustate.HostMemory[float32](c.d, elements)
				if err != nil {
					return err
				}
				_, down := c.q.ReadAsync(c.b, 0, gpustate.Bytes(m))
				_, up := c.q.WriteAsync(c.b, 0, gpustate.Bytes(m))
				return errors.Join(down, up, c.step(), free())
			})
		})
	}
	for i := range 8 {
		from, to := a, b
		if i%2 == 1 {
			from, to = b, a
		}
		moveAll(t, from, "remote="+to.addr+",fake")
	}
	close(stop)
	running.Wait()
	for _, c := range all {
		ok(t, c.check())
		ok(t, c.d.Close())
	}
}

// TestWorkerKilledInDirect: the worker dies with a transfer of host memory in
// flight: the program gets an error, its memory stays, and can be freed.
func TestWorkerKilledInDirect(t *testing.T) {
	p := serve(t, Options{Offer: func(i driver.Info) bool { return i.Kind == "fake" }})
	for round := range 4 {
		d := must(gpustate.Open(p.sel))(t)
		const n = 64 << 20
		q := must(d.Queue("q"))(t)
		x := must(d.Buffer("x", n))(t)
		m, free := hostMemory(t, d, n)
		_, freeOther := hostMemory(t, d, 4096)
		var events []*gpustate.Event
		for range 8 {
			events = append(events, must(q.ReadAsync(x, 0, m))(t))
		}
		ok(t, syscall.Kill(p.pids()[0], syscall.SIGKILL))
		for events[len(events)-1].Wait() == nil { // it may have been quicker
			events = append(events, nil)
			e, err := q.ReadAsync(x, 0, m)
			if err != nil {
				lost(t, err, p, "")
				break
			}
			events[len(events)-1] = e
		}
		if round%2 == 0 {
			ok(t, free())
			ok(t, freeOther())
		}
		again, freeAgain := hostMemory(t, d, 4096) // a lost device has no fast memory
		again[0] = 1
		_ = d.Close()
		if round%2 == 1 {
			m[n-1] = 1
			ok(t, free())
			ok(t, freeOther())
		}
		ok(t, freeAgain())
		p.quiet(t)
	}
	noWorkersLeft(t)
}

// TestManyPieces: more memory than a server maps of one client works like any
// other; when some was freed there is room again.
func TestManyPieces(t *testing.T) {
	p := serve(t, Options{})
	c := open(t, p.sel)
	var files syscall.Rlimit
	ok(t, syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files))
	// each piece keeps a file open
	few := files
	few.Cur = 200
	ok(t, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &few))
	defer func() { ok(t, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &files)) }()
	var list [][]byte
	var frees []func() error
	for range 300 {
		m, free := hostMemory(t, c.d, 4*elements)
		list, frees = append(list, m), append(frees, free)
	}
	ok(t, c.q.Finish()) // the server has the messages
	ok(t, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &files))
	if n := p.regions(t, 4*elements); n < 20 || n >= 300 {
		t.Errorf("%d of 300 pieces are mapped, want some", n)
	}
	ok(t, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &few))
	r := rand.New(rand.NewPCG(3, 3))
	for range 50 {
		from, to := list[r.IntN(300)], list[r.IntN(300)]
		for i := range from {
			from[i] = byte(r.Uint32())
		}
		ok(t, c.q.Write(c.b, 0, from))
		ok(t, c.q.Read(c.b, 0, to))
		if !bytes.Equal(from, to) {
			t.Fatal("other bytes came back")
		}
	}
	for _, free := range frees {
		ok(t, free())
	}
	ok(t, c.q.Finish())
	if n := p.regions(t, 4*elements); n != 0 {
		t.Errorf("%d pieces are mapped, all were freed", n)
	}
	m, free := hostMemory(t, c.d, 4*elements)
	clear(m)
	ok(t, c.q.Finish())
	if n := p.regions(t, 4*elements); n != 1 {
		t.Errorf("%d pieces are mapped, want 1", n)
	}
	ok(t, free())
	ok(t, c.d.Close())
}

// TestUnshareInFlight: a client takes memory back that its commands still use, and
// hangs up: the server keeps what it has mapped until they are complete.
func TestUnshareInFlight(t *testing.T) {
	p := serve(t, Options{})
	key := must(wire.ReadKey(p.sel.KeyFile))(t)
	release := closeGate()
	defer release()
	out, in, hangUp, token := rawUnix(t, p, key)
	const n = 1 << 20
	share := must(wire.Dial(t.Context(), p.addr, key, wire.ForMemory))(t).(*net.UnixConn)
	defer share.Close()
	_, err := share.Write(token)
	ok(t, err)
	f, host, err := shm.New("memory", n)
	ok(t, err)
	defer f.Close()
	defer shm.Free(host)
	ok(t, wire.Grant(share, f, 50, n))
	_, _, _, err = wire.ReadFrame(bufio.NewReader(share), nil)
	ok(t, err)
	ok(t, out.Now(&wire.CreateMem{Req: 1, ID: 1, Mem: driver.Mem{Kind: driver.MemBuffer, Bytes: n}}))
	ok(t, out.Now(&wire.CreateQueue{Req: 2, ID: 2}))
	ok(t, out.Now(&wire.Build{Req: 3, ID: 3, Desc: driver.ProgramDesc{OpenCL: "gated"}}))
	answered := func(req uint64) {
		for reply := (wire.Reply{}); reply.Req != req; {
			op, body, _, err := wire.ReadFrame(in, nil)
			ok(t, err)
			if op == wire.OpReply {
				_ = wire.Decode(body, &reply)
			}
		}
	}
	answered(3)
	ok(t, out.Now(&wire.CreateKernel{Req: 4, ID: 4, Program: 3, Name: "gated"}))
	ok(t, out.Now(&wire.SetArg{Kernel: 4, Arg: wire.Arg{Kind: driver.ArgMem, Object: 1}}))
	ok(t, out.Now(&wire.Launch{Queue: 2, Kernel: 4, Event: 99, Grid: driver.Grid{Dims: 1, Global: [3]int{1, 1, 1}}}))
	for i := range uint64(4) {
		ok(t, out.Now(&wire.Direct{Queue: 2, Mem: 1, Event: 100 + i, Region: 50, Bytes: n, Write: i%2 == 0}))
	}
	ok(t, out.Now(&wire.Unshare{Region: 50}))
	ok(t, out.Now(&wire.Ask{Req: 5, What: wire.AskFree}))
	answered(5) // the server has the message
	if got := p.regions(t, n); got != 1 {
		t.Errorf("%d pieces of memory are mapped, want the one that commands use", got)
	}
	for i := range host {
		host[i] = 7
	}
	release() // memory that is unmapped would end the process here
	for done := (wire.Done{}); done.Event != 103; {
		op, body, _, err := wire.ReadFrame(in, nil)
		ok(t, err)
		if op == wire.OpDone {
			_ = wire.Decode(body, &done)
			ok(t, done.Err)
		}
	}
	hangUp()
	p.quiet(t)
}

// rawUnix returns a client that speaks the protocol by hand, through rings.
func rawUnix(t *testing.T, p *place, key wire.Key) (out *wire.Sender, in *bufio.Reader, hangUp func(), token []byte) {
	t.Helper()
	c := must(wire.Dial(t.Context(), p.addr, key, wire.ForDevice))(t).(*net.UnixConn)
	first := bufio.NewReader(c)
	_, _, _, err := wire.ReadFrame(first, nil)
	ok(t, err)
	f, arena, err := shm.New("memory", wire.SharedBytes)
	ok(t, err)
	ok(t, wire.Grant(c, f, 1, wire.SharedBytes))
	ok(t, f.Close())
	say(t, c, &wire.Open{Req: 0, Index: 0})
	op, body, _, err := wire.ReadFrame(first, nil)
	ok(t, err)
	var reply wire.Reply
	if _ = wire.Decode(body, &reply); op != wire.OpReply || reply.Err != nil {
		t.Fatalf("operation %d, %v", op, reply.Err)
	}
	ring := must(wire.NewRing(c, arena, true))(t)
	return wire.NewSender(ring, 0), bufio.NewReader(ring), func() {
		ok(t, ring.Close())
		ring.Release()
		ok(t, shm.Free(arena))
	}, reply.Body
}

// TestCaptureWithoutFiles: where a process can make no more memory that the server
// maps, captures are read all the same.
func TestCaptureWithoutFiles(t *testing.T) {
	p := serve(t, Options{})
	c := open(t, p.sel)
	defer c.d.Close()
	ok(t, c.step())
	var was unix.Rlimit
	ok(t, unix.Getrlimit(unix.RLIMIT_FSIZE, &was))
	ok(t, unix.Setrlimit(unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: 4096, Max: was.Max}))
	defer func() { ok(t, unix.Setrlimit(unix.RLIMIT_FSIZE, &was)) }()
	capture := must(c.d.Capture(t.Context(), nil))(t)
	got := make([]float32, elements)
	ok(t, capture.ReadAt(t.Context(), 0, gpustate.Bytes(got), 0))
	ok(t, capture.Release())
	if got[elements-1] != 1 {
		t.Errorf("got %g, want 1", got[elements-1])
	}
}

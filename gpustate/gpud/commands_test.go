package gpud

import (
	"bytes"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-hpc/holdfast/gpustate"
)

// both runs a test through shared memory and through TCP.
func both(t *testing.T, test func(t *testing.T, o Options)) {
	t.Run("unix", func(t *testing.T) { test(t, Options{}) })
	t.Run("tcp", func(t *testing.T) { test(t, Options{Listen: []string{"127.0.0.1:0"}}) })
}

// TestLateError: a command that fails after its call returned is named by the
// next call that waits, once, and the queue goes on.
func TestLateError(t *testing.T) {
	both(t, func(t *testing.T, o Options) {
		p := serve(t, o)
		c := open(t, p.sel)
		defer c.d.Close()
		ok(t, c.q.Finish())
		c.fault(t, 'l', 2)
		for range 3 {
			ok(t, c.step())
		}
		err := c.q.Finish()
		var command *gpustate.CommandError
		if !errors.As(err, &command) || !strings.Contains(command.Command, `launch of kernel "count"`) {
			t.Fatalf("got %v, want a CommandError that names the kernel", err)
		}
		ok(t, c.q.Finish())
		c.n-- // the one that failed added nothing
		ok(t, c.check())

		// on a queue with an event for each command the event tells
		loose := must(c.d.QueueWith("loose", gpustate.QueueOptions{OutOfOrder: true}))(t)
		c.fault(t, 'l', 1)
		bad := must(loose.Launch(c.k, []int{1}, nil))(t)
		if err := bad.Wait(); !errors.As(err, &command) {
			t.Errorf("got %v, want a CommandError", err)
		}
		if _, err := loose.Launch(c.k, []int{1}, nil, bad); err == nil {
			t.Error("a command that waits for a failed one was issued")
		}
		c.fault(t, 'r', 1)
		if err := c.q.Read(c.b, 0, make([]byte, 8)); !errors.As(err, &command) ||
			!strings.Contains(err.Error(), "read of a buffer") {
			t.Errorf("got %v, want a CommandError that names the read", err)
		}
		ok(t, c.check())
		// in a capture the program's own error stays the program's
		c.fault(t, 'l', 1)
		must(c.q.Launch(c.k, []int{1}, nil))(t)
		capture := must(c.d.Capture(t.Context(), nil))(t)
		ok(t, capture.Release())
		if err := c.q.Finish(); !errors.As(err, &command) {
			t.Errorf("after a capture: got %v, want the CommandError", err)
		}
	})
}

// TestWriteAhead: a write that blocks does not wait for the device, and yet
// no later command overtakes it, on any queue. The next call that waits returns its
// failure, and names it.
func TestWriteAhead(t *testing.T) {
	both(t, func(t *testing.T, o Options) {
		p := serve(t, o)
		c := open(t, p.sel)
		defer c.d.Close()
		gated := must(must(c.d.Program("p", gpustate.Sources{OpenCL: "count gated"}, ""))(t).Kernel("gated"))(t)
		ok(t, gated.SetArgs(c.b))
		for name, opt := range map[string]gpustate.QueueOptions{"in order": {}, "out of order": {OutOfOrder: true}} {
			q := must(c.d.QueueWith(name, opt))(t)
			other := must(c.d.Queue("other"))(t)
			release := closeGate()
			held := must(q.Launch(gated, []int{1}, nil))(t)
			src := bytes.Repeat([]byte{1, 2, 3, 4}, elements)
			must(q.Copy(c.b, 0, c.b, 4, 4, held))(t)
			ok(t, q.Write(c.b, 0, src)) // the gate is closed
			got := make([]byte, len(src))
			e := must(other.ReadAsync(c.b, 0, got))(t)
			same := must(q.ReadAsync(c.b, 0, make([]byte, 8)))(t)
			clear(src)
			if opt.OutOfOrder == false {
				if done, err := e.Done(); done || err != nil {
					t.Errorf("%s: a read of another queue is complete before the write: %v", name, err)
				}
			}
			release()
			ok(t, e.Wait())
			ok(t, same.Wait())
			if !bytes.Equal(got, bytes.Repeat([]byte{1, 2, 3, 4}, elements)) {
				t.Errorf("%s: a read of another queue overtook the write", name)
			}
			ok(t, q.Finish())

			c.fault(t, 'w', 1)
			err := q.Write(c.b, 0, src)
			if err == nil && !opt.OutOfOrder {
				if err := q.Read(c.b, 0, got); !strings.Contains(fmt.Sprint(err), "write of a buffer") {
					t.Errorf("%s: the next read: got %v, want the failure of the write", name, err)
				}
			}
			if err == nil {
				err = q.Finish()
			}
			var command *gpustate.CommandError
			if !errors.As(err, &command) || !strings.Contains(command.Command, "write of a buffer") {
				t.Errorf("%s: got %v, want a CommandError that names the write", name, err)
			}
			ok(t, q.Write(c.b, 0, src))
			ok(t, q.Finish())
			ok(t, q.Read(c.b, 0, got))
			if !bytes.Equal(got, src) {
				t.Errorf("%s: other bytes came back after a failure", name)
			}
		}
	})
}

// TestManyCores: the same where waits stay awake and pieces are copied by several.
func TestManyCores(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(8))
	t.Run("LateError", TestLateError)
	t.Run("WriteAhead", TestWriteAhead)
	t.Run("HostMemory", TestHostMemory)
	t.Run("SharedMemory", TestSharedMemory)
	t.Run("Lost", TestLost)
}

// repeat fills b with what of gives for the first n bytes, over and over: byte by byte the race detector would look at
// each.
func repeat(b []byte, n int, of func(i int) byte) {
	for i := range n {
		b[i] = of(i)
	}
	for ; n < len(b); n *= 2 {
		copy(b[n:], b[:n])
	}
}

// TestHostMemory: memory of a write may change as soon as its event, or a call
// that blocks, is over, however large it is; pieces arrive in order.
func TestHostMemory(t *testing.T) {
	both(t, func(t *testing.T, o Options) {
		p := serve(t, o)
		d := must(gpustate.Open(p.sel))(t)
		defer d.Close()
		q := must(d.Queue("q"))(t)
		const n = 40<<20 + 13 // more than all slots
		b := must(d.Buffer("b", n))(t)
		src := make([]byte, n)
		repeat(src, 2048, func(i int) byte { return byte(i * 7 >> 3) })
		want := bytes.Clone(src)
		e := must(q.WriteAsync(b, 0, src))(t)
		ok(t, e.Wait())
		clear(src)
		got := make([]byte, n)
		e = must(q.ReadAsync(b, 0, got))(t)
		second := must(q.WriteAsync(b, 5, src[:1<<20]))(t) // behind the read
		ok(t, e.Wait())
		if !bytes.Equal(got, want) {
			t.Error("other bytes came back")
		}
		ok(t, second.Wait())
		copy(want[5:], src[:1<<20])
		ok(t, q.Read(b, 3, got[:n-3]))
		if !bytes.Equal(got[:n-3], want[3:]) {
			t.Error("other bytes came back from an odd offset")
		}
	})
}

// TestSharedMemory: host buffers are mapped by the server, go along when the
// program moves, and are let go.
func TestSharedMemory(t *testing.T) {
	a := serve(t, Options{})
	b := serve(t, Options{KeyFile: a.sel.KeyFile})
	far := serve(t, Options{KeyFile: a.sel.KeyFile, Listen: []string{"127.0.0.1:0"}})
	const n = 5<<20 + 7
	mapped := func(p *place) int { return p.regions(t, n) }
	d := must(gpustate.Open(a.sel))(t)
	q := must(d.Queue("q"))(t)
	x := must(d.Buffer("x", n))(t)
	h := must(d.HostBuffer("h", n))(t)
	if mapped(a) != 1 {
		t.Errorf("the server has mapped %d host buffers, want 1", mapped(a))
	}
	for i := range h.Host() {
		h.Host()[i] = byte(i * 11 >> 4)
	}
	want := bytes.Clone(h.Host())
	home := gpustate.Select{Kind: "fake"}
	for i, to := range []gpustate.Select{a.sel, b.sel, far.sel, home, a.sel} {
		ok(t, d.MigrateTo(t.Context(), to))
		if !bytes.Equal(h.Host(), want) {
			t.Fatalf("move %d: the host buffer has other bytes", i)
		}
		ok(t, q.Write(x, 0, h.Host()))
		clear(h.Host())
		e := must(q.ReadAsync(x, 3, h.Host()[1:n-5]))(t)
		ok(t, e.Wait())
		if !bytes.Equal(h.Host()[1:n-5], want[3:n-3]) {
			t.Fatalf("move %d: other bytes came back", i)
		}
		got := make([]byte, n)
		ok(t, q.Read(x, 0, got))
		if !bytes.Equal(got, want) {
			t.Fatalf("move %d: other bytes came back through the slots", i)
		}
		copy(h.Host(), want)
		c := must(d.Capture(t.Context(), nil))(t)
		ok(t, c.ReadAt(t.Context(), 0, got, 0))
		if !bytes.Equal(got, want) {
			t.Fatalf("move %d: other bytes were captured", i)
		}
		ok(t, c.Release())
	}
	b.quiet(t) // the server that the program left
	far.quiet(t)
	for len(a.list()) > 1 { // the connections before the last one
		time.Sleep(time.Millisecond)
	}
	before := mapped(a)
	ok(t, h.Release())
	ok(t, q.Finish())
	if mapped(a) != before-1 {
		t.Errorf("%d of %d pieces of memory are still mapped", mapped(a), before)
	}
	ok(t, d.Close())
}

// The figures are of a device that does nothing: what the way to it costs.

func BenchmarkLaunch(b *testing.B) {
	c := open(b, serve(b, Options{}).sel)
	defer c.d.Close()
	b.ReportAllocs()
	for b.Loop() {
		ok(b, c.k.SetArg(0, c.b))
		ok(b, c.step())
	}
	ok(b, c.q.Finish())
}

func BenchmarkLaunchAndWait(b *testing.B) {
	c := open(b, serve(b, Options{}).sel)
	defer c.d.Close()
	b.ReportAllocs()
	for b.Loop() {
		ok(b, c.step())
		ok(b, c.q.Finish())
	}
}

func BenchmarkTransfer(b *testing.B) {
	const most = 4 << 20
	d := must(gpustate.Open(serve(b, Options{}).sel))(b)
	defer d.Close()
	q := must(d.Queue("q"))(b)
	x := must(d.Buffer("x", most))(b)
	for _, n := range []int{64 << 10, 1 << 20, most} {
		host := make([]byte, n)
		for name, move := range map[string]func(gpustate.Linear, int, []byte) error{"write": q.Write, "read": q.Read} {
			b.Run(fmt.Sprintf("%s/%dKiB", name, n>>10), func(b *testing.B) {
				b.SetBytes(int64(n))
				b.ReportAllocs()
				for b.Loop() {
					ok(b, move(x, 0, host))
				}
				ok(b, q.Finish())
			})
		}
	}
}

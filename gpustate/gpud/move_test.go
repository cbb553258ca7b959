package gpud

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-hpc/holdfast/gpustate"
)

// TestMoves: programs run while an admin moves them between two servers, through
// shared memory and TCP, from device to device and to their own machine.
func TestMoves(t *testing.T) {
	a := serve(t, Options{})
	b := serve(t, Options{Listen: []string{"127.0.0.1:0"}, KeyFile: a.sel.KeyFile})
	var stop = make(chan struct{})
	var running sync.WaitGroup
	programs := make([]*counter, 3)
	for i := range programs {
		c := open(t, a.sel)
		programs[i] = c
		running.Go(func() { again(t, stop, c.step) })
	}
	r := rand.New(rand.NewPCG(4, 4))
	moves := 0
	for range 8 {
		for _, from := range []*place{a, b} {
			to := []string{"remote=" + a.addr + ",fake", "remote=" + b.addr + ",#1", "fake:1"}[r.IntN(3)]
			if moves < 20 && to == "fake:1" {
				to = "remote=" + b.addr + ",fake:1" // once it is on its own machine it stays there
			}
			for _, m := range moveAll(t, from, to) {
				moves++
				var steps gpustate.Migration
				ok(t, json.Unmarshal(m.Steps, &steps))
				if steps.Bytes != 4*elements || steps.Total <= 0 {
					t.Errorf("steps are %+v", steps)
				}
			}
		}
	}
	close(stop)
	running.Wait()
	for _, c := range programs {
		ok(t, c.check())
		ok(t, c.d.Close())
	}
	if moves < 10 {
		t.Errorf("only %d moves", moves)
	}
}

// TestMoveRefused: a program whose move fails continues where it is.
func TestMoveRefused(t *testing.T) {
	a := serve(t, Options{})
	c := open(t, a.sel)
	defer c.d.Close()
	admin := must(DialAdmin(t.Context(), a.addr, MoveKeyFile(a.sel.KeyFile)))(t)
	defer admin.Close()
	for to, want := range map[string]string{
		"remote=unix:/nowhere/s":               "is `holdfast gpud` running there?",
		"remote=" + a.addr + ",no such device": "has no such device",
		"fake:x":                               "want WORD or WORD:INDEX",
	} {
		if _, err := admin.Move(t.Context(), 1, to); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("to %q: got %v, want it to say %q", to, err, want)
		}
		ok(t, c.step())
	}
	if _, err := admin.Move(t.Context(), 77, "fake"); err == nil {
		t.Error("a client that is not there was moved")
	}
	ok(t, c.check())
}

// TestEvacuate: all programs go to the peers, new ones are refused, and the
// server can then leave without anybody's loss.
func TestEvacuate(t *testing.T) {
	b := serve(t, Options{})
	full := serve(t, Options{MaxClients: 1, KeyFile: b.sel.KeyFile})
	a := serve(t, Options{KeyFile: b.sel.KeyFile, Peers: []string{full.addr + ",fake", b.addr + ",fake"}})
	var list []*counter
	for range 4 {
		c := open(t, a.sel)
		ok(t, c.step())
		list = append(list, c)
	}
	moved := must(a.Evacuate(context.Background()))(t)
	if len(moved) != 4 {
		t.Fatalf("got %d moves, want 4", len(moved))
	}
	for _, m := range moved {
		if m.Err != "" {
			t.Error(m.Err)
		}
	}
	if _, err := gpustate.Open(a.sel); !errors.Is(err, gpustate.ErrRefused) {
		t.Errorf("got %v, want ErrRefused", err)
	}
	a.Leave(context.Background())
	if n := len(full.list()); n != 1 {
		t.Errorf("%d programs on a server for one", n)
	}
	for _, c := range list {
		ok(t, c.step())
		ok(t, c.check())
		ok(t, c.d.Close())
	}
	lonely := serve(t, Options{})
	if _, err := lonely.Evacuate(context.Background()); err == nil {
		t.Error("an evacuation to nowhere succeeded")
	}
}

// TestEvacuateOthers: a program that cannot move for long keeps no other from being
// moved, and moves when it can.
func TestEvacuateOthers(t *testing.T) {
	b := serve(t, Options{})
	a := serve(t, Options{KeyFile: b.sel.KeyFile, Peers: []string{b.addr + ",fake"}})
	var list []*counter
	for range 3 {
		list = append(list, open(t, a.sel))
		defer list[len(list)-1].d.Close()
	}
	first := list[0]
	gated := must(must(first.d.Program("p", gpustate.Sources{OpenCL: "count gated"}, ""))(t).Kernel("gated"))(t)
	ok(t, gated.SetArgs(first.b))
	release := closeGate()
	defer release()
	must(first.q.Launch(gated, []int{1}, nil))(t)
	ok(t, first.q.Flush())
	var moved []Moved
	var err error
	over := make(chan struct{})
	go func() {
		defer close(over)
		moved, err = a.Evacuate(t.Context())
	}()
	for deadline := time.Now().Add(time.Minute); a.clients() > 1; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d programs are still there, want only the one in a long kernel", a.clients())
		}
	}
	select {
	case <-over:
		t.Error("the evacuation is over before the last program has moved")
	default:
	}
	release()
	<-over
	ok(t, err)
	for i, m := range moved {
		if m.Err != "" || m.Client == 0 {
			t.Errorf("move %d: %+v", i, m)
		}
	}
	for _, c := range list {
		ok(t, c.step())
		ok(t, c.check())
	}
}

// TestStream moves a buffer of an odd size in several pieces, between servers of one key and of two.
func TestStream(t *testing.T) {
	a := serve(t, Options{})
	b := serve(t, Options{KeyFile: a.sel.KeyFile, Listen: []string{"127.0.0.1:0"}})
	other := serve(t, Options{})
	const n = 70<<20 + 3
	d := must(gpustate.Open(a.sel))(t)
	defer d.Close()
	q := must(d.Queue("q"))(t)
	x := must(d.Buffer("x", n))(t)
	src := make([]byte, n)
	repeat(src, 8192, func(i int) byte { return byte(i * 13 >> 5) })
	ok(t, q.Write(x, 0, src))
	got := make([]byte, n)
	for i, to := range []*place{b, a, other} {
		m := must(d.Migrate(t.Context(), to.sel))(t)
		if m.Bytes != n {
			t.Errorf("move %d: %d bytes, want %d", i, m.Bytes, n)
		}
		ok(t, q.Read(x, 0, got))
		if !bytes.Equal(got, src) {
			t.Fatalf("move %d: other bytes arrived", i)
		}
	}
}

// TestEventsOverMove: an event that somebody asked for before a move, and did not
// wait for, is complete after it and says nothing about the new place's commands.
func TestEventsOverMove(t *testing.T) {
	both(t, func(t *testing.T, o Options) {
		a := serve(t, o)
		o.KeyFile = a.sel.KeyFile
		b := serve(t, o)
		c := open(t, a.sel)
		defer c.d.Close()
		other := must(c.d.Queue("other"))(t)
		var before []*gpustate.Event
		for range 200 {
			e := must(c.q.Launch(c.k, []int{elements}, nil))(t)
			must(other.Marker(e))(t)
			before = append(before, e)
		}
		c.n += len(before)
		ok(t, c.d.MigrateTo(t.Context(), b.sel))
		gated := must(must(c.d.Program("p", gpustate.Sources{OpenCL: "count gated"}, ""))(t).Kernel("gated"))(t)
		ok(t, gated.SetArgs(c.b))
		free := must(c.d.QueueWith("free", gpustate.QueueOptions{OutOfOrder: true, Window: -1}))(t)
		release := closeGate()
		defer release()
		held := must(free.Launch(gated, []int{1}, nil))(t)
		var after []*gpustate.Event
		for range 4 * len(before) {
			after = append(after, must(free.Marker(held))(t))
		}
		for i, e := range before {
			if done, err := e.Done(); !done || err != nil {
				t.Fatalf("command %d, issued before the move: complete is %v, %v", i, done, err)
			}
		}
		for i, e := range after {
			if done, err := e.Done(); done || err != nil {
				t.Fatalf("command %d, issued after the move, is not complete: got %v, %v", i, done, err)
			}
		}
		release()
		ok(t, free.Finish())
		ok(t, c.check())
	})
}

// TestSharedOnce: each byte of shared memory crosses the connection once for a capture,
// a move away and a move here.
func TestSharedOnce(t *testing.T) {
	const n = 24 << 20 // pieces and more
	a := serve(t, Options{})
	d := must(gpustate.Open(a.sel))(t)
	defer d.Close()
	q := must(d.Queue("q"))(t)
	s := must(d.Shared("s", n))(t)
	src := make([]byte, n)
	repeat(src, 8192, func(i int) byte { return byte(i * 13 >> 5) })
	ok(t, q.Write(s, 0, src))
	ok(t, q.Finish())
	before := a.status().Counts
	check := func(what string, read, written int64) {
		t.Helper()
		after := a.status().Counts
		if r, w := after.ReadBytes-before.ReadBytes, after.WrittenBytes-before.WrittenBytes; r != read || w != written {
			t.Errorf("%s: %d bytes read and %d written, want %d and %d", what, r, w, read, written)
		}
		before = after
	}
	c := must(d.Capture(t.Context(), nil))(t)
	check("capture", n, 0)
	ok(t, c.Release())
	ok(t, d.MigrateTo(t.Context(), gpustate.Select{Kind: "fake"}))
	check("move away", n, 0)
	ok(t, d.MigrateTo(t.Context(), a.sel))
	check("move here", 0, n)
	got := make([]byte, n)
	ok(t, q.Read(s, 0, got))
	if !bytes.Equal(got, src) {
		t.Error("other bytes arrived")
	}
}

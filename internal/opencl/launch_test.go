package opencl

import (
	"context"
	"encoding/binary"
	"errors"
	"testing"
	"time"

	"github.com/holdfast-hpc/holdfast/gpustate"
	"github.com/holdfast-hpc/holdfast/gpustate/gputest"
	"github.com/holdfast-hpc/holdfast/internal/opencl/wire"
	"github.com/holdfast-hpc/holdfast/internal/shm"
	"golang.org/x/sys/unix"
)

// TestLaunchKeepsNothing: for a launch without waiters, nothing is made that outlives it, and
// little for an argument.
func TestLaunchKeepsNothing(t *testing.T) {
	s := newBenched(t, "fake:1")
	launch, set := launchOf(benchQueue), argumentOf("abcd")
	carryOut := func(list ...[]byte) func() {
		return func() {
			for _, m := range list {
				s.put(m)
			}
			if err := s.drainAll(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if n := testing.AllocsPerRun(1000, carryOut(launch)); n > 0 {
		t.Errorf("%v allocations for a launch", n)
	}
	if n := testing.AllocsPerRun(1000, carryOut(set, launch)); n > 2 {
		t.Errorf("%v allocations for an argument and a launch", n)
	}
}

// TestRingRoom: the library sees the room in the ring in time, even if a connection has taken out what
// was in it, and the last request is taken out.
func TestRingRoom(t *testing.T) {
	s := newBenched(t, "fake:1")
	launch := launchOf(benchQueue)
	room := func(when string, least uint64) {
		t.Helper()
		read := binary.NativeEndian.Uint64(s.ring.mem[wire.RingRead:])
		if have := wire.RingBytes - (s.out.Count() - read); have < least {
			t.Fatalf("%s the library sees room for %d bytes, want %d", when, have, least)
		}
	}
	for range 3 {
		for have := 0; have+len(launch) <= wire.RingBytes; have += len(launch) {
			s.put(launch)
		}
		written := s.out.Count()
		if err := s.drain(written - uint64(len(launch))); err != nil {
			t.Fatal(err)
		}
		room("after a connection's request", wire.RingBytes-uint64(len(launch)))
		s.ring.mu.Lock()
		for there := true; there; {
			var err error
			if there, err = s.carryOutNext(); err != nil {
				t.Fatal(err)
			}
		}
		s.ring.mu.Unlock()
		room("at the end", wire.RingBytes)
	}
}

// TestLaunchEvent: the event of a launch that was issued at once is there, with the error if it failed,
// and commands of other queues can wait for it.
func TestLaunchEvent(t *testing.T) {
	s := newBenched(t, "fake:1")
	const other = benchBuffer + 1
	s.do(wire.OpCreateQueue, uint64(other), uint64(benchContext), uint64(0), uint32(0))
	good, bad := launchOf(benchQueue), launchOf(benchQueue)
	binary.LittleEndian.PutUint64(good[wire.HeaderBytes+8:], 77)
	binary.LittleEndian.PutUint64(bad[wire.HeaderBytes+8:], 78)
	binary.LittleEndian.PutUint64(bad[len(bad)-8:], 1<<20)
	binary.LittleEndian.PutUint64(bad[len(bad)-16:], 1<<20)
	behind := func(of, event uint64) []byte {
		return message(wire.OpLaunch, uint64(other), event, []uint64{of}, uint64(benchKernel), uint32(1), uint32(1),
			uint64(0), uint64(1), uint64(1))
	}
	for _, m := range [][]byte{good, bad, behind(77, 79), behind(78, 80)} {
		s.put(m)
	}
	if err := s.drainAll(); err != nil {
		t.Fatal(err)
	}
	for id, want := range map[uint64]int32{77: clSuccess, 78: clInvalidWorkGroupSize, 79: clSuccess,
		80: clWaitListFailure} {
		e := s.events[id]
		if e == nil {
			t.Fatalf("there is no event %d", id)
		}
		if got := codeOf(s.wait(e)); got != want {
			t.Errorf("event %d: %d, want %d", id, got, want)
		}
		if e.issue(nil) {
			t.Errorf("event %d is issued twice", id)
		}
	}
	q, err := find[*queue](s.Server, benchQueue)
	if err != nil {
		t.Fatal(err)
	}
	if err := q.finish(); err != nil { // the event has the error
		t.Errorf("finish: %v", err)
	}
	s.put(good)
	if err := s.drainAll(); !errors.Is(err, wire.ErrProtocol) {
		t.Errorf("an event's number again: %v", err)
	}
}

// TestKeptValue: a launch that is kept back has the values of its arguments, whatever comes through the
// ring after it.
func TestKeptValue(t *testing.T) {
	s := newBenched(t, "fake:1")
	k, err := find[*kernel](s.Server, benchKernel)
	if err != nil {
		t.Fatal(err)
	}
	s.put(argumentOf("kept"))
	if err := s.drainAll(); err != nil {
		t.Fatal(err)
	}
	kept := k.args[1].value
	s.put(argumentOf("next"))
	s.put(launchOf(benchQueue))
	if err := s.drainAll(); err != nil {
		t.Fatal(err)
	}
	if got := string(kept.(gpustate.Value)); got != "kept" {
		t.Errorf("the value became %q", got)
	}
}

// TestLaunchFails: the error of a launch without waiters comes to the next finish of its queue,
// and only there.
func TestLaunchFails(t *testing.T) {
	s := newBenched(t, "fake:1")
	q, err := find[*queue](s.Server, benchQueue)
	if err != nil {
		t.Fatal(err)
	}
	bad := launchOf(benchQueue)
	binary.LittleEndian.PutUint64(bad[len(bad)-8:], 1<<20) // work-items of a work-group
	binary.LittleEndian.PutUint64(bad[len(bad)-16:], 1<<20)
	for _, m := range [][]byte{launchOf(benchQueue), bad, launchOf(benchQueue)} {
		s.put(m)
	}
	if err := s.drainAll(); err != nil {
		t.Fatal(err)
	}
	if err := q.finish(); codeOf(err) != clInvalidWorkGroupSize {
		t.Errorf("finish: %v", err)
	}
	if err := q.finish(); err != nil {
		t.Errorf("finish again: %v", err)
	}
}

// benched is a server without its goroutines: a test carries out what is in the ring itself.
type benched struct {
	*Server
	b   testing.TB
	out shm.RingWriter // the library's side of the ring
}

const (
	benchContext = iota + 1
	benchQueue
	benchProgram
	benchKernel
	benchBuffer
)

// newBenched makes a server with a kernel of two arguments, on a device that does nothing.
func newBenched(b testing.TB, device string) *benched {
	b.Cleanup(gputest.Idle())
	sel, err := gpustate.ParseSelect(device)
	if err != nil {
		b.Fatal(err)
	}
	near, far := pair(b)
	_ = far.Close()
	f, err := sealed(wire.RingData + wire.RingBytes)
	if err != nil {
		b.Fatal(err)
	}
	s := &benched{Server: newServer(near, Options{Select: sel, One: true}), b: b}
	if s.ring, err = newRing(f); err != nil {
		b.Fatal(err)
	}
	_ = f.Close()
	s.out = shm.NewRingWriter(s.ring.mem, ringLayout)
	b.Cleanup(func() {
		s.finish(context.Canceled)
		s.close()
		if s.why != context.Canceled {
			b.Error(s.why)
		}
	})
	s.do(wire.OpHello, uint32(wire.Version), uint32(1), "bench")
	s.do(wire.OpContext, uint64(benchContext), []uint64{0})
	s.do(wire.OpCreateQueue, uint64(benchQueue), uint64(benchContext), uint64(0), uint32(0))
	s.do(wire.OpBuild, uint64(benchProgram), uint64(benchContext), uint64(0), uint32(0), []uint64{0}, "", uint32(1),
		"busy", "")
	s.do(wire.OpCreateKernel, uint64(benchKernel), uint64(benchProgram), "busy")
	s.do(wire.OpCreateBuffer, uint64(benchBuffer), uint64(benchContext), uint32(0), uint64(4096))
	s.do(wire.OpSetArg, uint64(benchKernel), uint32(0), uint32(1), uint64(benchBuffer), "")
	s.do(wire.OpSetArg, uint64(benchKernel), uint32(1), uint32(4), uint64(0), "abcd")
	return s
}

// do carries out one request as one of a connection.
func (s *benched) do(op uint32, fields ...any) {
	s.b.Helper()
	r, err := operations[op](&handler{Server: s.Server}, &wire.Request{Op: op, Body: pack(fields...)})
	if err != nil || r.status != 0 {
		s.b.Fatalf("operation %d: %v %+v", op, err, r)
	}
}

// message returns a request as it is in the ring.
func message(op uint32, fields ...any) []byte {
	body := pack(fields...)
	b := append(wire.Header(len(body), op, 0, 0), body...)
	return append(b, make([]byte, -len(b)&7)...)
}

// launchOf returns a launch of one work-item on a queue, without an event.
func launchOf(queue int) []byte {
	return message(wire.OpLaunch, uint64(queue), uint64(0), []uint64{}, uint64(benchKernel), uint32(1), uint32(1),
		uint64(0), uint64(1), uint64(1))
}

// argumentOf sets the second argument of the kernel.
func argumentOf(value string) []byte {
	return message(wire.OpSetArg, uint64(benchKernel), uint32(1), uint32(4), uint64(0), value)
}

// put writes a request into the ring.
func (s *benched) put(b []byte) {
	if n, err := s.out.Write(b); n < len(b) || err != nil {
		s.b.Fatalf("%d bytes of %d into the ring: %v", n, len(b), err)
	}
}

// BenchmarkLaunch measures what the server takes for a launch, beside what the device takes.
func BenchmarkLaunch(b *testing.B) {
	launch, value := launchOf(benchQueue), argumentOf("abcd")
	eventful, forget := launchOf(benchQueue), message(wire.OpForget, uint64(77))
	binary.LittleEndian.PutUint64(eventful[wire.HeaderBytes+8:], 77)
	same := message(wire.OpSetArg, uint64(benchKernel), uint32(0), uint32(1), uint64(benchBuffer), "")
	for _, device := range []string{"fake:0", "fake:1"} { // with events for each launch, and without
		for name, set := range map[string][]byte{"arguments as they are": nil, "one changed": value, "one again": same,
			"with an event": nil} {
			b.Run(device+"/"+name, func(b *testing.B) {
				s := newBenched(b, device)
				b.ReportAllocs()
				n, begin := uint32(0), cpuTime()
				for b.Loop() {
					if set != nil {
						if name == "one changed" {
							n++
							binary.LittleEndian.PutUint32(value[len(value)-4:], n)
						}
						s.put(set)
					}
					if name == "with an event" {
						s.put(eventful)
						s.put(forget)
					} else {
						s.put(launch)
					}
					if err := s.drainAll(); err != nil {
						b.Fatal(err)
					}
				}
				b.ReportMetric(float64(cpuTime()-begin)/float64(b.N), "cpu-ns/op")
			})
		}
	}
}

// cpuTime returns what this process has used, which other work on the machine changes less than the time
// that passed.
func cpuTime() time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

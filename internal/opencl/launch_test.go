package opencl

import (
	"encoding/binary"
	"errors"
	"testing"

	"github.com/holdfast-hpc/holdfast/gpustate"
	"github.com/holdfast-hpc/holdfast/internal/opencl/wire"
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
		if e.issue(nil, nil) {
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

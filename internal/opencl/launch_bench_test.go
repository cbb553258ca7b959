package opencl

import (
	"context"
	"encoding/binary"
	"testing"
	"time"

	"github.com/holdfast-hpc/holdfast/gpustate"
	"github.com/holdfast-hpc/holdfast/gpustate/gputest"
	"github.com/holdfast-hpc/holdfast/internal/opencl/wire"
	"github.com/holdfast-hpc/holdfast/internal/shm"
	"golang.org/x/sys/unix"
)

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

// message is a request as it is in the ring.
func message(op uint32, fields ...any) []byte {
	body := pack(fields...)
	b := append(wire.Header(len(body), op, 0, 0), body...)
	return append(b, make([]byte, -len(b)&7)...)
}

// launchOf is a launch of one work-item on a queue, without an event.
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

// cpuTime is what this process has used, which other work on the machine changes less than the time
// that passed.
func cpuTime() time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

package request

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"runtime"
	"slices"
	"sync/atomic"
	"unsafe"

	"github.com/holdfast-hpc/holdfast/mpiwrap/internal/devmsg"
	"github.com/holdfast-hpc/holdfast/mpiwrap/internal/driver"
)

// Large messages go straight from and to device memory where the MPI library takes its addresses:
// it has said so, and a trial with the device has shown it. Each side does it or not for itself,
// since the pieces are the same.
//
//   - A sender does it in calls that return when the message is sent, if the receiver stands in a
//     call that takes the pieces: see the offer. In a call that receives as well, both
//     go on at once. Commands that the program enqueues after another send could overwrite the memory
//     before MPI has read it.
//   - A receiver does it for pieces that come over MPI, in calls that wait for them.
//   - A rank in a collective that only moves bytes does it for what it sends and receives there.
//
// With ThreadMultiple no rank does it.

// Direct says when messages may go straight from and to device memory.
type Direct int32

// The settings.
const (
	DirectAuto Direct = iota // where the library says that it takes the addresses
	DirectOff
	DirectOn // without asking it: a library that does not take them may crash
)

// verdict is what a trial has shown.
type verdict uint8

const (
	untried verdict = iota
	direct
	staged
)

// way is how messages of a device go in a direction, in pieces of as many bytes as have been tried.
type way struct {
	verdict
	tried int
}

// ways are those from a device and to it.
type ways struct{ out, in way }

// unknown says whether a trial is to come before pieces of n bytes.
func (w *way) unknown(n int) bool { return w.verdict == untried || w.verdict == direct && n > w.tried }

// takes says whether pieces of n bytes have been tried with success.
func (w *way) takes(n int) bool { return w.verdict == direct && n <= w.tried }

// DirectStats counts large messages of device memory, and collectives that were given the memory itself.
// Why says why one did not go directly, or is empty.
type DirectStats struct {
	SentDirect, SentStaged, ReceivedDirect, ReceivedStaged, CollectivesDirect uint64
	Why                                                                       string
}

type directStats struct {
	sentDirect, sentStaged, receivedDirect, receivedStaged, collectivesDirect atomic.Uint64
	why                                                                       atomic.Pointer[string]
}

// DirectStats is what has been counted so far.
func (s *Rank) DirectStats() DirectStats {
	d := &s.Stage.stats
	out := DirectStats{SentDirect: d.sentDirect.Load(), SentStaged: d.sentStaged.Load(),
		ReceivedDirect: d.receivedDirect.Load(), ReceivedStaged: d.receivedStaged.Load(),
		CollectivesDirect: d.collectivesDirect.Load()}
	if why := d.why.Load(); why != nil {
		out.Why = *why
	}
	return out
}

func (s *Rank) because(why string) {
	if old := s.Stage.stats.why.Load(); old == nil || *old != why {
		s.Stage.stats.why.Store(&why)
	}
}

// takes says whether MPI may be given addresses of a device, as far as it says itself.
func (s *Rank) takes(mem devmsg.Memory) bool {
	kind, setting := mem.Kind(), Direct(s.Stage.Direct.Load())
	switch {
	case kind == "host":
		return false
	case setting == DirectOff:
		s.because("it is switched off")
	case s.Concurrent():
		s.because("calls of the program may overlap (ThreadMultiple)")
	case setting == DirectOn, kind == "fake": // whose memory is the host's
		return true
	case slices.Contains(s.Info.Takes, kind):
		return true
	default:
		s.because(s.Info.Name + " does not say that it takes " + kind + " memory")
	}
	return false
}

// waysOf is how messages of the device of mem go.
func (s *Rank) waysOf(mem devmsg.Memory) *ways {
	g := &s.Stage
	g.mu.Lock()
	defer g.mu.Unlock()
	w := g.ways[mem.Device()]
	if w == nil {
		if g.ways == nil {
			g.ways = map[any]*ways{}
		}
		maps.DeleteFunc(g.ways, func(d any, _ *ways) bool { return devmsg.Closed(d) })
		w = &ways{}
		g.ways[mem.Device()] = w
	}
	return w
}

// largest is the largest piece of a message that fills mem.
func largest(mem devmsg.Memory) int { return min(mem.Bytes(), devmsg.Unit(mem.Bytes())) }

// sendsDirect says whether mem may be sent from where it is. The first time it tries, with the
// beginning of mem, which stays as it is.
func (s *Rank) sendsDirect(mem devmsg.Memory) bool {
	if !s.takes(mem) {
		return false
	}
	w, n := &s.waysOf(mem).out, largest(mem)
	if w.unknown(n) {
		*w = way{s.tryOut(mem, n), n}
	}
	return w.takes(n)
}

// receivesDirect says whether pieces of n bytes may be received into mem: a trial has shown it.
func (s *Rank) receivesDirect(mem devmsg.Memory, n int) bool {
	return mem != nil && s.takes(mem) && s.waysOf(mem).in.takes(n)
}

// tryIn tries to receive into the beginning of mem, unless that is known of its device, and leaves it
// as it was. The memory belongs to the library, and what the queue was given ends without the
// program's next call.
func (s *Rank) tryIn(mem devmsg.Memory) (err error) {
	if !s.takes(mem) {
		return nil
	}
	w, n := &s.waysOf(mem).in, largest(mem)
	if w.unknown(n) {
		w.tried = n
		w.verdict, err = s.tryInOnce(mem, n)
	}
	return err
}

// tryOut sends the first n bytes of mem to this rank itself.
func (s *Rank) tryOut(mem devmsg.Memory, n int) verdict {
	want := make([]byte, n)
	if mem.Read(want) != nil {
		return untried // the message says why
	}
	got := opposite(want)
	tried, err := false, error(nil)
	lent := mem.Lend(nil, func(p uintptr) error {
		tried = true
		err = s.toSelf(memoryAt(p, n), got)
		return nil
	})
	return s.judge("from", mem, tried, lent, err, bytes.Equal(got, want))
}

// tryInOnce has this rank send n bytes to the beginning of mem.
func (s *Rank) tryInOnce(mem devmsg.Memory, n int) (verdict, error) {
	before := make([]byte, n)
	if mem.Read(before) != nil {
		return untried, nil
	}
	want := opposite(before)
	tried, err := false, error(nil)
	lent := mem.Lend(nil, func(p uintptr) error {
		tried = true
		err = s.toSelf(want, memoryAt(p, n))
		return nil
	})
	if !tried {
		return s.judge("to", mem, tried, lent, err, false), nil
	}
	got := make([]byte, n)
	read, back := mem.Read(got), mem.Write(before)
	return s.judge("to", mem, tried, lent, errors.Join(err, read), bytes.Equal(got, want)), back
}

// opposite differs from b in every byte.
func opposite(b []byte) []byte {
	c := make([]byte, len(b))
	for i := range b {
		c[i] = ^b[i]
	}
	return c
}

// judge says what a trial has shown. lent is the error of Lend, err that of the message.
func (s *Rank) judge(where string, mem devmsg.Memory, tried bool, lent, err error, same bool) verdict {
	switch {
	case !tried && errors.Is(lent, errors.ErrUnsupported):
		s.because("the memory of the device has no address in this process")
		return staged
	case !tried:
		return untried // the device is closed, say
	case err == nil && same:
		return direct
	case err == nil:
		err = errors.New("other bytes came than were sent")
	}
	s.because(fmt.Sprintf("a trial %s %s memory: %v", where, mem.Kind(), err))
	level := slog.LevelDebug // all ranks find the same: the first one says it for the job, once
	if s.Stage.Self == 0 && !s.Stage.warned {
		level, s.Stage.warned = slog.LevelWarn, true
	}
	slog.Log(context.Background(), level, "mpiwrap: a trial of MPI with device memory failed; messages go through "+
		"host memory, which is right and slower. HOLDFAST_GPU_AWARE=off saves the trial", "library", s.Info.Name,
		"rank", s.Stage.Self, "direction", where+" the device", "memory", mem.Kind(), "error", err)
	return staged
}

// toSelf sends from one memory to another of this rank.
func (s *Rank) toSelf(from, to []byte) error {
	var pin runtime.Pinner
	defer pin.Unpin()
	pin.Pin(unsafe.SliceData(from))
	pin.Pin(unsafe.SliceData(to))
	private := s.Stage.Private.Handle
	in, err := s.Driver.Irecv(to, s.Stage.Self, trialTag, private)
	if err != nil {
		return err
	}
	out, err := s.Driver.Isend(driver.Standard, from, s.Stage.Self, trialTag, private)
	if err != nil {
		_ = s.Driver.Cancel(in)
	}
	st, err2 := s.Driver.Wait(in)
	if err = errors.Join(err, err2); err == nil && int(st.Bytes) != len(to) {
		err = fmt.Errorf("%d bytes came of %d", st.Bytes, len(to))
	}
	if out != 0 {
		_, err2 = s.Driver.Wait(out)
		err = errors.Join(err, err2)
	}
	return err
}

// memoryAt is memory at an address that Lend gave, for MPI: Go must not touch it.
func memoryAt(p uintptr, n int) []byte {
	return unsafe.Slice(*(**byte)(unsafe.Pointer(&p)), n)
}

// inTurn has MPI work on pieces, some at a time, and waits for all that were started.
func (s *Rank) inTurn(h *devmsg.Header, all []byte, start func(piece []byte) (driver.Handle, error),
	ended func(i int, st driver.Status)) (failed error) {
	var pin runtime.Pinner
	defer pin.Unpin()
	pin.Pin(unsafe.SliceData(all))
	const atATime = 64
	handles := make([]driver.Handle, 0, h.Pieces())
	wait := func(i int) {
		if handles[i] == 0 {
			return
		}
		st, err := s.Driver.Wait(handles[i])
		if err == nil {
			ended(i, st)
		} else if failed == nil {
			failed = err
		}
	}
	for i := 0; i < h.Pieces() && failed == nil; i++ {
		off, n := h.Piece(i)
		one, err := start(all[off : off+n])
		if err != nil {
			failed = err
			break
		}
		if handles = append(handles, one); i >= atATime {
			wait(i - atATime)
		}
	}
	for i := max(0, len(handles)-atATime); i < len(handles); i++ {
		wait(i)
	}
	return failed
}

// takeDirect receives the pieces of a message into device memory. It returns false if that is
// not to be, and nothing has been received.
func (s *Rank) takeDirect(h *devmsg.Header, to *sink) (taken bool, err error) {
	n := int(h.Bytes)
	if h.Source == s.Stage.Self || n > to.room() || !s.receivesDirect(to.mem, min(h.Unit, n)) {
		return false, nil
	}
	if to.lent != 0 {
		s.Stage.stats.receivedDirect.Add(1)
		return true, s.pull(h, memoryAt(to.lent, int(h.Bytes)))
	}
	err = to.mem.Lend(to.mark, func(p uintptr) error {
		taken = true
		return s.pull(h, memoryAt(p, int(h.Bytes)))
	})
	if taken {
		s.Stage.stats.receivedDirect.Add(1)
	}
	return taken, err
}

func (s *Rank) pull(h *devmsg.Header, all []byte) error {
	short := false
	err := s.inTurn(h, all, func(piece []byte) (driver.Handle, error) {
		return s.Driver.Irecv(piece, h.Source, h.Tag, s.Stage.Private.Handle)
	}, func(i int, st driver.Status) {
		_, n := h.Piece(i)
		short = short || int(st.Bytes) != n
	})
	if err == nil && short {
		err = fmt.Errorf("rank %d could not read its device memory: %w", h.Source, ErrDevice)
	}
	return err
}

// Lent has MPI work on the memory of a collective as it lies on the device: do gets what dest and src
// lend, which Go must not touch; either may be nil. It returns false if that is not to be, and do has not
// been called; an error then says that a trial could not put back what it had overwritten.
func (s *Rank) Lent(dest, src devmsg.Memory, do func(dest, src []byte) error) (lent bool, err error) {
	for _, mem := range []devmsg.Memory{dest, src} {
		if mem != nil && (mem.Bytes() < devmsg.LargeBytes || mem.Check() != nil) {
			return false, nil
		}
	}
	if src != nil && !s.sendsDirect(src) {
		return false, nil
	}
	if dest != nil {
		if err := s.tryIn(dest); err != nil {
			return false, err
		}
		if !s.receivesDirect(dest, largest(dest)) {
			return false, nil
		}
	}
	begin := func(d, s []byte) error {
		if lent = !Overlap(d, s); !lent {
			return nil
		}
		return do(d, s)
	}
	switch {
	case src == nil:
		err = dest.Lend(nil, func(p uintptr) error { return begin(memoryAt(p, dest.Bytes()), nil) })
	case dest == nil:
		err = src.Lend(nil, func(p uintptr) error { return begin(nil, memoryAt(p, src.Bytes())) })
	default:
		pair, ok := dest.(devmsg.Pair)
		if !ok || dest.Device() != src.Device() {
			return false, nil
		}
		err = pair.LendWith(nil, src, nil, func(p, q uintptr) error {
			return begin(memoryAt(p, dest.Bytes()), memoryAt(q, src.Bytes()))
		})
	}
	if !lent {
		return false, nil // its reason comes again, where it can be told to the others
	}
	s.Stage.stats.collectivesDirect.Add(1)
	return true, err
}

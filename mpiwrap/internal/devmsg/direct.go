package devmsg

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"runtime"
	"slices"
	"unsafe"

	"github.com/holdfast-hpc/holdfast/mpiwrap/internal/driver"
)

// Large messages go straight from and to device memory where the MPI library takes its addresses:
// it has said so, and a trial with the device has shown it. Each side does it or not for itself,
// since the pieces are the same. If both do, and share a slab, the message is one piece: each
// costs MPI some 20 us besides its bytes, and device memory gains nothing by several.
//
//   - A sender does it in calls that return when the message is sent, if the receiver is in a
//     call that takes the pieces: see rendezvous.go. In a call that receives as well, both
//     go on at once. Commands that the program enqueues after another send could overwrite the memory
//     before MPI has read it.
//   - A receiver does it for pieces that come over MPI, in calls that wait for them.
//   - A rank in a collective that only moves bytes does it for its data there.
//
// With ThreadMultiple no rank does it.

// way is how messages of a device go in a direction: directly in pieces of up to bytes, as trials have shown, or
// through host memory if one has failed.
type way struct {
	bytes  int
	staged bool
}

// ways are those from a device and to it.
type ways struct{ out, in way }

// trialBytes is the largest trial: MPI libraries treat longer messages alike.
const trialBytes = 4 << 20

// unknown reports whether a trial is to come before pieces of n bytes.
func (w *way) unknown(n int) bool { return !w.staged && !w.takes(n) }

// takes reports whether pieces of n bytes have been tried with success.
func (w *way) takes(n int) bool { return !w.staged && min(n, trialBytes) <= w.bytes }

// addressable reports whether MPI may be given addresses of a device, as far as the library declares.
func (p *Port) addressable(mem Memory) bool {
	kind := mem.Kind()
	switch {
	case kind == "host":
		return false
	case p.HostOnly.Load():
		p.because("it is switched off")
	case p.Info.Concurrent:
		p.because("calls of the program may overlap (ThreadMultiple)")
	case kind == "fake": // whose memory is the host's
		return true
	case slices.Contains(p.Info.Takes, kind):
		return true
	default:
		p.because(p.Info.Name + " does not say that it takes " + kind + " memory")
	}
	return false
}

// waysOf returns how messages of the device of mem go.
func (p *Port) waysOf(mem Memory) *ways {
	p.mu.Lock()
	defer p.mu.Unlock()
	w := p.ways[mem.Device()]
	if w == nil {
		if p.ways == nil {
			p.ways = map[any]*ways{}
		}
		maps.DeleteFunc(p.ways, func(d any, _ *ways) bool { return Closed(d) })
		w = &ways{}
		p.ways[mem.Device()] = w
	}
	return w
}

// largest returns how many bytes of mem a trial needs.
func largest(mem Memory) int { return min(mem.Bytes(), trialBytes) }

// sendsDirect reports whether mem may be sent from where it is. The first time it tries, with the
// beginning of mem, which stays as it is.
func (p *Port) sendsDirect(mem Memory) bool {
	if !p.addressable(mem) {
		return false
	}
	w, n := &p.waysOf(mem).out, largest(mem)
	if w.unknown(n) {
		_ = p.try(w, mem, n, false)
	}
	return w.takes(n)
}

// receivesDirect reports whether pieces of n bytes may be received into mem: a trial has shown it.
func (p *Port) receivesDirect(mem Memory, n int) bool {
	return mem != nil && p.addressable(mem) && p.waysOf(mem).in.takes(n)
}

// TryIn tries to receive into the beginning of mem, unless that is known of its device, and leaves it as it was. The
// memory belongs to the library, and the queue's commands end without the program's next call.
func (p *Port) TryIn(mem Memory) error {
	if !p.addressable(mem) {
		return nil
	}
	w, n := &p.waysOf(mem).in, largest(mem)
	if w.unknown(n) {
		return p.try(w, mem, n, true)
	}
	return nil
}

// try has this rank send itself n bytes from the beginning of mem, or to it. It restores the overwritten bytes, or
// returns an error.
func (p *Port) try(w *way, mem Memory, n int, in bool) (back error) {
	have := make([]byte, n)
	if mem.Read(have) != nil {
		return nil // the message has the reason
	}
	// host differs from have in every byte.
	host := make([]byte, len(have))
	for i := range have {
		host[i] = ^have[i]
	}
	tried, err := false, error(nil)
	lent := mem.Lend(nil, func(at uintptr) error {
		tried = true
		from, to := memoryAt(at, n), host
		if in {
			from, to = to, from
		}
		err = p.toSelf(from, to)
		return nil
	})
	same := bytes.Equal(host, have)
	if in && tried {
		got := make([]byte, n)
		err = errors.Join(err, mem.Read(got))
		same, back = bytes.Equal(got, host), mem.Write(have)
	}
	if err == nil && !same {
		err = errors.New("other bytes came than were sent")
	}
	switch {
	case !tried && !errors.Is(lent, errors.ErrUnsupported): // the device is closed, say
	case !tried:
		p.because("the memory of the device has no address in this process")
		w.staged = true
	case err != nil:
		w.staged = true
		p.trialFailed(mem, in, err)
	default:
		w.bytes = n
	}
	return back
}

// trialFailed returns the reason why messages of a device go through host memory.
func (p *Port) trialFailed(mem Memory, in bool, err error) {
	where := "from"
	if in {
		where = "to"
	}
	p.because(fmt.Sprintf("a trial %s %s memory: %v", where, mem.Kind(), err))
	level := slog.LevelDebug // all ranks find the same: the first one says it for the job, once
	if p.Self == 0 && !p.warned {
		level, p.warned = slog.LevelWarn, true
	}
	slog.Log(context.Background(), level, "mpiwrap: a trial of MPI with device memory failed; messages go through "+
		"host memory, which is right and slower. HOLDFAST_GPU_AWARE=off saves the trial", "library", p.Info.Name,
		"rank", p.Self, "direction", where+" the device", "memory", mem.Kind(), "error", err)
}

// toSelf sends from one memory to another of this rank.
func (p *Port) toSelf(from, to []byte) error {
	var pin runtime.Pinner
	defer pin.Unpin()
	pin.Pin(unsafe.SliceData(from))
	pin.Pin(unsafe.SliceData(to))
	private := p.Private
	in, err := p.Driver.Irecv(to, p.Self, trialTag, private)
	if err != nil {
		return err
	}
	out, err := p.Driver.Isend(driver.Standard, from, p.Self, trialTag, private)
	if err != nil {
		_ = p.Driver.Cancel(in)
	}
	st, err2 := p.Driver.Wait(in)
	if err = errors.Join(err, err2); err == nil && int(st.Bytes) != len(to) {
		err = fmt.Errorf("%d bytes came of %d", st.Bytes, len(to))
	}
	if out != 0 {
		_, err2 = p.Driver.Wait(out)
		err = errors.Join(err, err2)
	}
	return err
}

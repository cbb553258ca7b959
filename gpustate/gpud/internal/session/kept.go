package session

import (
	"runtime"

	"github.com/holdfast-hpc/holdfast/gpustate/internal/wire"
)

// kept are commands of one in-order queue, oldest first, whose end the reading goroutine finds out itself. Each queue
// has a goroutine that waits in the driver; to wake that one, and to come back from such a wait, takes several us,
// which is much compared with a transfer of 1 MiB. So the reading goroutine asks the driver instead, between messages
// and while it is awake for the next one. The queue's goroutine gets the commands before the reading goroutine sleeps,
// or begins work that may take long.
//
// They belong to the reading goroutine.
type kept struct {
	queue   *queue
	items   []item
	flushed bool // the oldest one
	looks   uint // messages; every so often they are looked at
	handed  bool // a queue's goroutine has something to do since
}

// mostKept bounds them.
const mostKept = 64

// keep keeps a command that was issued; false: its queue's goroutine is to follow it.
func (s *Session) keep(q *queue, i item) bool {
	k := &s.kept
	if len(k.items) > 0 && k.queue != q || len(k.items) >= mostKept {
		s.handOver()
	}
	if s.ring == nil || !s.ring.StaysAwake() || q.desc.OutOfOrder || i.ev == 0 || i.native == 0 || i.err != nil ||
		len(i.after) > 0 || q.followed.Load() > 0 { // those before it are reported first
		s.handOver() // those before it, too
		return false
	}
	k.queue = q
	k.items = append(k.items, i)
	return true
}

// handOver gives the commands that are kept to their queue's goroutine.
func (s *Session) handOver() {
	k := &s.kept
	for _, i := range k.items {
		k.queue.follow(i)
	}
	clear(k.items)
	k.queue, k.items, k.flushed = nil, k.items[:0], false
}

// onWait is called while there is no message.
func (s *Session) onWait(sleeps bool) {
	switch {
	case sleeps:
		s.handOver()
	case s.handed:
		s.handed = false
		runtime.Gosched()
	default:
		s.look()
	}
}

// before is called before a message is carried out.
func (s *Session) before(m wire.Message) {
	const messages = 16
	switch m.(type) {
	case *wire.Launch, *wire.SetArg:
	default:
		s.doBatch()
	}
	switch m.(type) {
	case *wire.Launch, *wire.SetArg, *wire.Transfer, *wire.Direct, *wire.Copy, *wire.Fill, *wire.Marker,
		*wire.Flush, *wire.Forget, *wire.Beat:
		if s.kept.looks++; s.kept.looks%messages == 0 {
			s.look()
		}
	default: // it may take long
		s.handOver()
	}
}

// look completes the kept commands that are complete.
func (s *Session) look() {
	k := &s.kept
	for n := range k.items {
		i := &k.items[n]
		if !k.flushed { // to ask for an event's end does not
			k.flushed = true
			_ = s.drv.Flush(k.queue.h) // a failure here fails the command
		}
		done, err := s.drv.EventDone(i.native)
		if !done && err == nil {
			k.drop(n)
			return
		}
		i.err, i.waited = err, true
		k.queue.complete(*i)
		k.flushed = false
	}
	k.drop(len(k.items))
}

// drop takes the n oldest commands out.
func (k *kept) drop(n int) {
	if n > 0 {
		left := copy(k.items, k.items[n:])
		clear(k.items[left:])
		k.items = k.items[:left]
	}
}

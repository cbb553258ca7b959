package session

import (
	"cmp"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-hpc/holdfast/gpustate/internal/driver"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/wire"
	"github.com/holdfast-hpc/holdfast/internal/sleep"
)

// queue is a queue of a session. Its goroutine follows the commands to their end.
type queue struct {
	s    *Session
	h    driver.Handle
	desc driver.QueueDesc
	lazy bool // the driver gives no events for commands

	items chan item
	ended chan struct{}
	quiet int64 // commands that nothing is followed of; the next item has their number

	unfinished atomic.Int64 // commands
	followed   atomic.Int64 // items that the goroutine has, or will get

	mu     sync.Mutex
	failed error // of the first command without an event that failed since Finish

	// out of order only, guarded by the session's mu
	unreported map[*event]struct{} // whose completion was not sent
	barrier    *event              // the newest; nil for none
}

// ahead bounds the commands of a queue that the server follows: the client's
// next ones wait in the connection.
const ahead = 256

// item is a command that was issued, or failed to be.
type item struct {
	native    driver.Event
	what      string // for errors: "launch of kernel", ...
	name      string
	err       error
	ev        driver.Event // the client's event, 0 for none
	piece     *piece       // of a transfer
	region    *region      // that a transfer uses
	finish    uint64       // a request of Finish, with 1 added
	marker    bool
	barrier   bool
	after     []<-chan struct{} // closed when the completion of those before it was sent
	unawaited bool              // the next call that waits reports a failure
	waited    bool              // for native, err is how that ended
	followed  bool              // the queue's goroutine has it
	before    int64             // quiet commands before it
}

// piece is a slot that is in use.
type piece struct {
	slot  int
	bytes int64 // to send when it is a read without shared memory
}

func (s *Session) createQueue(m *wire.CreateQueue) error {
	if err := s.admit(true); err != nil {
		return err
	}
	q := &queue{s: s, desc: m.Desc, items: make(chan item, ahead), ended: make(chan struct{})}
	if m.Desc.OutOfOrder {
		q.unreported = map[*event]struct{}{}
	}
	d := m.Desc
	d.OutOfOrder = d.OutOfOrder && s.dev.Info.OutOfOrder
	d.Lazy = d.Lazy && s.dev.Info.Lazy
	h, err := s.drv.CreateQueue(d)
	if err != nil {
		return err
	}
	q.h, q.lazy = h, d.Lazy
	go q.run()
	if err := s.enter(m.ID, q); err != nil {
		return err
	}
	s.mu.Lock()
	s.queues++
	s.mu.Unlock()
	return nil
}

// close waits for the commands and releases the queue.
func (q *queue) close() error {
	close(q.items)
	<-q.ended
	err := q.s.drv.Finish(q.h)
	q.over(q.quiet)
	return errors.Join(err, q.s.drv.ReleaseQueue(q.h))
}

// add enters a command; it waits while very many are unfinished.
func (q *queue) add(i item) {
	if i.finish == 0 && i.ev == 0 && i.native == 0 && i.err == nil && i.piece == nil && len(i.after) == 0 {
		q.addQuiet(1)
		return
	}
	if i.finish == 0 {
		q.count(1)
		q.s.usage.Commands.Add(1)
	}
	i.before, q.quiet = q.quiet, 0
	if !q.s.keep(q, i) {
		q.follow(i)
	}
}

// addQuiet enters commands that nothing is followed of.
func (q *queue) addQuiet(n int64) {
	q.count(n)
	q.s.usage.Commands.Add(n)
	q.quiet += n
}

// follow gives a command to the queue's goroutine.
func (q *queue) follow(i item) {
	q.followed.Add(1)
	q.s.handed = true
	i.followed = true
	q.items <- i
}

// over records that commands are complete.
func (q *queue) over(n int64) { q.count(-n) }

// count counts commands that are issued, or complete, as unfinished: with many short ones a queue has no
// more to do than with few long ones.
func (q *queue) count(n int64) {
	counted := func(n int64) int64 {
		if most := int64(q.desc.Window); most > 0 {
			return min(n, most)
		}
		return n
	}
	after := q.unfinished.Add(n)
	if change := counted(after) - counted(after-n); change != 0 {
		q.s.usage.Unfinished.Add(change)
	}
}

// run follows the commands. Those of an in-order queue complete in order, so
// waiting for one with an event completes all before it.
func (q *queue) run() {
	defer close(q.ended)
	var eventless []item // commands without an event that were not looked at yet
	var others sync.WaitGroup
	const most = 64
	completeEventless := func() {
		for _, i := range eventless {
			q.complete(i)
		}
		clear(eventless)
		eventless = eventless[:0]
	}
	var untimed []item // out of order, beyond those that a thread waits for
	for {
		i, more := q.next(&untimed)
		if !more {
			break
		}
		switch {
		case i.finish != 0:
			err := q.s.drv.Finish(q.h)
			q.over(i.before)
			completeEventless()
			untimed = q.completeAll(untimed)
			others.Wait()
			q.followed.Add(-1)
			q.answer(i.finish-1, err)
		case q.desc.OutOfOrder && i.ev != 0 && (i.err != nil || i.native == 0) && i.mayBeReported():
			q.complete(i)
		case q.desc.OutOfOrder && i.ev != 0 && q.s.waiters.TryAcquire(1):
			others.Go(func() {
				defer q.s.waiters.Release(1)
				q.complete(i)
			})
		case q.desc.OutOfOrder && i.ev != 0:
			untimed = append(untimed, i)
			_ = q.s.drv.Flush(q.h) // to ask for an event's end does not; a failure here fails its command
		case i.ev == 0 && i.piece == nil && len(eventless) < most:
			eventless = append(eventless, i)
		default:
			if i.native != 0 && i.err == nil {
				i.err, i.waited = q.wait(i.native), true
			}
			completeEventless()
			q.complete(i)
		}
	}
	completeEventless()
	q.completeAll(untimed)
	others.Wait()
}

// next gives the next command. While there are commands out of order that no thread
// waits for, it asks for their end again and again; when there are very many no more
// commands are taken.
func (q *queue) next(untimed *[]item) (i item, more bool) {
	for pause := (sleep.Backoff{First: 20 * time.Microsecond, Longest: time.Millisecond}); ; {
		in := q.items
		switch {
		case len(*untimed) == 0:
			i, more = <-in
			return i, more
		case len(*untimed) >= ahead:
			in = nil
		}
		if q.sweep(untimed) {
			pause.Last = 0
			continue
		}
		select {
		case i, more = <-in:
			return i, more
		case <-time.After(pause.Next()):
		}
	}
}

// sweep completes the commands that are complete and reports whether there were any.
func (q *queue) sweep(untimed *[]item) bool {
	left := (*untimed)[:0]
	for _, i := range *untimed {
		done := i.native == 0 || i.err != nil
		if !done {
			done, i.err = q.s.drv.EventDone(i.native)
		}
		if !done && i.err == nil || !i.mayBeReported() {
			left = append(left, i)
			continue
		}
		i.waited = true
		q.complete(i)
	}
	some := len(left) < len(*untimed)
	clear((*untimed)[len(left):])
	*untimed = left
	return some
}

func (q *queue) completeAll(untimed []item) []item {
	for _, i := range untimed {
		q.complete(i)
	}
	clear(untimed)
	return untimed[:0]
}

// wait waits for a command. Of several that are complete together the first is waited for: to wait for the
// others takes the driver longer than to say so.
func (q *queue) wait(native driver.Event) error {
	if done, err := q.s.drv.EventDone(native); done || err != nil {
		return err
	}
	return q.s.drv.WaitEvent(native)
}

// mayBeReported reports whether the completion of all commands before this one was sent.
func (i *item) mayBeReported() bool {
	for len(i.after) > 0 {
		select {
		case <-i.after[0]:
			i.after = i.after[1:] // the next call continues here
		default:
			return false
		}
	}
	return true
}

// complete handles the end of one command.
func (q *queue) complete(i item) {
	q.end(i)
	if i.followed { // its completion was sent
		q.followed.Add(-1)
	}
}

// end reports the end of a command: to the client, or for one without an event to its queue.
func (q *queue) end(i item) {
	err := i.err
	if err == nil && i.native != 0 && !i.waited {
		err = q.wait(i.native)
	}
	for _, reported := range i.after {
		<-reported
	}
	if err != nil {
		if !errors.As(err, new(*driver.CommandError)) {
			err = &driver.CommandError{Command: i.what + quoted(i.name), Err: err}
		}
	}
	q.over(1 + i.before)
	if i.region != nil {
		q.s.let(i.region)
	}
	if i.ev == 0 {
		if i.native != 0 {
			q.s.drv.ReleaseEvent(i.native)
		}
		q.note(err)
		return
	}
	done := &wire.Done{Event: uint64(i.ev), Err: err}
	switch {
	case i.unawaited:
		q.note(err)
	case err == nil && (i.marker || !q.desc.OutOfOrder):
		done.Err = q.note(nil)
	}
	if q.desc.Profiling && err == nil && i.native != 0 {
		if t, err := q.s.drv.EventTimes(i.native); err == nil {
			done.Times = &t
		}
	}
	e := q.s.complete(i.ev, done.Err)
	q.report(done, i.piece)
	q.s.markReported(i.ev, e)
}

func quoted(name string) string {
	if name == "" {
		return ""
	}
	return " \"" + name + "\""
}

// note keeps the first failure and gives the one that is kept.
func (q *queue) note(err error) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.failed = cmp.Or(q.failed, err)
	return q.failed
}

// report sends the end of a command. The reader of a broken connection notices that.
func (q *queue) report(done *wire.Done, p *piece) {
	if p == nil {
		_ = q.s.out.Now(done)
		return
	}
	done.Slot = p.slot + 1
	if p.bytes == 0 || done.Err != nil {
		_ = q.s.out.Now(done)
		return
	}
	done.Bytes = p.bytes
	at := p.slot * wire.SlotBytes
	_ = q.s.out.Bulk(done, q.s.stage[at:at+int(p.bytes)])
}

// answer answers Finish with the first failure since the last one.
func (q *queue) answer(req uint64, err error) {
	q.mu.Lock()
	if q.failed != nil {
		err, q.failed = q.failed, nil
	}
	q.mu.Unlock()
	_ = q.s.reply(req, err, nil)
}

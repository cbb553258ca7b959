package mpiwrap

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"
	"unsafe"

	"github.com/holdfast-hpc/holdfast/mpiwrap/internal/driver"
)

// SettleStats says what a drain did on this rank.
type SettleStats struct {
	Messages int   // received during the drain
	Bytes    int64 // waiting in the mailbox afterwards
	Rounds   int   // turns of the loop
	Windows  bool  // some rank of the world has a window: see Settle
}

// Settle empties the network. It is collective over the world: every rank stands
// in its checkpointer and calls it. It completes the program's sends and
// non-blocking collectives, exchanges how many messages each rank has sent to
// each other (8 bytes a pair; in a large world only the pairs with news), receives
// until every message
// counted has come, and returns once all ranks have got that far. Receives that
// the program has posted get the messages MPI matches to them; they stay complete
// for the program's Wait.
//
// Where SettleStats.Windows is set, ranks that go on may reach into each other's
// memory: nobody may, until all have captured theirs.
//
// An open epoch on a window of any rank, or an end of ctx before all is done,
// makes all ranks fail: the error matches ErrDrainIncomplete (ErrEpochOpen too,
// where the epoch is). The mailbox keeps what came, the program may go on, and
// Settle may be tried again.
func (e *Endpoint) Settle(ctx context.Context) (SettleStats, error) {
	a, err := e.guard()
	if err != nil {
		return SettleStats{}, err
	}
	defer a.leave()
	resume, busy := e.hold(ctx, a)
	defer resume()
	e.s.bury() // also if the drain fails: at the cut all members have freed it
	e.s.settles++
	d := drain{e: e, ctx: ctx}
	err = d.run(busy)
	_, d.stats.Bytes, _ = e.mailboxSize()
	return d.stats, err
}

// bury forgets freed communicators: all ranks have freed them by now, and must
// forget them alike, or their counts would never agree again.
func (s *state) bury() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.gone = nil
}

// drain is one Settle.
type drain struct {
	e     *Endpoint
	ctx   context.Context
	stats SettleStats
	spins int
}

// run drains, unless it is late already: then it only takes part. Each drain posts
// exactly two collectives on the private communicator, also when it gives up and
// whatever MPI says meanwhile: ranks stay in step. Where one cannot even be posted, no
// drain succeeds any more.
func (d *drain) run(late error) error {
	if d.e.broken != nil {
		return d.e.broken
	}
	if late == nil {
		late = d.finishDangling()
	}
	if late == nil {
		late = d.complete()
	}
	exchange := d.exchange
	if d.e.sparse() {
		exchange = d.exchangeSparse
	}
	expect := exchange(&late)
	if late == nil {
		late = d.collect(expect)
	}
	return d.agree(late)
}

// complete finishes the program's sends and non-blocking collectives.
func (d *drain) complete() error {
	if err := d.e.OpenEpochs(); err != nil {
		return &Error{Call: "Settle", Comm: "world", Peer: NoPeer, Tag: NoTag,
			Err: fmt.Errorf("%w: %w", ErrDrainIncomplete, err)}
	}
	if d.ctx.Err() != nil {
		return d.incomplete("the context had ended before the drain began")
	}
	return d.until("sends and non-blocking collectives of this rank are not complete", func() bool {
		sends, colls := d.e.outstanding()
		return sends+colls == 0
	})
}

// finishDangling completes collectives that an earlier drain gave up on.
func (d *drain) finishDangling() error {
	for len(d.e.dangling) > 0 {
		if err := d.wait(d.e.dangling[0]); err != nil {
			return err
		}
		d.e.dangling = d.e.dangling[1:]
	}
	return nil
}

// exchange learns how many messages every rank has sent to this one.
func (d *drain) exchange(late *error) []uint64 {
	s := d.e.s
	n := len(s.sent)
	mine, expect := make([]uint64, n), make([]uint64, n)
	for i := range mine {
		mine[i] = s.sent[i].Load()
	}
	d.collective(driver.Coll{Kind: driver.Alltoall, Type: driver.Uint64, Count: 1,
		Send: words(mine), Recv: words(expect)}, late, d.wait)
	return expect
}

// collective takes part in a collective of the private communicator and, unless
// the drain is late already, waits for it. What is not complete when the drain
// gives up stays on the list of what the next one finishes.
func (d *drain) collective(c driver.Coll, late *error, wait func(*Request) error) {
	r, err := d.e.postCollective(c)
	if err != nil {
		d.e.broken = err
		*late = errors.Join(*late, err)
		return
	}
	if *late == nil {
		*late = wait(r)
	}
	if r.state == active {
		d.e.dangling = append(d.e.dangling, r)
	}
}

func words(v []uint64) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(v))), 8*len(v))
}

// collect drains until received + mailbox == sent for every sender.
func (d *drain) collect(expect []uint64) error {
	err := d.until("", func() bool {
		_, n := d.e.missing(expect)
		_, _, arriving := d.e.mailboxSize()
		return n == 0 && arriving == 0
	})
	if errors.Is(err, ErrDrainIncomplete) {
		text, n := d.e.missing(expect)
		return d.incomplete(fmt.Sprintf("%d messages have not come%s", n, text))
	}
	return err
}

// What a rank says at the end of a drain; the least of all ranks holds.
const (
	notSettled     = 0
	settledWindows = 1 // and it has windows
	settledAlone   = 2
)

// agree makes all ranks succeed or fail alike.
func (d *drain) agree(late error) error {
	ok, all := []uint64{settledAlone}, []uint64{notSettled}
	switch {
	case late != nil:
		ok[0] = notSettled
	case len(d.e.s.windows) > 0:
		ok[0] = settledWindows
	}
	d.collective(driver.Coll{Kind: driver.Allreduce, Type: driver.Uint64, Op: driver.Min,
		Count: 1, Send: words(ok), Recv: words(all)}, &late, d.waitQuietly)
	if late == nil && all[0] == notSettled {
		return d.incomplete("another rank gave up")
	}
	d.stats.Windows = all[0] == settledWindows
	return late
}

// wait drains until a collective of ours is complete.
func (d *drain) wait(r *Request) error { return d.waitWith(r, d.until) }

// waitQuietly waits without receiving for the program. The last collective ends
// on some ranks sooner than on others: those go on and send, and what they send
// then belongs behind the cut.
func (d *drain) waitQuietly(r *Request) error {
	return d.waitWith(r, func(what string, done func() bool) error {
		for !done() {
			if d.ctx.Err() != nil {
				return d.incomplete(what)
			}
			d.yield(0)
		}
		return nil
	})
}

func (d *drain) waitWith(r *Request, until func(string, func() bool) error) error {
	var failed error
	err := until("another rank has not come to the drain", func() bool {
		_, ok, err := d.e.s.drv.Test(r.h)
		if ok || err != nil {
			r.state, failed = released, err
			r.release()
			r.fromSlot(0)
			return true
		}
		return false
	})
	if err == nil && failed != nil {
		return d.e.s.private.wrap("Settle", NoPeer, NoTag, failed)
	}
	return err
}

// until pumps until done, or ctx ends.
func (d *drain) until(what string, done func() bool) error {
	for {
		n, err := d.e.pump()
		d.stats.Messages += n
		d.stats.Rounds++
		if err == nil {
			err = d.e.hear()
		}
		if err != nil {
			return err
		}
		if done() {
			return nil
		}
		if d.ctx.Err() != nil {
			return d.incomplete(what)
		}
		d.yield(n)
	}
}

// yield leaves the processor to others: at first only for a moment, since
// messages are usually nearly there.
func (d *drain) yield(received int) {
	if received > 0 {
		d.spins = 0
	}
	d.spins++
	if d.spins < 200 {
		runtime.Gosched()
		return
	}
	t := time.NewTimer(50 * time.Microsecond)
	defer t.Stop()
	select {
	case <-d.ctx.Done():
	case <-t.C:
	}
}

func (d *drain) incomplete(text string) error {
	cause := context.Cause(d.ctx)
	err := ErrDrainIncomplete
	if cause != nil {
		err = fmt.Errorf("%w: %w", ErrDrainIncomplete, cause)
	}
	return &Error{Call: "Settle", Comm: "world", Peer: NoPeer, Tag: NoTag, Err: err, Text: text}
}

package mpiwrap

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"runtime"
	"time"
	"unsafe"

	"github.com/holdfast-hpc/holdfast/internal/endpoint"
	"github.com/holdfast-hpc/holdfast/internal/invariants"
	"github.com/holdfast-hpc/holdfast/mpiwrap/internal/call"
	"github.com/holdfast-hpc/holdfast/mpiwrap/internal/driver"
	"github.com/holdfast-hpc/holdfast/mpiwrap/internal/request"
)

func (e *rankEndpoint) Drain(ctx context.Context) (endpoint.DrainStats, error) {
	a, err := e.guard()
	if err != nil {
		return endpoint.DrainStats{}, err
	}
	defer a.Leave()
	resume, busy := e.s.HoldAndWait(ctx, a)
	defer resume()
	e.s.forgetFreed() // also if the drain fails: at the cut all members have freed it
	e.s.Begin()
	d := drain{e: e, ctx: ctx}
	err = d.run(busy)
	_, d.stats.Bytes, _ = request.MailboxSize(e.s.channels)
	return d.stats, err
}

// forgetFreed forgets freed communicators: all ranks have freed them by now, and must
// forget them alike, or their counts would never agree again.
func (s *state) forgetFreed() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.freed = nil
}

func (e *rankEndpoint) DrainSome() (received int, err error) {
	a, err := e.guard()
	if err != nil {
		return 0, err
	}
	defer a.Leave()
	resume, busy := e.s.TryHold(a)
	defer resume()
	if busy != nil { // with ThreadMultiple: that goroutine makes MPI progress itself
		return 0, nil
	}
	return e.s.Fetch(e.s.channels)
}

// guard refuses to drain while another goroutine is inside a call, unless the rank is
// ThreadMultiple; see request.Rank.HoldAndWait.
func (e *rankEndpoint) guard() (*request.Activity, error) {
	c := &e.s.world.ch
	if err := c.Usable(call.Drain.String()); err != nil {
		return nil, err
	}
	return c.Quick(call.Drain, NoPeer, NoTag)
}

// drain is one call of Drain.
type drain struct {
	e     *rankEndpoint
	ctx   context.Context
	stats endpoint.DrainStats
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
	told := uint64(0)
	if invariants.Enabled {
		told = d.e.sentSoFar()
	}
	expect := exchange(&late)
	if late == nil {
		late = d.collect(expect)
	}
	if invariants.Enabled && late == nil {
		n := d.e.sentSoFar()
		invariants.Check(n == told, "mpiwrap: %d messages sent, but the ranks exchanged %d", n, told)
	}
	return d.agree(late)
}

// sentSoFar is how many messages this rank has sent to all ranks.
func (e *rankEndpoint) sentSoFar() (n uint64) {
	for i := range e.s.Sent {
		n += e.s.Sent[i].Load()
	}
	return n
}

// complete finishes the program's sends and non-blocking collectives.
func (d *drain) complete() error {
	if err := d.e.OpenEpochs(); err != nil {
		return &Error{Call: "Drain", Comm: "world", Peer: NoPeer, Tag: NoTag,
			Err: fmt.Errorf("%w: %w", ErrDrainIncomplete, err)}
	}
	if d.ctx.Err() != nil {
		return d.incomplete("the context had ended before the drain began")
	}
	return d.until("sends and non-blocking collectives of this rank are not complete", func() bool {
		sends, colls := d.e.s.Outstanding()
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
	n := len(s.Sent)
	mine, expect := make([]uint64, n), make([]uint64, n)
	for i := range mine {
		mine[i] = s.Sent[i].Load()
	}
	d.collective(driver.Coll{Kind: driver.Alltoall, Type: driver.Uint64, Count: 1,
		Send: words(mine), Recv: words(expect)}, late, d.wait)
	return expect
}

// collective takes part in a collective of the private communicator and, unless
// the drain is late already, waits for it. What is not complete when the drain
// gives up stays on the list of what the next one finishes.
func (d *drain) collective(c driver.Coll, late *error, wait func(*request.Request) error) {
	r, err := d.e.s.private.ch.OwnCollective(c)
	if err != nil {
		d.e.broken = err
		*late = errors.Join(*late, err)
		return
	}
	if *late == nil {
		*late = wait(r)
	}
	if r.Active() {
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
		_, _, arriving := request.MailboxSize(d.e.s.channels)
		return n == 0 && arriving == 0
	})
	if errors.Is(err, ErrDrainIncomplete) {
		text, n := d.e.missing(expect)
		return d.incomplete(fmt.Sprintf("%d messages have not arrived%s", n, text))
	}
	return err
}

func (e *rankEndpoint) missing(expect []uint64) (text string, n uint64) {
	for w, want := range expect {
		if got := e.s.Received[w].Load(); got < want {
			n += want - got
			if len(text) < 200 {
				text += fmt.Sprintf("; %d of %d from rank %d", want-got, want, w)
			}
		}
	}
	return text, n
}

// What a rank says at the end of a drain; the least of all ranks holds.
const (
	notDrained     = 0
	drainedWindows = 1 // and it has windows
	drainedAlone   = 2
)

// agree makes all ranks succeed or fail alike.
func (d *drain) agree(late error) error {
	ok, all := []uint64{drainedAlone}, []uint64{notDrained}
	switch {
	case late != nil:
		ok[0] = notDrained
	case len(d.e.s.windows) > 0:
		ok[0] = drainedWindows
	}
	d.collective(driver.Coll{Kind: driver.Allreduce, Type: driver.Uint64, Op: driver.Min,
		Count: 1, Send: words(ok), Recv: words(all)}, &late, d.waitQuietly)
	if late == nil && all[0] == notDrained {
		return d.incomplete("another rank gave up")
	}
	d.stats.Windows = all[0] == drainedWindows
	return late
}

// wait drains until a collective of ours is complete.
func (d *drain) wait(r *request.Request) error { return d.waitWith(r, d.until) }

// waitQuietly waits without receiving for the program. The last collective ends
// on some ranks sooner than on others: those go on and send, and what they send
// then belongs behind the cut.
func (d *drain) waitQuietly(r *request.Request) error {
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

func (d *drain) waitWith(r *request.Request, until func(string, func() bool) error) error {
	var failed error
	err := until("another rank has not entered the drain", func() bool {
		done, err := r.TestOwn()
		failed = err
		return done
	})
	if err == nil && failed != nil {
		return d.e.s.private.ch.Wrap("Drain", NoPeer, NoTag, failed)
	}
	return err
}

// until drains until done, or ctx ends.
func (d *drain) until(what string, done func() bool) error {
	for {
		n, err := d.e.s.Fetch(d.e.s.channels)
		d.stats.Messages += n
		d.stats.Rounds++
		if err == nil {
			err = d.e.receiveCounts()
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
	return &Error{Call: "Drain", Comm: "world", Peer: NoPeer, Tag: NoTag, Err: err, Text: text}
}

// drainTag is the tag of counts on the private communicator.
const drainTag = 32767 // the largest that every MPI allows

// sparse says whether the world is so large that ranks tell each other of their
// messages one by one. Open MPI's non-blocking all-to-all sends a message to
// every rank, and so connects every rank with every other.
func (e *rankEndpoint) sparse() bool { return len(e.s.Sent) > driver.DenseRanks }

// exchangeSparse learns how many messages every rank has sent to this one, by
// sparse consensus (Hoefler, Siebert, Lumsdaine, PPoPP 2010): each rank sends its
// count to those with whom it has grown since they were told, by synchronous
// sends; when these are complete it enters a barrier; and when the barrier ends all
// sends of all ranks have been received.
//
// Counts are totals since the start, so that it does no harm when one is heard
// late, after a drain that was given up.
func (d *drain) exchangeSparse(late *error) []uint64 {
	e := d.e
	e.prepareSparse()
	if *late == nil {
		*late = d.announce()
	}
	d.collective(driver.Coll{Kind: driver.Barrier}, late, d.wait)
	return append([]uint64(nil), e.received...)
}

func (e *rankEndpoint) prepareSparse() {
	if e.announced == nil {
		e.announced, e.received = make([]uint64, len(e.s.Sent)), make([]uint64, len(e.s.Sent))
	}
}

// announce sends this rank's counts to those that do not know them yet, and waits
// until they are received. What is not when the drain gives up stays on the list of
// what the next one finishes.
func (d *drain) announce() error {
	e, s := d.e, d.e.s
	var sends []*request.Request
	defer func() { e.dangling = append(e.dangling, sends...) }()
	for i := range s.Sent {
		n := s.Sent[i].Load()
		if i == s.world.rank {
			e.received[i] = n
			continue
		}
		if n == e.announced[i] {
			continue
		}
		r, err := s.private.ch.OwnSend(binary.LittleEndian.AppendUint64(nil, n), i, drainTag)
		if err != nil {
			return err
		}
		e.announced[i] = n
		sends = append(sends, r)
	}
	for len(sends) > 0 {
		if err := d.wait(sends[0]); err != nil {
			return err
		}
		sends = sends[1:]
	}
	return nil
}

// receiveCounts receives the counts that other ranks have sent so far.
func (e *rankEndpoint) receiveCounts() error {
	if !e.sparse() {
		return nil
	}
	e.prepareSparse()
	for {
		p := e.s.private
		h, st, ok, err := e.s.Driver.Improbe(AnySource, drainTag, p.ch.Handle)
		if err != nil {
			return p.ch.Wrap("Drain", AnySource, drainTag, err)
		}
		if !ok {
			return nil
		}
		var buf [8]byte
		if _, err := e.s.Driver.Mrecv(buf[:], h); err != nil {
			return p.ch.Wrap("Drain", int(st.Source), drainTag, err)
		}
		e.received[st.Source] = max(e.received[st.Source], binary.LittleEndian.Uint64(buf[:]))
	}
}

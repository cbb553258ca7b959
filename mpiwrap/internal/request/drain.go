package request

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"runtime"
	"time"
	"unsafe"

	"github.com/holdfast-hpc/holdfast/internal/endpoint"
	"github.com/holdfast-hpc/holdfast/internal/invariants"
	"github.com/holdfast-hpc/holdfast/mpiwrap/internal/driver"
)

// Drainer receives every message that is in flight to a rank, so that a cut has them: all ranks exchange the
// numbers of messages that they have sent, and receive until none is missing. The main thread calls it.
type Drainer struct {
	Rank     *Rank
	Self     int                            // number of the rank
	Private  *Channel                       // of the drain alone
	Channels iter.Seq[*Channel]             // of the living communicators
	Windows  func() (some bool, open error) // whether there are any, and those that the program has not ended
	Quiet    func() bool                    // whether nothing is in flight to this rank

	Ended       bool // this rank stands behind its last Point
	PreferQuiet bool // this rank would rather have a cut at which nothing is in flight

	dangling []*Request // the leftovers of a Run that gave up on the private communicator
	broken   error      // why none can succeed any more

	// For a large world: how many messages of this rank each rank knows of, and how
	// many each has said it has sent. See exchangeSparse.
	announced, received []uint64
}

// draining is one call of Run.
type draining struct {
	*Drainer
	ctx   context.Context
	stats endpoint.DrainStats
	spins int
}

// Run drains, unless it is late already: then it only takes part. All ranks call it; it succeeds on all or on none. The
// error matches ErrDrainIncomplete where the context ended first.
func (d *Drainer) Run(ctx context.Context, late error) (endpoint.DrainStats, error) {
	r := draining{Drainer: d, ctx: ctx}
	err := r.run(late)
	_, r.stats.Bytes, _ = MailboxSize(d.Channels)
	return r.stats, err
}

// run posts exactly two collectives on the private communicator, even when it gives up and whatever MPI reports:
// ranks stay in step. If one cannot even be posted, no drain succeeds any more.
func (d *draining) run(late error) error {
	if d.broken != nil {
		return d.broken
	}
	if late == nil {
		late = d.finishDangling()
	}
	if late == nil {
		late = d.complete()
	}
	exchange := d.exchange
	if d.sparse() {
		exchange = d.exchangeSparse
	}
	before := uint64(0)
	if invariants.Enabled {
		before = d.sentSoFar()
	}
	expect := exchange(&late)
	if late == nil {
		late = d.collect(expect)
	}
	if invariants.Enabled && late == nil {
		n := d.sentSoFar()
		invariants.Check(n == before, "mpiwrap: %d messages sent, but the ranks exchanged %d", n, before)
	}
	late = d.agree(late)
	if invariants.Enabled && late == nil {
		n := d.Rank.Device.Busy()
		invariants.Check(n == 0, "mpiwrap: after a drain %d slots hold messages that nobody will receive", n)
	}
	return late
}

// sentSoFar returns how many messages this rank has sent to all ranks.
func (d *Drainer) sentSoFar() (n uint64) {
	for i := range d.Rank.Sent {
		n += d.Rank.Sent[i].Load()
	}
	return n
}

// complete finishes the program's sends and non-blocking collectives.
func (d *draining) complete() error {
	if _, err := d.Windows(); err != nil {
		return &Error{Call: "Drain", Comm: "world", Peer: NoPeer, Tag: NoTag,
			Err: fmt.Errorf("%w: %w", ErrDrainIncomplete, err)}
	}
	if d.ctx.Err() != nil {
		return d.incomplete("the context had ended before the drain began")
	}
	return d.until("sends and non-blocking collectives of this rank are not complete", func() bool {
		sends, colls := d.Rank.Outstanding()
		return sends+colls == 0
	})
}

// finishDangling completes collectives that an earlier drain gave up on.
func (d *draining) finishDangling() error {
	for len(d.dangling) > 0 {
		if err := d.wait(d.dangling[0]); err != nil {
			return err
		}
		d.dangling = d.dangling[1:]
	}
	return nil
}

// exchange learns how many messages every rank has sent to this one.
func (d *draining) exchange(late *error) []uint64 {
	n := len(d.Rank.Sent)
	mine, expect := make([]uint64, n), make([]uint64, n)
	for i := range mine {
		mine[i] = d.Rank.Sent[i].Load()
	}
	d.collective(driver.Coll{Kind: driver.Alltoall, Type: driver.Uint64, Count: 1,
		Send: words(mine), Recv: words(expect)}, late, d.wait)
	return expect
}

// collective takes part in a collective of the private communicator and, unless the drain is late already, waits for
// it. Requests that are not complete when the drain gives up stay on the list for the next one.
func (d *draining) collective(c driver.Coll, late *error, wait func(*Request) error) {
	r, err := d.Private.ownCollective(c)
	if err != nil {
		d.broken = err
		*late = errors.Join(*late, err)
		return
	}
	if *late == nil {
		*late = wait(r)
	}
	if r.state == active {
		d.dangling = append(d.dangling, r)
	}
}

func words(v []uint64) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(v))), 8*len(v))
}

// collect drains until received + mailbox == sent for every sender.
func (d *draining) collect(expect []uint64) error {
	err := d.until("", func() bool {
		_, n := d.missing(expect)
		_, _, arriving := MailboxSize(d.Channels)
		return n == 0 && arriving == 0 && d.Rank.Arriving() == 0
	})
	if errors.Is(err, ErrDrainIncomplete) {
		text, n := d.missing(expect)
		return d.incomplete(fmt.Sprintf("%d messages have not arrived%s", n, text))
	}
	return err
}

func (d *Drainer) missing(expect []uint64) (text string, n uint64) {
	for w, want := range expect {
		if got := d.Rank.Received[w].Load(); got < want {
			n += want - got
			if len(text) < 200 {
				text += fmt.Sprintf("; %d of %d from rank %d", want-got, want, w)
			}
		}
	}
	return text, n
}

// A rank's result at the end of a drain; the least of all ranks holds.
const (
	drained = iota // 1: everything that was sent to it is here
	alone          // 1: it has no windows
	quiet          // 1: nothing is in flight to it
	content        // 1: it takes a cut at which something is in flight
	goesOn         // 1: it will come to another Point
	ended          // 1: it will not
	sayings
)

// agree makes all ranks succeed or fail alike, and exchanges the facts that concern them all.
func (d *draining) agree(late error) error {
	windows, _ := d.Windows()
	mine, all := make([]uint64, sayings), make([]uint64, sayings)
	for what, is := range map[int]bool{drained: late == nil, alone: !windows, quiet: late == nil && d.Quiet(),
		content: !d.PreferQuiet, goesOn: !d.Ended, ended: d.Ended} {
		if is {
			mine[what] = 1
		}
	}
	d.collective(driver.Coll{Kind: driver.Allreduce, Type: driver.Uint64, Op: driver.Min,
		Count: sayings, Send: words(mine), Recv: words(all)}, &late, d.waitQuietly)
	if late == nil && all[drained] == 0 {
		return d.incomplete("another rank gave up")
	}
	if late == nil {
		d.stats.Windows, d.stats.InFlight = all[alone] == 0, all[quiet] == 0
		d.stats.SomeEnded, d.stats.AllEnded = all[goesOn] == 0, all[ended] == 1
		d.stats.PutOff = d.stats.InFlight && all[content] == 0
	}
	return late
}

// wait drains until a collective of ours is complete.
func (d *draining) wait(r *Request) error { return d.waitWith(r, d.until) }

// waitQuietly waits without receiving for the program. The last collective ends on some ranks sooner than on others:
// those go on and send, and these messages belong behind the cut.
func (d *draining) waitQuietly(r *Request) error {
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

func (d *draining) waitWith(r *Request, until func(string, func() bool) error) error {
	var failed error
	err := until("another rank has not entered the drain", func() bool {
		done, err := r.testOwn()
		failed = err
		return done
	})
	if err == nil && failed != nil {
		return d.Private.Wrap("Drain", NoPeer, NoTag, failed)
	}
	return err
}

// until drains until done, or ctx ends.
func (d *draining) until(what string, done func() bool) error {
	for {
		n, err := d.Rank.Fetch(d.Channels)
		d.stats.Messages += n
		d.stats.Rounds++
		if err == nil {
			err = d.receiveCounts()
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

// yield leaves the processor to others: at first only shortly, since
// messages are usually nearly there.
func (d *draining) yield(received int) {
	if received > 0 {
		d.spins = 0
	}
	d.spins++
	if d.spins < 200 {
		runtime.Gosched()
		return
	}
	select {
	case <-d.ctx.Done():
	case <-time.After(50 * time.Microsecond):
	}
}

func (d *draining) incomplete(text string) error {
	cause := context.Cause(d.ctx)
	err := ErrDrainIncomplete
	if cause != nil {
		err = fmt.Errorf("%w: %w", ErrDrainIncomplete, cause)
	}
	return &Error{Call: "Drain", Comm: "world", Peer: NoPeer, Tag: NoTag,
		Err: err, Text: text}
}

// drainTag is the tag of counts on the private communicator.
const drainTag = 32767 // the largest that every MPI allows

// sparse reports whether the world is so large that ranks announce their
// messages one by one. Open MPI's non-blocking all-to-all sends a message to
// every rank, and so connects every rank with every other.
func (d *Drainer) sparse() bool { return len(d.Rank.Sent) > driver.DenseRanks }

// exchangeSparse learns how many messages every rank has sent to this one, by
// sparse consensus (Hoefler, Siebert, Lumsdaine, PPoPP 2010): each rank sends its
// count to those for whom it has grown since the last time, by synchronous
// sends; when these are complete it enters a barrier; and when the barrier ends all
// sends of all ranks have been received.
//
// Counts are totals since the start, so that it does no harm when one is heard
// late, after a drain that was given up.
func (d *draining) exchangeSparse(late *error) []uint64 {
	d.prepareSparse()
	if *late == nil {
		*late = d.announce()
	}
	d.collective(driver.Coll{Kind: driver.Barrier}, late, d.wait)
	return append([]uint64(nil), d.received...)
}

func (d *Drainer) prepareSparse() {
	if d.announced == nil {
		d.announced, d.received = make([]uint64, len(d.Rank.Sent)), make([]uint64, len(d.Rank.Sent))
	}
}

// announce sends this rank's counts to those that do not know them yet, and waits until they are received. Others stay
// on the list for the next drain.
func (d *draining) announce() error {
	var sends []*Request
	defer func() { d.dangling = append(d.dangling, sends...) }()
	for i := range d.Rank.Sent {
		n := d.Rank.Sent[i].Load()
		if i == d.Self {
			d.received[i] = n
			continue
		}
		if n == d.announced[i] {
			continue
		}
		r, err := d.Private.ownSend(binary.LittleEndian.AppendUint64(nil, n), i, drainTag)
		if err != nil {
			return err
		}
		d.announced[i] = n
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
func (d *Drainer) receiveCounts() error {
	if !d.sparse() {
		return nil
	}
	d.prepareSparse()
	for {
		h, st, ok, err := d.Rank.Driver.Improbe(driver.AnySource, drainTag, d.Private.Handle)
		if err != nil {
			return d.Private.Wrap("Drain", driver.AnySource, drainTag, err)
		}
		if !ok {
			return nil
		}
		var buf [8]byte
		if _, err := d.Rank.Driver.Mrecv(buf[:], h); err != nil {
			return d.Private.Wrap("Drain", int(st.Source), drainTag, err)
		}
		d.received[st.Source] = max(d.received[st.Source], binary.LittleEndian.Uint64(buf[:]))
	}
}

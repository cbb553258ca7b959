package messages

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync/atomic"
	"time"

	"github.com/holdfast-hpc/holdfast/internal/endpoint"
	"github.com/holdfast-hpc/holdfast/internal/program"
	"github.com/holdfast-hpc/holdfast/internal/sleep"
	"github.com/holdfast-hpc/holdfast/mpiwrap"
)

// Client is the program of the rank, while it waits in a call of libholdfast.
type Client interface {
	// Cut reports to the client that all ranks have stopped.
	Cut() error
	// Sync has it synchronize its files and flush its windows; other ranks do so at the same time. Busy: some rank has
	// requests for files, which MPI does not synchronize then.
	Sync(busy bool) error
	// Save returns the messages in flight to the rank, as a record of the layer.
	Save() ([]byte, error)
	// Load hands it such a record.
	Load(record []byte) error
	// Failed gives the program up.
	Failed(err error)
}

// New returns the message layer of a rank whose program counts its messages in a page.
func New(p *Page, rank int, c Client, exchange program.Exchange) endpoint.Endpoint {
	return &layer{Page: p, client: c, exchange: exchange, rank: rank}
}

// InFlight returns how many messages a rank has sent, less those that its program has received. Its sum over all ranks,
// while each stands in a call, is the number of messages in flight.
func InFlight(p *Page, rank int, c Client) (n int64, err error) {
	b, err := c.Save()
	if err != nil {
		return 0, err
	}
	rec, _, err := decode(b, rank, p.size)
	if rec == nil {
		return 0, err
	}
	for r := range p.size {
		n += int64(p.sent(r) - p.received(r))
	}
	return n + int64(len(rec.Boxes)), nil // the mailbox has received them, the program has not
}

type layer struct {
	*Page
	client   Client
	exchange program.Exchange
	rank     int

	quiet, ended bool
	saved        func() ([]byte, error) // the record of the last drain, until SaveMailbox returns it
}

var _ endpoint.Endpoint = (*layer)(nil)

func (e *layer) Sent(rank int) uint64     { return e.sent(rank) }
func (e *layer) Received(rank int) uint64 { return e.received(rank) }
func (e *layer) GPUAware(bool)            {}
func (e *layer) NoteSites()               {}
func (e *layer) Hold() (resume func())    { return func() {} }
func (e *layer) OpenEpochs() error        { return nil } // they are refused when it is saved
func (e *layer) PreferQuiet(prefer bool)  { e.quiet = prefer }
func (e *layer) Ended(ended bool)         { e.ended = ended }

// LimitMailbox sets the limit that the program obeys.
func (e *layer) LimitMailbox(n int64) { atomic.StoreUint64(e.word(atLimit), uint64(max(n, 0))) }

// Mailbox returns the counts of the program's last drain.
func (e *layer) Mailbox() (messages int, bytes int64) {
	return int(e.load(atMails)), int64(e.load(atBytes))
}

// DrainSome does nothing: the program drains as long as it waits.
func (e *layer) DrainSome() (int, error) { return 0, nil }

// UnpostedReceives asks the program for them, if it has any. The program must be in a call.
func (e *layer) UnpostedReceives() []endpoint.PendingReceive {
	if e.load(atUnposted) == 0 {
		return nil
	}
	b, err := e.client.Save()
	if err != nil {
		return nil // it has left MPI, or has gone
	}
	_, before, _ := decode(b, e.rank, e.size) // refusals do not matter here
	return before
}

// Flags that the ranks exchange at the end of a drain.
const (
	saysDrained = 1 << iota
	saysInFlight
	saysQuiet // it would rather have nothing in flight
	saysEnded
	saysWindows
	saysToSync // it has files or windows to synchronize, with others
	saysBusy   // it has requests for files
)

// Drain always exchanges twice, even after an error: ranks stay in step. If any rank has files or windows to
// synchronize, it exchanges a third time.
func (e *layer) Drain(ctx context.Context) (endpoint.DrainStats, error) {
	atomic.StoreUint64(e.word(atFull), 0)
	err := e.client.Cut()
	before := e.load(atMails)
	all, xerr := e.stop(ctx, err)
	if err == nil {
		err = xerr
	}
	if err == nil {
		err = e.collect(ctx, all)
	}
	e.saved = nil
	if err == nil { // before any rank goes on: the program still receives, and would get later messages
		b, serr := e.save()
		e.saved = func() ([]byte, error) { return b, serr }
	}
	stats := endpoint.DrainStats{Messages: int(max(e.load(atMails), before) - before), Bytes: int64(e.load(atBytes))}
	said := byte(0)
	for bit, is := range map[byte]bool{saysDrained: err == nil, saysInFlight: e.load(atMails)+e.load(atPending) > 0,
		saysQuiet: e.quiet, saysEnded: e.ended, saysWindows: e.load(atWindows) > 0,
		saysToSync: e.load(atToSync) > 0, saysBusy: e.load(atBusy) > 0} {
		if is {
			said |= bit
		}
	}
	all, xerr = e.exchange(ctx, []byte{said})
	if err == nil && xerr != nil {
		err = fmt.Errorf("%w: %w", mpiwrap.ErrDrainIncomplete, xerr)
	}
	quiet, toSync, busy := false, false, false
	stats.AllEnded = true
	for r, b := range all {
		if len(b) != 1 {
			return stats, errors.Join(err, fmt.Errorf("rank %d says nothing of its drain", r))
		}
		if b[0]&saysDrained == 0 && err == nil {
			err = fmt.Errorf("%w: rank %d gave up", mpiwrap.ErrDrainIncomplete, r)
		}
		stats.InFlight = stats.InFlight || b[0]&saysInFlight != 0
		stats.Windows = stats.Windows || b[0]&saysWindows != 0
		toSync = toSync || b[0]&saysToSync != 0
		busy = busy || b[0]&saysBusy != 0
		quiet = quiet || b[0]&saysQuiet != 0
		stats.SomeEnded = stats.SomeEnded || b[0]&saysEnded != 0
		stats.AllEnded = stats.AllEnded && b[0]&saysEnded != 0
	}
	stats.PutOff = stats.InFlight && quiet
	if err == nil && toSync {
		err = e.sync(ctx, busy)
	}
	return stats, err
}

// A round has a rank's report about its threads while they are being stopped.
type round struct {
	Failed  string            `json:",omitempty"` // they cannot be
	Late    bool              `json:",omitempty"` // no rank's report has changed for as long as this rank waits
	Inside  string            `json:",omitempty"` // why they are not stopped: the calls that some are in, say
	Entered map[string]uint64 // collectives, by communicator
}

// hinders returns why threads of a rank keep the others from a cut, if they do. Most is how many collectives a rank has
// entered, by communicator.
func (r *round) hinders(most map[string]uint64) string {
	if r.Inside != "" {
		return r.Inside
	}
	for comm, n := range r.Entered {
		if n < most[comm] {
			return fmt.Sprintf("a thread of the rank has not entered a collective on %s, as other ranks have", comm)
		}
	}
	return ""
}

// stop returns the number of messages that each rank has sent to each other, once all their threads have stopped. If
// ranks have several threads, no rank may have entered a collective that another has not, and no thread may be in a
// call that sends.
func (e *layer) stop(ctx context.Context, failed error) ([][]byte, error) {
	said := []byte{0}
	if e.Concurrent() {
		said[0] = 1
	}
	all, err := e.exchange(ctx, append(said, e.sentTo()...))
	several := false
	for r, b := range all {
		if len(b) == 0 {
			return nil, fmt.Errorf("rank %d says nothing of what it has sent", r)
		}
		several = several || b[0] != 0
		all[r] = b[1:]
	}
	if err != nil || !several {
		return all, err
	}
	if err := e.level(ctx, failed); err != nil {
		return nil, err
	}
	if e.Concurrent() { // the number of its threads' messages is known only now
		failed = e.client.Cut()
	}
	all, err = e.exchange(ctx, e.sentTo())
	return all, errors.Join(failed, err)
}

// level lets threads run until the threads of all ranks have stopped.
func (e *layer) level(ctx context.Context, failed error) error {
	most, since := map[string]uint64{}, time.Now()
	for before := ""; ; {
		r := e.look(ctx)
		if r.Late = time.Since(since) > patience; failed != nil {
			r.Failed = failed.Error()
		}
		b, err := json.Marshal(r)
		if err != nil {
			return err
		}
		all, err := e.exchange(ctx, b)
		if err != nil {
			return err
		}
		rounds, late := make([]round, len(all)), false
		for i, b := range all {
			r := &rounds[i]
			if err := json.Unmarshal(b, r); err != nil {
				return fmt.Errorf("rank %d: %w", i, err)
			}
			if r.Failed != "" {
				return fmt.Errorf("%w: rank %d: %s", mpiwrap.ErrDrainIncomplete, i, r.Failed)
			}
			late = late || r.Late
			for comm, n := range r.Entered {
				most[comm] = max(most[comm], n)
			}
		}
		over := true
		for i, r := range rounds {
			why := r.hinders(most)
			if over = over && why == ""; late && why != "" {
				return fmt.Errorf("%w: rank %d: %s", mpiwrap.ErrDrainIncomplete, i, why)
			}
		}
		if over {
			return nil
		}
		e.letEnter(most)
		if now := fmt.Sprintf("%s", all); now != before {
			before, since = now, time.Now()
		}
	}
}

// patience is how long a thread may stay in a call at a cut.
const patience = time.Second

// stays says what hinders a cut: calls that threads are in, but for a receive or a probe. turned: the program has
// counted them.
func (e *layer) stays(turned bool) string {
	var calls []string
	act := e.Activity()
	for _, t := range append([]endpoint.Activity{act}, act.Threads...) {
		if t.Op != "" {
			calls = append(calls, t.Op+" on "+t.Comm)
		}
	}
	if !turned && len(calls) == 0 {
		return "the rank gets no time to run, or another thread of it is in an MPI call, and stays there"
	}
	return fmt.Sprintf("another thread of the rank is in %s, and stays there",
		cmp.Or(strings.Join(calls, ", or "), "an MPI call"))
}

// look returns the report of a rank that stops its threads. The program counts the threads inside calls at a turn; a
// thread that comes later enters a collective. No turn comes while a thread is on its way into a call: earlier counts
// do not include it.
func (e *layer) look(ctx context.Context) (r round) {
	inside, turned := true, false
	for end := time.Now().Add(5 * time.Millisecond); inside && time.Now().Before(end) && ctx.Err() == nil; {
		r.Entered = e.entered()
		turns, late := e.load(atTurns)+2, time.Now().Add(patience/10)
		for e.load(atTurns) < turns && time.Now().Before(late) {
			time.Sleep(100 * time.Microsecond)
		}
		turned = e.load(atTurns) >= turns
		inside = !turned || e.load(atInside) > 0 || !maps.Equal(r.Entered, e.entered())
	}
	if inside {
		r.Inside = e.stays(turned)
	}
	return r
}

// sync has the client synchronize its files and windows, and compares the outcome with the other ranks.
func (e *layer) sync(ctx context.Context, busy bool) (err error) {
	if e.load(atToSync) > 0 {
		err = e.client.Sync(busy)
	}
	said := []byte{1}
	if err != nil {
		said[0] = 0
	}
	all, xerr := e.exchange(ctx, said)
	if err == nil {
		err = xerr
	}
	for r, b := range all {
		if err == nil && !bytes.Equal(b, []byte{1}) {
			err = fmt.Errorf("rank %d could not synchronize its files and windows", r)
		}
	}
	return err
}

// collect waits until the program has received all messages that were sent to it, and has counted those that remain.
func (e *layer) collect(ctx context.Context, all [][]byte) error {
	want := make([]uint64, len(all))
	for r, b := range all {
		n, err := sentBy(b, e.rank)
		if err != nil {
			return fmt.Errorf("rank %d: %w", r, err)
		}
		want[r] = n
	}
	missing := func() (rank int, n uint64) {
		for r := range want {
			if got := e.received(r); got < want[r] {
				return r, want[r] - got
			}
		}
		return -1, 0
	}
	// uncounted names a rank that has sent more than it has counted: as many in flight would pass for received.
	uncounted := func() error {
		for r := range want {
			if got := e.received(r); got > want[r] {
				return fmt.Errorf("%w: rank %d has received %d messages from rank %d that were not sent through "+
					"libholdfast-mpi", mpiwrap.ErrDrainIncomplete, e.rank, got-want[r], r)
			}
		}
		return nil
	}
	pause := sleep.Backoff{First: 20 * time.Microsecond, Longest: time.Millisecond}
	turns, complete := uint64(0), false
	for {
		rank, n := missing()
		switch now := e.load(atTurns); {
		case rank < 0 && !complete:
			turns, complete = now, true
		case complete && now > turns+1 && e.load(atUnended) == 0:
			return uncounted()
		}
		if e.load(atFull) == FullLarge {
			return fmt.Errorf("%w: a message of more than 2 GiB is in flight to rank %d; take the checkpoint where it "+
				"has been received", mpiwrap.ErrDrainIncomplete, e.rank)
		}
		if e.load(atFull) != 0 {
			return fmt.Errorf("%w: the messages in flight to rank %d do not fit: raise max_mailbox, or take the "+
				"checkpoint where fewer are in flight", mpiwrap.ErrMailboxFull, e.rank)
		}
		if complete && ctx.Err() != nil {
			return fmt.Errorf("%w: %d operations that rank %d has started do not come to their end: %w",
				mpiwrap.ErrDrainIncomplete, e.load(atUnended), e.rank, context.Cause(ctx))
		}
		if ctx.Err() != nil {
			return fmt.Errorf("%w: %d messages from rank %d have not arrived: %w", mpiwrap.ErrDrainIncomplete, n, rank,
				context.Cause(ctx))
		}
		time.Sleep(pause.Next())
	}
}

// SaveMailbox returns the messages that were in flight to the rank when the drain ended.
func (e *layer) SaveMailbox() ([]byte, error) {
	if saved := e.saved; saved != nil {
		e.saved = nil
		return saved()
	}
	return e.save()
}

func (e *layer) save() ([]byte, error) {
	b, err := e.client.Save()
	if err != nil {
		return nil, err
	}
	r, _, err := decode(b, e.rank, e.size)
	if err != nil {
		return nil, err
	}
	return r.Encode()
}

// StageMailbox refuses a record of another rank or world, and any while the program has a receive posted.
func (e *layer) StageMailbox(b []byte) (apply func(), err error) {
	r, err := endpoint.DecodeRecord(b, e.rank, e.size)
	if err != nil {
		return nil, err
	}
	if n := e.load(atPending); n > 0 {
		return nil, fmt.Errorf("%w: %d receives or collectives were started before hf_restore; start them afterwards, "+
			"as the checkpoint may have an earlier message for them", mpiwrap.ErrPending, n)
	}
	return func() {
		if err := e.client.Load(encode(r)); err != nil {
			e.client.Failed(fmt.Errorf("hand the messages of the checkpoint to the program: %w", err))
		}
	}, nil
}

package outside

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/holdfast-hpc/holdfast/internal/job"
)

// ReporterOptions configure a Reporter.
type ReporterOptions struct {
	Supervisor string      // its address and key, as job.ParseSupervisor reads them
	First      *job.Report // the first report's data besides the fields of Fill
	Log        *slog.Logger
	Go         func(func()) // runs f on a goroutine that is waited for at the end

	// Fill enters the state of the run in a report, and Changed returns a channel that is closed at the next change.
	Fill    func(rep *job.Report)
	Changed func() <-chan struct{}

	// NodeLost reports that the previous run lost a node, before the first report is sent.
	NodeLost func(ctx context.Context) error
	// Ends reports that the process will be killed after within; 0: unknown.
	Ends func(within time.Duration)
	// Request asks for a checkpoint.
	Request func(stop bool)
}

// Reporter reports to the supervisor, at rank 0. A nil Reporter does nothing.
type Reporter struct {
	opt      ReporterOptions
	conn     net.Conn
	now      chan chan struct{} // closed when a report has been sent
	last     chan struct{}      // closed to send the last report
	done     chan struct{}      // closed when it is sent
	endKnown chan struct{}      // closed when the supervisor has reported the time after TERM

	acknowledged chan struct{} // closed when the supervisor has taken the first report

	mu   sync.Mutex      // guards the fields below
	term bool            // rank 0 was sent TERM
	ends time.Time       // as the supervisor reports; zero = unknown
	lost *job.LostStatus // nil: no rank is
	well bool            // every rank has called Close
	none Unrestorable    // why nothing can be restored
}

// Unrestorable is why nothing can be restored; zero: something can, as far as is known.
type Unrestorable struct {
	Why     string
	Nodes   []string // that may have it
	Missing bool     // it is for want of data
}

// reportEvery is the time between reports with no news; while a job starts, its
// first Point is looked for more often.
const (
	reportEvery = 250 * time.Millisecond
	startEvery  = 20 * time.Millisecond
)

// ackTimeout bounds how long a job waits until the supervisor answers.
const ackTimeout = 2 * time.Second

// StartReporter connects to the supervisor, and returns when that has answered the first report, or after
// ackTimeout. A job that cannot reach it runs all the same, with a nil Reporter.
func StartReporter(ctx context.Context, opt ReporterOptions) *Reporter {
	v, err := job.ParseSupervisor(opt.Supervisor)
	if err == nil && v.NodeLost {
		err = opt.NodeLost(ctx)
	}
	var conn net.Conn
	if err == nil {
		conn, err = v.Dial(ctx)
	}
	if err != nil {
		opt.Log.Warn("holdfast: cannot report to holdfast run; it will see this start as hung", "error", err)
		return nil
	}
	opt.First.Start = v.Start
	r := &Reporter{opt: opt, conn: conn, now: make(chan chan struct{}), last: make(chan struct{}),
		done: make(chan struct{}), endKnown: make(chan struct{}), acknowledged: make(chan struct{})}
	opt.Go(r.listen)
	go r.run()
	select {
	case <-r.acknowledged:
	case <-r.done:
	case <-ctx.Done():
	case <-time.After(ackTimeout):
	}
	return r
}

// ReportFailed tells the supervisor why a run did not begin; it cannot guess that. If this fails, the program logs the
// reason itself.
func ReportFailed(ctx context.Context, supervisor string, rep job.Report) {
	v, err := job.ParseSupervisor(supervisor)
	if err != nil {
		return
	}
	rep.Start = v.Start
	ctx, cancel := context.WithTimeout(ctx, ackTimeout)
	defer cancel()
	conn, err := v.Dial(ctx)
	if err != nil {
		return
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(ackTimeout)) // as above
	if json.NewEncoder(conn).Encode(rep) == nil {
		_, _ = bufio.NewReader(conn).ReadString('\n') // its answer, or as above
	}
}

func (r *Reporter) run() {
	defer close(r.done)
	defer r.conn.Close()
	every := startEvery
	tick := time.NewTicker(every)
	defer tick.Stop()
	enc := json.NewEncoder(r.conn)
	rep := *r.opt.First
	var sent chan struct{}
	for ended := false; ; {
		changed := r.opt.Changed()
		r.fill(&rep)
		if r.conn.SetWriteDeadline(time.Now().Add(time.Second)) != nil || enc.Encode(rep) != nil || ended {
			return
		}
		rep.Nodes = nil
		if sent != nil {
			close(sent)
			sent = nil
		}
		if every == startEvery && rep.Points > 0 {
			every = reportEvery
			tick.Reset(every)
		}
		select {
		case <-tick.C:
		case <-changed:
		case sent = <-r.now:
		case <-r.last:
			ended = true
		}
	}
}

func (r *Reporter) fill(rep *job.Report) {
	r.opt.Fill(rep)
	r.mu.Lock()
	defer r.mu.Unlock()
	rep.Ended, rep.Unrestorable, rep.MissingNodes, rep.Terminated = r.well, r.none.Why, r.none.Nodes, r.term
	rep.Missing = r.none.Missing
	if r.lost != nil {
		rep.Lost = r.lost
	}
}

func (r *Reporter) listen() {
	in := bufio.NewScanner(r.conn)
	for in.Scan() {
		var o job.Order
		if json.Unmarshal(in.Bytes(), &o) != nil {
			continue
		}
		within := time.Duration(o.WithinSeconds * float64(time.Second))
		switch {
		case o.Heard:
			select {
			case <-r.acknowledged: // it was noted before
			default:
				close(r.acknowledged)
			}
			continue
		case o.Answer:
			r.answered(within)
			continue
		case o.Stop:
			r.opt.Ends(within)
		}
		r.opt.Log.Info("holdfast: holdfast run asks for a checkpoint", "stop", o.Stop, "within_s", o.WithinSeconds)
		r.opt.Request(o.Stop)
	}
}

// Terminated notes for the next report that rank 0 was sent TERM.
func (r *Reporter) Terminated() {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.term = true
}

// answered notes the supervisor's answer about TERM.
func (r *Reporter) answered(within time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if within > 0 {
		r.ends = time.Now().Add(within)
	}
	select {
	case <-r.endKnown:
	default:
		close(r.endKnown)
	}
}

// KillTime returns when the process will be killed, if it was sent TERM and the supervisor knows better than the
// process; else zero. It waits at most wait for the answer.
func (r *Reporter) KillTime(ctx context.Context, wait time.Duration) time.Time {
	if r == nil {
		return time.Time{}
	}
	r.mu.Lock()
	term := r.term
	r.mu.Unlock()
	if !term {
		return time.Time{}
	}
	select {
	case <-r.endKnown:
	case <-r.done:
	case <-time.After(wait):
	case <-ctx.Done():
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.ends
}

// lastReport bounds how long a rank that leaves waits for its report to be sent. Sending is bounded
// by itself; this is for a rank that gets no core.
const lastReport = 5 * time.Second

// ClosedWell notes for the last report that all ranks have closed.
func (r *Reporter) ClosedWell() {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.well = r.lost == nil
}

// Unrestorable reports why no epoch was restored, before the program gets the error and ends.
func (r *Reporter) Unrestorable(why Unrestorable) {
	if r == nil {
		return
	}
	r.mu.Lock()
	r.none = why
	r.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), lastReport)
	defer cancel()
	sent := make(chan struct{})
	select {
	case r.now <- sent:
	case <-r.done:
		return
	case <-ctx.Done(): // the supervisor is stuck
		return
	}
	select {
	case <-sent:
	case <-r.done:
	case <-ctx.Done():
	}
}

// End sends the last report, with the lost rank if there is one.
func (r *Reporter) End(lost *job.LostStatus) {
	if r == nil {
		return
	}
	r.mu.Lock()
	r.lost = cmp.Or(r.lost, lost)
	select {
	case <-r.last:
	default: // one of those that end it at once
		close(r.last)
	}
	r.mu.Unlock()
	select {
	case <-r.done:
	case <-time.After(lastReport):
		_ = r.conn.Close() // it ends the goroutines
	}
}

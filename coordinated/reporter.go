package coordinated

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-hpc/holdfast/internal/job"
	"github.com/holdfast-hpc/holdfast/storage"
)

// reporter tells the supervisor at rank 0.
type reporter struct {
	c        *Checkpointer
	conn     net.Conn
	now      chan chan struct{} // closed when a report has been sent
	last     chan struct{}      // closed to send the last report
	done     chan struct{}      // closed when it is sent
	endKnown chan struct{}      // closed when the supervisor has said how much time TERM leaves

	acknowledged chan struct{} // closed when the supervisor has taken the first report

	mu        sync.Mutex // guards the fields below
	term      bool       // rank 0 was sent TERM
	ends      time.Time  // as the supervisor says; zero = it does not
	lost      *LostError
	well      bool     // every rank has called Close
	none      string   // why nothing can be restored
	missing   []string // nodes that may have it
	lacksData bool     // that is for want of data
}

// reportEvery is the time between reports with no news; while a job starts, its
// first Point is looked for more often.
const (
	reportEvery = 250 * time.Millisecond
	startEvery  = 20 * time.Millisecond
)

// ackTimeout bounds how long a job waits until the supervisor answers.
const ackTimeout = 2 * time.Second

// reportTo connects to the supervisor, and returns when that has answered the first report, or after
// ackTimeout. A job that cannot reach it runs all the same.
func (c *Checkpointer) reportTo(ctx context.Context) {
	v, err := job.ParseSupervisor(c.opt.Supervisor)
	if err == nil && v.NodeLost {
		err = c.store.NoteSurvival(ctx)
	}
	var conn net.Conn
	if err == nil {
		conn, err = v.Dial(ctx)
	}
	if err != nil {
		c.log.Warn("holdfast: cannot report to holdfast run; it will see this start as hung", "error", err)
		return
	}
	r := &reporter{c: c, conn: conn, now: make(chan chan struct{}), last: make(chan struct{}),
		done: make(chan struct{}), endKnown: make(chan struct{}), acknowledged: make(chan struct{})}
	c.reporter = r
	c.writers.Go(r.listen)
	go r.run()
	t := time.NewTimer(ackTimeout)
	defer t.Stop()
	select {
	case <-r.acknowledged:
	case <-r.done:
	case <-ctx.Done():
	case <-t.C:
	}
}

// reportFailed tells the supervisor why Open failed, which it cannot guess.
func (c *Checkpointer) reportFailed(ctx context.Context, why error) {
	v, err := job.ParseSupervisor(c.opt.Supervisor)
	if err != nil || c.reporter != nil || c.world.Rank() != 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, ackTimeout)
	defer cancel()
	conn, err := v.Dial(ctx)
	if err != nil {
		return // the program says it itself
	}
	defer conn.Close()
	rep := job.Report{Job: c.opt.Job, Nodes: c.topo.nodes, Failed: why.Error(), FailedNodes: c.topo.atFault(why)}
	_ = conn.SetDeadline(time.Now().Add(ackTimeout)) // as above
	if json.NewEncoder(conn).Encode(rep) == nil {
		_, _ = bufio.NewReader(conn).ReadString('\n') // its answer, or as above
	}
}

// atFault are the nodes of the ranks on which something failed, if there are others.
func (t *topology) atFault(err error) []string {
	var failed *RanksError
	if !errors.As(err, &failed) {
		return nil
	}
	var nodes []string
	for _, f := range failed.Failed {
		if n := t.nodes[f.Rank]; !slices.Contains(nodes, n) {
			nodes = append(nodes, n)
		}
	}
	if slices.ContainsFunc(t.nodes, func(n string) bool { return !slices.Contains(nodes, n) }) {
		return nodes
	}
	return nil
}

func (r *reporter) run() {
	defer close(r.done)
	defer r.conn.Close()
	every := startEvery
	tick := time.NewTicker(every)
	defer tick.Stop()
	enc := json.NewEncoder(r.conn)
	rep := job.Report{Job: r.c.opt.Job, Step: r.c.opt.slurm.Step, Nodes: r.c.topo.nodes}
	var told chan struct{}
	for ended := false; ; {
		changed := r.c.stats.watch()
		r.fill(&rep)
		if r.conn.SetWriteDeadline(time.Now().Add(time.Second)) != nil || enc.Encode(rep) != nil || ended {
			return
		}
		rep.Nodes = nil
		if told != nil {
			close(told)
			told = nil
		}
		if every == startEvery && rep.Points > 0 {
			every = reportEvery
			tick.Reset(every)
		}
		select {
		case <-tick.C:
		case <-changed:
		case told = <-r.now:
		case <-r.last:
			ended = true
		}
	}
}

func (r *reporter) fill(rep *job.Report) {
	c := r.c
	rep.Points = c.points.load()
	rep.Restoring = c.restored.Load()
	rep.Ready = c.pointFlags.Load()&pointRestore == 0
	st := c.Stats()
	if rs := st.Restore; rs.Epoch != 0 {
		rep.Restored = &job.RestoredStatus{Epoch: rs.Epoch, Level: rs.Level, Bytes: rs.Bytes,
			Seconds: rs.Took.Seconds(), Fetch: rs.Fetch.Seconds()}
	}
	rep.Committed = map[string]storage.Epoch{}
	for _, es := range st.Epochs {
		for level := range es.Durable {
			rep.Committed[level] = max(rep.Committed[level], es.Epoch)
		}
		if es.Stopped {
			rep.Stopped = es.Epoch
		}
		if _, ok := es.Durable[c.levels[len(c.levels)-1]]; ok {
			rep.Newest = es.status()
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	rep.Ended, rep.Unrestorable, rep.MissingNodes, rep.Terminated = r.well, r.none, r.missing, r.term
	rep.Missing = r.lacksData
	if e := r.lost; e != nil {
		rep.Lost = &job.LostStatus{Rank: e.Rank, Node: e.Node, Noticed: e.Noticed, Observed: e.Observed,
			Silent: silence(e.Observed).Seconds()}
		if why, ok := strings.CutPrefix(e.Observed, abortedBy); ok {
			rep.Lost.Aborted = why
		}
	}
}

// silence is the time in the control plane's report of a silent rank.
func silence(observed string) time.Duration {
	_, s, ok := strings.Cut(observed, "silent for ")
	d, err := time.ParseDuration(strings.TrimSpace(s))
	if !ok || err != nil {
		return 0
	}
	return d
}

// listen carries out what the supervisor asks.
func (r *reporter) listen() {
	in := bufio.NewScanner(r.conn)
	for in.Scan() {
		var o job.Order
		if json.Unmarshal(in.Bytes(), &o) != nil {
			continue
		}
		within := time.Duration(o.WithinSeconds * float64(time.Second))
		switch {
		case o.Heard:
			r.takenUp()
			continue
		case o.Answer:
			r.answered(within)
			continue
		case o.Stop:
			r.c.end.Within(within)
		}
		r.c.log.Info("holdfast: holdfast run asks for a checkpoint", "stop", o.Stop, "within_s", o.WithinSeconds)
		_ = r.c.agent.do(r.c.ctx, func() { r.c.agent.request(o.Stop, "holdfast run") }) // closed: nothing follows
	}
}

// terminated lets the next report tell that rank 0 was sent TERM.
func (r *reporter) terminated() {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.term = true
}

// takenUp notes that the supervisor hears this run.
func (r *reporter) takenUp() {
	select {
	case <-r.acknowledged: // it has said so before
	default:
		close(r.acknowledged)
	}
}

// answered takes what the supervisor says about that.
func (r *reporter) answered(within time.Duration) {
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

// killTime is when the process will be killed, if it was sent TERM and the
// supervisor knows better than it; else zero. It waits so long for the answer.
func (r *reporter) killTime(ctx context.Context, wait time.Duration) time.Time {
	if r == nil {
		return time.Time{}
	}
	r.mu.Lock()
	term := r.term
	r.mu.Unlock()
	if !term {
		return time.Time{}
	}
	t := time.NewTimer(wait)
	defer t.Stop()
	select {
	case <-r.endKnown:
	case <-r.done:
	case <-t.C:
	case <-ctx.Done():
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.ends
}

// lastReport bounds how long a rank that leaves waits for its report to be sent.
const lastReport = 300 * time.Millisecond

// closedWell notes that the last report is to tell that all ranks have closed.
func (r *reporter) closedWell() {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.well = r.lost == nil
}

// unrestorable tells why no epoch was restored, if nothing but the checkpoints is
// to blame, before the program hears it and ends.
func (r *reporter) unrestorable(err error) {
	var lost *LostError
	if r == nil || errors.As(err, &lost) || errors.Is(err, context.Canceled) {
		return
	}
	r.mu.Lock()
	r.none, r.lacksData, r.missing = err.Error(), wantsData(err), MissingNodes(err)
	r.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), lastReport)
	defer cancel()
	told := make(chan struct{})
	select {
	case r.now <- told:
	case <-r.done:
		return
	case <-ctx.Done(): // the supervisor is stuck
		return
	}
	select {
	case <-told:
	case <-r.done:
	case <-ctx.Done():
	}
}

// wantsData reports whether a Restore failed because data are missing or damaged where
// it looked: other directories, or another node, may have them.
func wantsData(err error) bool {
	var skipped *SkippedEpochsError
	var restore *RestoreError
	return !errors.As(err, &skipped) && !(errors.As(err, &restore) && restore.Mismatch)
}

// end sends the last report, which tells of a lost rank if there is one.
func (r *reporter) end(lost *LostError) {
	if r == nil {
		return
	}
	r.mu.Lock()
	if r.lost == nil {
		r.lost = lost
	}
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

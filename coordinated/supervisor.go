package coordinated

import (
	"bufio"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-hpc/holdfast/coordinated/control"
	"github.com/holdfast-hpc/holdfast/storage"
)

// A Supervisor hears from the jobs that it has started, one after the other:
// rank 0 of each connects to it from inside Open and reports until it ends. The
// connection proves a random key, as the control plane's do.
type Supervisor struct {
	// RequeueJob is the Slurm job that the ranks put back into the queue when one of
	// them is lost and the Supervisor with it; empty means none. Set it before Var.
	RequeueJob string

	plane   *control.Plane
	key     control.Key
	jobs    chan *Supervised
	guards  chan *Guard
	started chan *Started
	start   atomic.Int64
	serving sync.WaitGroup
}

// SetStart sets the number of the start that Var is for: what announces itself from
// another one is hung up on.
func (s *Supervisor) SetStart(n int) { s.start.Store(int64(n)) }

// Supervise listens for jobs on an interface or address; empty means the first
// interface that is not loopback. The caller closes the Supervisor.
func Supervise(iface string) (*Supervisor, error) {
	key, err := control.NewKey()
	if err != nil {
		return nil, err
	}
	p, err := control.Listen(control.Options{Rank: 0, Size: 1, Key: key, Interface: iface})
	if err != nil {
		return nil, err
	}
	s := &Supervisor{plane: p, key: key, jobs: make(chan *Supervised), guards: make(chan *Guard),
		started: make(chan *Started)}
	s.serving.Go(s.serve)
	return s, nil
}

// Var is what a job needs in its environment, as NAME=value. nodeLost says that
// the run before ended because a node was lost: the epoch that it had restored
// is not to blame for that.
func (s *Supervisor) Var(nodeLost bool) string {
	v := SupervisorVar + "=" + s.plane.Addr() + " " + hex.EncodeToString(s.key[:])
	if nodeLost {
		v += " " + wordNodeLost
	}
	if s.RequeueJob != "" {
		v += " " + wordRequeue + s.RequeueJob
	}
	if n := s.start.Load(); n > 0 {
		v += fmt.Sprintf(" %s%d", wordStart, n)
	}
	return v
}

// Words of SupervisorVar after address and key.
const (
	wordNodeLost = "node-lost"
	wordRequeue  = "requeue="
	wordStart    = "start="
)

// Accept waits for a job's rank 0. The caller closes the Supervised.
func (s *Supervisor) Accept(ctx context.Context) (*Supervised, error) { return accept(ctx, s, s.jobs) }

// Close stops listening.
func (s *Supervisor) Close() error {
	err := s.plane.Close()
	s.serving.Wait()
	return err
}

// Supervised is a running job as its supervisor sees it.
type Supervised struct{ *talk }

// Report is what a job says of itself, four times a second and at once when
// something has changed.
type Report struct {
	Job       string                   `json:"job"`
	Step      string                   `json:"step,omitempty"`  // Slurm's, of this run
	Nodes     []string                 `json:"nodes,omitempty"` // by rank; in the first report only
	Points    uint64                   `json:"points"`          // passed by rank 0
	Restoring bool                     `json:"restoring,omitempty"`
	Ready     bool                     `json:"ready,omitempty"` // Restore is over
	Restored  *RestoredStatus          `json:"restored,omitempty"`
	Committed map[string]storage.Epoch `json:"committed,omitempty"` // newest in this run, by level
	Newest    *EpochStatus             `json:"newest,omitempty"`    // that is at the last level
	Stopped   storage.Epoch            `json:"stopped,omitempty"`   // the final checkpoint
	Ended     bool                     `json:"ended,omitempty"`     // every rank has called Close
	// Terminated says that rank 0 was sent TERM, which means stop to it. It waits a
	// moment for Tell, to know how much time that leaves.
	Terminated bool        `json:"terminated,omitempty"`
	Lost       *LostStatus `json:"lost,omitempty"`
	// Unrestorable says why Restore failed, if that lies in the checkpoints: another
	// start with the same directories would fail alike.
	Unrestorable string `json:"unrestorable,omitempty"`
	// Missing says that this is for want of data, which may come back with a node; not
	// because the program differs or has died after each restore.
	Missing bool `json:"missing,omitempty"`
	// MissingNodes are the nodes that may have it, as far as that is known.
	MissingNodes []string `json:"missing_nodes,omitempty"`
	// Failed says why Open failed; nothing follows it. FailedNodes are those of the ranks at
	// fault, if it was not all of them.
	Failed      string   `json:"failed,omitempty"`
	FailedNodes []string `json:"failed_nodes,omitempty"`
}

// RestoredStatus is RestoreStats in plain data.
type RestoredStatus struct {
	Epoch   storage.Epoch `json:"epoch"`
	Level   string        `json:"level"` // of rank 0's shard
	Bytes   int64         `json:"bytes"`
	Seconds float64       `json:"s"`       // all of Restore
	Fetch   float64       `json:"fetch_s"` // of that, until every rank had read its shard
}

// LostStatus is LostError in plain data.
type LostStatus struct {
	Rank     int     `json:"rank"`
	Node     string  `json:"node"`
	Noticed  int     `json:"noticed"`
	Observed string  `json:"observed"`
	Silent   float64 `json:"silent_s"` // before it was noticed; 0 when a connection broke
	// Aborted is what the rank called Abort with; empty if it did not.
	Aborted string `json:"aborted,omitempty"`
}

// Next returns the next report. Silence for longer than patience, and the end of
// the connection, are errors: rank 0 or its node is gone, or it has left.
func (s *Supervised) Next(patience time.Duration) (Report, error) {
	b, err := s.next(patience)
	if err != nil {
		return Report{}, err
	}
	var r Report
	if err := json.Unmarshal(b, &r); err != nil {
		return Report{}, fmt.Errorf("report of the job: %w", err)
	}
	return r, nil
}

// Request asks for a checkpoint, a final one if stop is set. within says how
// long the job has until it is killed; 0 means that nobody knows.
func (s *Supervised) Request(stop bool, within time.Duration) error {
	if err := s.order(order{Stop: stop, WithinSeconds: within.Seconds()}); err != nil {
		return fmt.Errorf("ask the job for a checkpoint: %w", err)
	}
	return nil
}

// Tell answers a report that says Terminated: the job has so long until it is
// killed, whatever it counts on after TERM. 0 means that it is to go by that.
func (s *Supervised) Tell(within time.Duration) error {
	if err := s.order(order{WithinSeconds: within.Seconds(), Answer: true}); err != nil {
		return fmt.Errorf("tell the job how much time is left: %w", err)
	}
	return nil
}

func (s *Supervised) order(o order) error { return s.send(o) }

// order is what a supervisor asks.
type order struct {
	Stop          bool    `json:"stop"`
	WithinSeconds float64 `json:"within_s,omitempty"`
	Answer        bool    `json:"answer,omitempty"` // to a report that says Terminated; asks for nothing
}

// reporter tells the supervisor at rank 0.
type reporter struct {
	c    *Checkpointer
	conn net.Conn
	now  chan chan struct{} // closed when a report has been sent
	last chan struct{}      // closed to send the last report
	done chan struct{}      // closed when it is sent
	told chan struct{}      // closed when the supervisor has said how much time TERM leaves

	mu      sync.Mutex // guards the fields below
	term    bool       // rank 0 was sent TERM
	ends    time.Time  // as the supervisor says; zero = it does not
	lost    *LostError
	well    bool     // every rank has called Close
	none    string   // why nothing can be restored
	missing []string // nodes that may have it
	gone    bool     // that is for want of data
}

// reportEvery is the time between reports with no news; while a job starts, its
// first Point is looked for more often.
const (
	reportEvery = 250 * time.Millisecond
	startEvery  = 20 * time.Millisecond
)

// supervision is what Options.Supervisor says.
type supervision struct {
	addr     string
	key      control.Key
	nodeLost bool
	requeue  string // Slurm job
	start    int
}

// parseSupervisor reads Options.Supervisor.
func parseSupervisor(s string) (v supervision, err error) {
	words := strings.Fields(s)
	bad := &OptionError{Name: "Supervisor", Why: "it is not what holdfast run sets; unset " + SupervisorVar}
	if len(words) < 2 {
		return v, bad
	}
	b, err := hex.DecodeString(words[1])
	if err != nil || len(b) != len(v.key) {
		return v, bad
	}
	v.addr = words[0]
	copy(v.key[:], b)
	for _, w := range words[2:] {
		v.nodeLost = v.nodeLost || w == wordNodeLost
		if job, ok := strings.CutPrefix(w, wordRequeue); ok {
			v.requeue = job
		}
		if n, ok := strings.CutPrefix(w, wordStart); ok {
			v.start, _ = strconv.Atoi(n) // none is 0
		}
	}
	return v, nil
}

// reportTo connects to the supervisor. A job that cannot reach it runs all the
// same.
func (c *Checkpointer) reportTo(ctx context.Context) {
	v, err := parseSupervisor(c.opt.Supervisor)
	if err == nil && v.nodeLost {
		err = c.store.RestoreSurvived(ctx)
	}
	var conn net.Conn
	if err == nil {
		conn, err = control.DialClient(ctx, v.addr, 0, v.key)
	}
	if err != nil {
		c.log.Warn("holdfast: the supervisor hears nothing of this run", "error", err)
		return
	}
	r := &reporter{c: c, conn: conn, now: make(chan chan struct{}), last: make(chan struct{}),
		done: make(chan struct{}), told: make(chan struct{})}
	c.reporter = r
	c.writers.Go(r.listen)
	go r.run()
}

// reportFailed tells the supervisor why Open failed, which it cannot guess.
func (c *Checkpointer) reportFailed(ctx context.Context, why error) {
	v, err := parseSupervisor(c.opt.Supervisor)
	if err != nil || c.reporter != nil || c.world.Rank() != 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, sendTime)
	defer cancel()
	conn, err := control.DialClient(ctx, v.addr, 0, v.key)
	if err != nil {
		return // the program says it itself
	}
	l := newTalk(conn)
	// as above
	_ = l.send(Report{Job: c.opt.Job, Nodes: c.topo.nodes, Failed: why.Error(), FailedNodes: c.topo.atFault(why)})
	_ = l.Close()
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
	rep := Report{Job: r.c.opt.Job, Step: r.c.opt.slurm.Step, Nodes: r.c.topo.nodes}
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

func (r *reporter) fill(rep *Report) {
	c := r.c
	rep.Points = c.points.load()
	rep.Restoring = c.restored.Load()
	rep.Ready = c.gate.Load()&gateRestore == 0
	st := c.Stats()
	if rs := st.Restore; rs.Epoch != 0 {
		rep.Restored = &RestoredStatus{rs.Epoch, rs.Level, rs.Bytes, rs.Took.Seconds(), rs.Fetch.Seconds()}
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
	rep.Missing = r.gone
	if e := r.lost; e != nil {
		rep.Lost = &LostStatus{Rank: e.Rank, Node: e.Node, Noticed: e.Noticed, Observed: e.Observed,
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
		var o order
		if json.Unmarshal(in.Bytes(), &o) != nil {
			continue
		}
		within := time.Duration(o.WithinSeconds * float64(time.Second))
		switch {
		case o.Answer:
			r.answered(within)
			continue
		case o.Stop:
			r.c.limitStop(within)
		}
		r.c.log.Info("holdfast: asked by holdfast run", "stop", o.Stop, "within_s", o.WithinSeconds)
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

// answered takes what the supervisor says about that.
func (r *reporter) answered(within time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if within > 0 {
		r.ends = time.Now().Add(within)
	}
	select {
	case <-r.told:
	default:
		close(r.told)
	}
}

// toldEnd is when the process will be killed, if it was sent TERM and the
// supervisor knows better than it; else zero. It waits so long for the answer.
func (r *reporter) toldEnd(ctx context.Context, wait time.Duration) time.Time {
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
	case <-r.told:
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
	r.none, r.gone, r.missing = err.Error(), wantsData(err), MissingNodes(err)
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
	var poisoned *PoisonedError
	var restore *RestoreError
	return !errors.As(err, &poisoned) && !(errors.As(err, &restore) && restore.Mismatch)
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

package coordinated

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/holdfast-hpc/holdfast/coordinated/control"
	"github.com/holdfast-hpc/holdfast/internal/vfs"
	"github.com/holdfast-hpc/holdfast/storage"
)

// contactName is the file, in the job's first shared directory, that says how
// to reach a running job. It holds the job's key, so only its owner may read it.
const contactName = "holdfast.control"

// contact is what it says.
type contact struct {
	Job  string      `json:"job"`
	Addr string      `json:"addr"` // of rank 0
	Node string      `json:"node"`
	PID  int         `json:"pid"`
	Key  control.Key `json:"key"`
}

// query and reply are one line of JSON each.
type query struct {
	Op   string `json:"op"` // "request" or "status"
	Stop bool   `json:"stop,omitempty"`
	Wait bool   `json:"wait,omitempty"`
}

type reply struct {
	Error  string     `json:"error,omitempty"`
	Status *JobStatus `json:"status,omitempty"`
}

// JobStatus is what a running job says of itself.
type JobStatus struct {
	Job    string        `json:"job"`
	Ranks  int           `json:"ranks"`
	Nodes  []string      `json:"nodes"` // by rank
	Points uint64        `json:"points"`
	Cut    string        `json:"cut"`    // where rank 0 stands with the epoch in progress
	Epochs []EpochStatus `json:"epochs"` // as rank 0 has seen them, oldest first

	Levels  []string     `json:"levels"` // nearest first
	Seconds float64      `json:"up_s"`   // since Open
	Next    *NextStatus  `json:"next,omitempty"`
	States  []RankStatus `json:"rank_states,omitempty"` // of all ranks, in answer to Status
}

// NextStatus says when rank 0 will ask for a checkpoint of its own accord.
type NextStatus struct {
	By      string  `json:"by"`
	Seconds float64 `json:"in_s"`
	Final   bool    `json:"final,omitempty"`
}

// EpochStatus is EpochStats in plain data.
type EpochStatus struct {
	Epoch          storage.Epoch      `json:"epoch"`
	Bytes          int64              `json:"bytes"` // of rank 0's shard
	BlockedSeconds float64            `json:"blocked_s"`
	DurableSeconds map[string]float64 `json:"durable_s"`
	Error          string             `json:"error,omitempty"`
}

// server answers clients at rank 0.
type server struct {
	c    *Checkpointer
	real *control.Plane
	file string
}

// serve publishes the contact file and answers clients until the plane closes.
func (c *Checkpointer) serve(p *control.Plane, key control.Key) error {
	s := &server{c: c, real: p, file: filepath.Join(c.opt.contactDir(), contactName)}
	b, err := json.Marshal(contact{Job: c.opt.Job, Addr: c.clientAddr(p), Node: c.topo.nodes[0], PID: os.Getpid(),
		Key: key})
	if err != nil {
		return fmt.Errorf("coordinated: contact file: %w", err)
	}
	if err := writeWhole(s.file, append(b, '\n')); err != nil {
		err = fmt.Errorf("coordinated: contact file: %w", err)
		if len(c.asked) == 0 {
			return err
		}
		// The directory may be one that this run does without.
		c.log.Warn("holdfast: status and request will not find this run", "error", err)
	}
	c.server = s
	c.writers.Go(s.run)
	return nil
}

// clientAddr is where other processes of the owner reach rank 0. An interface that the user
// has chosen serves them too.
func (c *Checkpointer) clientAddr(p *control.Plane) string {
	if c.opt.Interface != "" {
		return p.Addr()
	}
	addr, err := p.ListenElsewhere()
	if err != nil {
		c.log.Warn("holdfast: 'holdfast status' and 'request' work on this node only", "error", err)
		return p.Addr()
	}
	return addr
}

// writeWhole makes a small file that readers find whole or not at all. Only its
// owner may read it.
func writeWhole(file string, b []byte) error {
	tmp := file + ".tmp"
	_ = os.Remove(tmp) // of a run that died while writing it
	f, err := os.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	return os.Rename(tmp, file)
}

// contactDir is where the contact file lies.
func (o *Options) contactDir() string {
	if o.Global != "" {
		return o.Global
	}
	return o.Local
}

// RunningError says that another run of the job is alive in the same directory:
// the two would overwrite each other's epochs.
type RunningError struct {
	Dir, Node string
	PID       int
}

func (e *RunningError) Error() string {
	return fmt.Sprintf("coordinated: a run of this job is alive in %s: rank 0 is process %d on node %s; end it "+
		"first, or use another directory", e.Dir, e.PID, e.Node)
}

// lingering is how long the ranks of a run that is about to end may still answer.
const lingering = 5 * time.Second

// refuseSecond looks for a run that answers, and goes on answering: survivors of
// a dead rank take a moment to leave. A contact file that a dead run left behind
// is no obstacle.
func refuseSecond(ctx context.Context, dir string) error {
	tick := time.NewTicker(lingering / 10)
	defer tick.Stop()
	for end := time.Now().Add(lingering); ; {
		err := answering(ctx, dir)
		if err == nil || time.Now().After(end) {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return err
		}
	}
}

// readContact reads the contact file of a directory. Whose it is does not matter
// here: who answers at the address has to prove the key that it names.
func readContact(dir string) (k contact, err error) {
	b, err := vfs.OS{AllowForeign: true}.ReadFile(filepath.Join(dir, contactName), maxNote)
	if err != nil {
		return k, err
	}
	if err := json.Unmarshal(b, &k); err != nil {
		return k, fmt.Errorf("%s: %w", contactName, err)
	}
	return k, nil
}

// answering returns a *RunningError when the run that published the contact file
// is alive.
func answering(ctx context.Context, dir string) error {
	k, err := readContact(dir)
	if err != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	conn, err := control.DialClient(ctx, k.Addr, 0, k.Key)
	if err != nil {
		return nil // it is gone, or the port is somebody else's by now
	}
	_ = conn.Close() // it has answered the proof, which is all there was to ask
	return &RunningError{Dir: dir, Node: k.Node, PID: k.PID}
}

func (s *server) run() {
	for {
		conn, err := s.real.AcceptClient(s.c.ctx)
		if err != nil {
			return
		}
		s.c.writers.Go(func() { s.answer(conn) })
	}
}

// close removes the contact file.
func (s *server) close() {
	if s == nil {
		return
	}
	if err := os.Remove(s.file); err != nil && !errors.Is(err, fs.ErrNotExist) {
		s.c.log.Warn("holdfast: contact file", "error", err)
	}
}

// answer serves one client: one line in, one line out, until it hangs up.
func (s *server) answer(conn net.Conn) {
	defer conn.Close()
	in := bufio.NewScanner(conn)
	out := json.NewEncoder(conn)
	for in.Scan() {
		var q query
		r := reply{}
		if err := json.Unmarshal(in.Bytes(), &q); err != nil {
			r.Error = "malformed query: " + err.Error()
		} else if err := s.handle(q, &r); err != nil {
			r.Error = err.Error()
		}
		if out.Encode(r) != nil {
			return // the client has gone
		}
	}
}

func (s *server) handle(q query, r *reply) error {
	switch q.Op {
	case "status":
	case "request":
		if err := s.request(q); err != nil {
			return err
		}
	default:
		return fmt.Errorf("unknown operation %q", q.Op)
	}
	var err error
	if r.Status, err = s.status(); err != nil || q.Op != "status" {
		return err
	}
	r.Status.States, err = s.c.rankStates()
	return err
}

// request asks for a checkpoint and, if wanted, waits for the first epoch that
// is asked for now to be at all levels or to fail.
func (s *server) request(q query) error {
	c := s.c
	before := c.stats.newest()
	if err := c.agent.do(c.ctx, func() { c.agent.request(q.Stop, "holdfast request") }); err != nil {
		return err
	}
	if !q.Wait {
		return nil
	}
	for {
		changed := c.stats.watch()
		for _, es := range c.Stats().Epochs {
			if es.Epoch <= before {
				continue
			}
			if es.Err != nil {
				return es.Err
			}
			if len(es.Durable) == len(c.levels) {
				return nil
			}
		}
		select {
		case <-changed:
		case <-c.ctx.Done():
			return ErrClosed
		}
	}
}

func (s *server) status() (*JobStatus, error) {
	c := s.c
	st := &JobStatus{Job: c.opt.Job, Ranks: c.world.Size(), Nodes: c.topo.nodes, Points: c.points.load()}
	st.Levels, st.Seconds = c.levels, time.Since(c.begun).Seconds()
	if err := c.agent.do(c.ctx, func() {
		st.Cut, st.Next = c.agent.machine.String(), c.agent.trigger.status()
	}); err != nil {
		return nil, err
	}
	for _, es := range c.Stats().Epochs {
		st.Epochs = append(st.Epochs, *es.status())
	}
	return st, nil
}

// status is the epoch in plain data.
func (es *EpochStats) status() *EpochStatus {
	e := &EpochStatus{Epoch: es.Epoch, Bytes: es.Bytes, BlockedSeconds: es.Blocked.Seconds(),
		DurableSeconds: map[string]float64{}}
	for l, d := range es.Durable {
		e.DurableSeconds[l] = d.Seconds()
	}
	if es.Err != nil {
		e.Error = es.Err.Error()
	}
	return e
}

// Client talks to a running job from outside.
type Client struct {
	conn net.Conn
	in   *bufio.Scanner
}

// NotRunningError says that a directory belongs to no job that can be reached.
type NotRunningError struct {
	Dir string
	Err error
}

func (e *NotRunningError) Error() string {
	return fmt.Sprintf("no running job answers for %s (is the job running, and is this the directory it writes to? "+
		"use its HOLDFAST_GLOBAL): %v", e.Dir, e.Err)
}

func (e *NotRunningError) Unwrap() error { return e.Err }

// DialJob connects to the job that runs with dir as its global directory, or as
// its local one on the node of rank 0 if it has no global one. Errors are
// *NotRunningError. The caller closes the Client.
func DialJob(ctx context.Context, dir string) (*Client, error) {
	k, err := readContact(dir)
	if err != nil {
		return nil, &NotRunningError{dir, err}
	}
	conn, err := control.DialClient(ctx, k.Addr, 0, k.Key)
	if err != nil {
		if host, herr := os.Hostname(); herr == nil && host != k.Node && strings.HasPrefix(k.Addr, "127.") {
			err = fmt.Errorf("a job on one node can be reached there alone: do this on %s (%w)", k.Node, err)
		}
		return nil, &NotRunningError{dir, err}
	}
	in := bufio.NewScanner(conn)
	in.Buffer(nil, 64<<20)
	return &Client{conn: conn, in: in}, nil
}

// Request asks the job for a checkpoint, a final one if stop is set, and with
// wait returns when it is at all levels or has failed.
func (c *Client) Request(ctx context.Context, stop, wait bool) (*JobStatus, error) {
	return c.ask(ctx, query{Op: "request", Stop: stop, Wait: wait})
}

// Status asks the job how it stands, every rank of it.
func (c *Client) Status(ctx context.Context) (*JobStatus, error) {
	return c.ask(ctx, query{Op: "status"})
}

func (c *Client) ask(ctx context.Context, q query) (*JobStatus, error) {
	stop := context.AfterFunc(ctx, func() { _ = c.conn.SetDeadline(time.Unix(1, 0)) }) // ends the read below
	defer stop()
	if err := json.NewEncoder(c.conn).Encode(q); err != nil {
		return nil, fmt.Errorf("ask the job: %w", err)
	}
	if !c.in.Scan() {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		return nil, fmt.Errorf("the job hung up before it answered: %w", errors.Join(c.in.Err(), net.ErrClosed))
	}
	var r reply
	if err := json.Unmarshal(c.in.Bytes(), &r); err != nil {
		return nil, fmt.Errorf("answer of the job: %w", err)
	}
	if r.Error != "" {
		return r.Status, errors.New(r.Error)
	}
	return r.Status, nil
}

// Close hangs up.
func (c *Client) Close() error { return c.conn.Close() }

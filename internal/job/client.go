package job

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"

	"github.com/holdfast-hpc/holdfast/coordinated/control"
	"github.com/holdfast-hpc/holdfast/internal/child"
	"github.com/holdfast-hpc/holdfast/internal/vfs"
)

// ContactName is the file, in the job's first shared directory, that says how
// to reach a running job. It holds the job's key, so only its owner may read it.
const ContactName = "holdfast.control"

// A Contact has the address and the key in that file.
type Contact struct {
	Job  string `json:"job"`
	Addr string `json:"addr"` // of rank 0
	Node string `json:"node"`
	PID  int    `json:"pid"`
	// Machine and Started are for child.HasEnded. Releases before 0.3.0 have neither.
	Machine string `json:"machine,omitempty"`
	Started uint64 `json:"started,omitempty"`
	// Daemon: the process is the node daemon of a program, which may outlive it.
	Daemon bool        `json:"daemon,omitempty"`
	Key    control.Key `json:"key"`
	// Supervisor is the address of the holdfast run that has started the job; empty: none has.
	Supervisor string `json:"supervisor,omitempty"`
}

// A Query and its Reply are one line of JSON each.
type Query struct {
	Op   string `json:"op"` // "request" or "status"
	Stop bool   `json:"stop,omitempty"`
	Wait bool   `json:"wait,omitempty"`
}

// A Reply answers a Query.
type Reply struct {
	Error  string  `json:"error,omitempty"`
	Status *Status `json:"status,omitempty"`
}

// Status is the state of a running job.
type Status struct {
	Job    string   `json:"job"`    // name of the job
	Run    string   `json:"run"`    // identity of the run that its directories belong to
	Ranks  int      `json:"ranks"`  // number of ranks
	Nodes  []string `json:"nodes"`  // host name of each rank's node, by rank
	Points uint64   `json:"points"` // points that rank 0 has passed
	// Interface of rank 0 on which the control plane listens, and its kind.
	Network string        `json:"network,omitempty"`
	Cut     string        `json:"cut"`    // state of rank 0 in the epoch in progress
	Epochs  []EpochStatus `json:"epochs"` // epochs of this run as rank 0 has seen them, oldest first

	Levels  []string          `json:"levels"`              // names of the levels, nearest first
	Seconds float64           `json:"up_s"`                // seconds since the job opened its checkpoints
	Every   map[string]string `json:"every,omitempty"`     // by level: which epochs it takes, if not all
	Loss    *LossStatus       `json:"node_loss,omitempty"` // cost of the loss of a node now
	// When checkpoints are taken by the clock, and the setting that says so. Empty: only on request.
	Timing string `json:"timing,omitempty"`
	// The number of checkpoints in a row that have failed, from three on, and the cost of a death.
	Failing string      `json:"failing,omitempty"`
	Next    *NextStatus `json:"next,omitempty"` // next checkpoint by the clock
	// The answer is from holdfast run --watch: no checkpoints are taken.
	Watched  bool         `json:"watched,omitempty"`
	Deadlock string       `json:"deadlock,omitempty"`    // ranks that wait for each other
	PutOff   int          `json:"put_off,omitempty"`     // cuts that were not used for the next epoch
	States   []RankStatus `json:"rank_states,omitempty"` // state of each rank; only in answer to holdfast status
}

// LossStatus is the cost of losing a node now.
type LossStatus struct {
	Epoch   uint64  `json:"epoch"`           // epoch that the job would restart from; 0: from its beginning
	Level   string  `json:"level,omitempty"` // level that has it
	Seconds float64 `json:"computed_s"`      // seconds of computing that would be lost
}

// NextStatus is the next checkpoint that rank 0 will ask for by the clock.
type NextStatus struct {
	By      string  `json:"by"`              // setting that asks for the checkpoint
	Seconds float64 `json:"in_s"`            // seconds until then
	Final   bool    `json:"final,omitempty"` // the job ends after it
}

// EpochStatus is one epoch as rank 0 has seen it.
type EpochStatus struct {
	Epoch          uint64             `json:"epoch"`     // number of the epoch
	Bytes          int64              `json:"bytes"`     // protected bytes of rank 0
	BlockedSeconds float64            `json:"blocked_s"` // seconds for which rank 0 could not compute
	DurableSeconds map[string]float64 `json:"durable_s"` // by level: seconds from the cut to the commit
	// By level that does not get this epoch: the newer epoch that it gets; 0: none is due.
	Skipped map[string]uint64 `json:"skipped,omitempty"`
	PutOff  int               `json:"put_off,omitempty"` // earlier cuts that were not used: messages were in flight
	Error   string            `json:"error,omitempty"`   // why it failed
}

// RankStatus is the state of one rank.
type RankStatus struct {
	Rank int    `json:"rank"` // number of the rank
	Node string `json:"node"` // host name of its node
	// One of starting, restoring, running, blocked, polling, parked, draining, capturing, held, stopping, closed and
	// silent.
	State   string  `json:"state"`
	Seconds float64 `json:"for_s"`             // seconds in this state; in a call, at least so many
	Call    string  `json:"call,omitempty"`    // MPI call that it is blocked in, such as Recv
	Comm    string  `json:"comm,omitempty"`    // communicator of that call
	Waits   string  `json:"waits,omitempty"`   // ranks that it waits for
	Points  uint64  `json:"points"`            // points that it has passed
	Epoch   uint64  `json:"epoch,omitempty"`   // epoch in progress
	Phase   string  `json:"phase,omitempty"`   // phase of that epoch: asked, parking, frozen or cutting
	Work    []Work  `json:"behind,omitempty"`  // writing that goes on in the background
	Cost    float64 `json:"blocked_s"`         // seconds for which the last checkpoint blocked it
	Last    uint64  `json:"last_epoch"`        // newest epoch that was cut
	Level   string  `json:"last_at,omitempty"` // furthest level that this epoch has reached
	Fault   string  `json:"fault,omitempty"`   // why it is not at all levels
	Daemon  int     `json:"daemon,omitempty"`  // process ID of the node daemon that takes its checkpoints
}

// Work is one task that a rank does in the background.
type Work struct {
	What    string  `json:"what"`  // write, redundancy or flush
	Epoch   uint64  `json:"epoch"` // number of the epoch
	Level   string  `json:"level"` // level that is written
	Seconds float64 `json:"for_s"` // seconds since it began
	Bytes   int64   `json:"bytes"` // bytes done; 0: not counted
	Total   int64   `json:"total"` // bytes in all, about; 0: not known
}

// ReadContact reads the file ContactName or RunName of a directory. Its owner does not matter
// here: the process at the address has to prove the key that the file names.
func ReadContact(dir, name string) (k Contact, err error) {
	b, err := vfs.OS{AllowForeign: true}.ReadFile(filepath.Join(dir, name), 1<<20)
	if err != nil {
		return k, err
	}
	if err := json.Unmarshal(b, &k); err != nil {
		return k, fmt.Errorf("%s: %w", name, err)
	}
	return k, nil
}

// Write writes such a file for the calling process.
func (k Contact) Write(file string) error {
	k.PID = os.Getpid()
	if self, err := child.Look(k.PID); err == nil { // else the others ask at its address
		k.Machine, k.Started = child.Machine(), self.Started
	}
	b, err := json.Marshal(k)
	if err != nil {
		return err
	}
	return vfs.WriteWhole(file, append(b, '\n'))
}

// HasEnded reports whether the process has ended for sure. Then a caller must not connect to its address: MPICH's
// mpiexec may have the port by now, and ends when a connection to it is closed.
func (k *Contact) HasEnded() bool { return child.HasEnded(k.Machine, k.PID, k.Started) }

// elsewhere reports whether the process answers only on its node, and this is another one.
func (k *Contact) elsewhere() bool {
	host, err := os.Hostname()
	return err == nil && host != k.Node && strings.HasPrefix(k.Addr, "127.")
}

// Client talks to a running job from outside.
type Client struct{ *line }

func notRunning(dir string, err error) error {
	return fmt.Errorf("no running job answers for %s (is the job running, and is this the directory it writes to? "+
		"use its HOLDFAST_GLOBAL): %w", dir, err)
}

// died returns the error of a job whose rank 0 or node daemon died without ending it.
func (k *Contact) died(dir string) error {
	if k.Daemon {
		return fmt.Errorf("no running job answers for %s: the node daemon of job %s, process %d on %s, has died; if "+
			"the program still runs, it starts another one at its next point, and nothing is saved until then; if "+
			"not, start it again to continue", dir, k.Job, k.PID, k.Node)
	}
	return fmt.Errorf("no running job answers for %s: rank 0 of job %s, process %d on %s, has died; start the job "+
		"again to continue", dir, k.Job, k.PID, k.Node)
}

// DialJob connects to the job that runs with dir as its global directory, or as
// its local one on the node of rank 0 if it has no global one. The caller closes the Client.
func DialJob(ctx context.Context, dir string) (*Client, error) {
	k, err := ReadContact(dir, ContactName)
	if err != nil {
		return nil, notRunning(dir, err)
	}
	if k.HasEnded() {
		return nil, k.died(dir)
	}
	conn, err := control.DialClient(ctx, k.Addr, 0, k.Key)
	if err != nil {
		if k.elsewhere() {
			err = fmt.Errorf("a job on a single node answers only there: run this on %s (%w)", k.Node, err)
		}
		return nil, notRunning(dir, err)
	}
	return &Client{newLine(conn)}, nil
}

// Request asks the job for a checkpoint, a final one if stop is set, and with
// wait returns when it is at all levels or has failed.
func (c *Client) Request(ctx context.Context, stop, wait bool) (*Status, error) {
	return c.ask(ctx, Query{Op: "request", Stop: stop, Wait: wait})
}

// Status asks the job how it stands, every rank of it.
func (c *Client) Status(ctx context.Context) (*Status, error) {
	return c.ask(ctx, Query{Op: "status"})
}

func (c *Client) ask(ctx context.Context, q Query) (*Status, error) {
	stop := context.AfterFunc(ctx, func() { _ = c.Close() }) // ends the read below
	defer stop()
	if err := c.send(q); err != nil {
		return nil, fmt.Errorf("ask the job: %w", err)
	}
	b, err := c.next(math.MaxInt64) // ctx bounds it
	switch {
	case err != nil && ctx.Err() != nil:
		return nil, ctx.Err()
	case err != nil:
		return nil, fmt.Errorf("the job disconnected before it answered: %w", err)
	}
	var r Reply
	if err := json.Unmarshal(b, &r); err != nil {
		return nil, fmt.Errorf("answer of the job: %w", err)
	}
	if r.Error != "" {
		return r.Status, errors.New(r.Error)
	}
	return r.Status, nil
}

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
	"syscall"

	"github.com/holdfast-hpc/holdfast/coordinated/control"
	"github.com/holdfast-hpc/holdfast/internal/vfs"
)

// ContactName is the file, in the job's first shared directory, that says how
// to reach a running job. It holds the job's key, so only its owner may read it.
const ContactName = "holdfast.control"

// A Contact is what it says.
type Contact struct {
	Job  string `json:"job"`
	Addr string `json:"addr"` // of rank 0
	Node string `json:"node"`
	PID  int    `json:"pid"`
	// Daemon says that the process is the node daemon of a program, which may outlive it.
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

// Status is what a running job says of itself.
type Status struct {
	Job    string   `json:"job"`
	Run    string   `json:"run"` // that its directories belong to, for people
	Ranks  int      `json:"ranks"`
	Nodes  []string `json:"nodes"` // by rank
	Points uint64   `json:"points"`
	// Network is the interface of rank 0 on which the control plane listens, and its kind.
	Network string        `json:"network,omitempty"`
	Cut     string        `json:"cut"`    // where rank 0 stands with the epoch in progress
	Epochs  []EpochStatus `json:"epochs"` // as rank 0 has seen them, oldest first

	Levels  []string          `json:"levels"`          // nearest first
	Seconds float64           `json:"up_s"`            // since Open
	Every   map[string]string `json:"every,omitempty"` // by level: which epochs it takes, if not all
	Loss    *LossStatus       `json:"node_loss,omitempty"`
	// Timing is when checkpoints are taken by the clock, and what says so; empty: only when asked for.
	Timing string `json:"timing,omitempty"`
	// Failing says how many checkpoints in a row have failed, from three on, and what a death would cost.
	Failing string      `json:"failing,omitempty"`
	Next    *NextStatus `json:"next,omitempty"`
	// Watched says that holdfast run --watch answers: no checkpoints are taken, and Deadlock names ranks that wait for
	// what cannot come.
	Watched  bool         `json:"watched,omitempty"`
	Deadlock string       `json:"deadlock,omitempty"`
	PutOff   int          `json:"put_off,omitempty"`     // cuts not used for the next epoch
	States   []RankStatus `json:"rank_states,omitempty"` // of all ranks, in answer to Status
}

// LossStatus says what the loss of a node would cost now.
type LossStatus struct {
	Epoch   uint64  `json:"epoch"`           // the job would go on from it; 0: from its start
	Level   string  `json:"level,omitempty"` // that has it
	Seconds float64 `json:"computed_s"`      // since its cut, or since the start
}

// NextStatus says when rank 0 will ask for a checkpoint of its own accord.
type NextStatus struct {
	By      string  `json:"by"`
	Seconds float64 `json:"in_s"`
	Final   bool    `json:"final,omitempty"`
}

// EpochStatus is coordinated.EpochStats in plain data.
type EpochStatus struct {
	Epoch          uint64             `json:"epoch"`
	Bytes          int64              `json:"bytes"` // of rank 0's shard
	BlockedSeconds float64            `json:"blocked_s"`
	DurableSeconds map[string]float64 `json:"durable_s"`
	// Skipped has the levels that it does not go to, with the epoch that goes in its place; 0: not due.
	Skipped map[string]uint64 `json:"skipped,omitempty"`
	PutOff  int               `json:"put_off,omitempty"` // cuts before it that were not used: messages were in flight
	Error   string            `json:"error,omitempty"`
}

// RankStatus is what one rank says of itself.
type RankStatus struct {
	Rank    int     `json:"rank"`
	Node    string  `json:"node"`
	State   string  `json:"state"`
	Seconds float64 `json:"for_s"`             // in this state; of a call, at least
	Call    string  `json:"call,omitempty"`    // blocked in, such as Recv
	Comm    string  `json:"comm,omitempty"`    // on this communicator
	Waits   string  `json:"waits,omitempty"`   // from or to whom
	Points  uint64  `json:"points"`            // reached so far
	Epoch   uint64  `json:"epoch,omitempty"`   // being agreed on
	Phase   string  `json:"phase,omitempty"`   // asked, parking, frozen, cutting
	Work    []Work  `json:"behind,omitempty"`  // what is written in the background
	Cost    float64 `json:"blocked_s"`         // by the last checkpoint
	Last    uint64  `json:"last_epoch"`        // the newest that was cut
	Level   string  `json:"last_at,omitempty"` // the furthest level it has reached
	Fault   string  `json:"fault,omitempty"`   // why it is not at all levels
	Daemon  int     `json:"daemon,omitempty"`  // process of holdfast node that takes its checkpoints
}

// Work is something that a rank does in the background.
type Work struct {
	What    string  `json:"what"` // write, redundancy or flush
	Epoch   uint64  `json:"epoch"`
	Level   string  `json:"level"`
	Seconds float64 `json:"for_s"`
	Bytes   int64   `json:"bytes"` // done so far; 0 when nobody counts
	Total   int64   `json:"total"` // about; 0 when nobody knows
}

// ReadContact reads the contact file of a directory. Its owner does not matter
// here: the process at the address has to prove the key that the file names.
func ReadContact(dir string) (k Contact, err error) {
	b, err := vfs.OS{AllowForeign: true}.ReadFile(filepath.Join(dir, ContactName), 1<<20)
	if err != nil {
		return k, err
	}
	if err := json.Unmarshal(b, &k); err != nil {
		return k, fmt.Errorf("%s: %w", ContactName, err)
	}
	return k, nil
}

// Client talks to a running job from outside.
type Client struct{ *line }

// notRunning is the error of a directory whose job cannot be reached.
func notRunning(dir string, err error) error {
	return fmt.Errorf("no running job answers for %s (is the job running, and is this the directory it writes to? "+
		"use its HOLDFAST_GLOBAL): %w", dir, err)
}

// died is the error of a job whose rank 0 or node daemon died without ending it.
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
	k, err := ReadContact(dir)
	if err != nil {
		return nil, notRunning(dir, err)
	}
	conn, err := control.DialClient(ctx, k.Addr, 0, k.Key)
	if err != nil {
		switch host, herr := os.Hostname(); {
		case herr != nil:
		case host != k.Node && strings.HasPrefix(k.Addr, "127."):
			err = fmt.Errorf("a job on a single node answers only there: run this on %s (%w)", k.Node, err)
		case host == k.Node && errors.Is(syscall.Kill(k.PID, 0), syscall.ESRCH):
			return nil, k.died(dir)
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

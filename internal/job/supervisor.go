package job

import (
	"cmp"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-hpc/holdfast/coordinated/control"
	"github.com/holdfast-hpc/holdfast/internal/config"
	"github.com/holdfast-hpc/holdfast/internal/handshake"
)

// A Supervisor receives the reports of the jobs that it has started, one after the other:
// rank 0 of each connects to it from inside Open and reports until it ends. The
// connection proves a random key, as the control plane's do.
type Supervisor struct {
	// RequeueJob is the Slurm job that the ranks put back into the queue when one of
	// them is lost and the Supervisor with it; empty means none. Set it before Var.
	RequeueJob string

	plane   *control.Plane
	key     control.Key
	callers map[string]chan *Caller // by kind
	start   atomic.Int64
	serving sync.WaitGroup
}

// SetStart sets the number of the start that Var is for: connections from another start are closed.
func (s *Supervisor) SetStart(n int) { s.start.Store(int64(n)) }

// Supervise listens for jobs on an interface or address; empty means the network that
// all nodes have, not the fast one: it may run on a login node. The caller closes the
// Supervisor.
func Supervise(iface string) (*Supervisor, error) {
	key := handshake.NewKey()
	p, err := control.Listen(control.Options{Rank: 0, Size: 1, Key: key, Interface: cmp.Or(iface, control.Common)})
	if err != nil {
		return nil, err
	}
	hands := make(chan *Caller)
	s := &Supervisor{plane: p, key: key, callers: map[string]chan *Caller{
		callerRank0: make(chan *Caller), CallerGuard: make(chan *Caller), CallerStarted: make(chan *Caller),
		CallerWatcher: make(chan *Caller), CallerHands: hands, CallerDoor: hands, CallerPause: hands}}
	s.serving.Go(s.serve)
	return s, nil
}

// Var returns the variable that a job needs in its environment, as NAME=value. With nodeLost the run before ended
// because a node was lost: the epoch that it had restored is not to blame for that. With continues an earlier start
// took a checkpoint: see Supervision.
func (s *Supervisor) Var(nodeLost, continues bool) string {
	v := config.SupervisorVar + "=" + s.plane.Addr() + " " + hex.EncodeToString(s.key[:])
	if nodeLost {
		v += " " + partNodeLost
	}
	if continues {
		v += " " + partContinues
	}
	if s.RequeueJob != "" {
		v += " " + partRequeue + s.RequeueJob
	}
	if n := s.start.Load(); n > 0 {
		v += fmt.Sprintf(" %s%d", partStart, n)
	}
	return v
}

// Parts of config.SupervisorVar after address and key.
const (
	partNodeLost  = "node-lost"
	partContinues = "continues"
	partRequeue   = "requeue="
	partStart     = "start="
)

// Accept waits for a job's rank 0, of the start that SetStart has set. The caller closes the Supervised.
func (s *Supervisor) Accept(ctx context.Context) (*Supervised, error) {
	for {
		c, err := s.AcceptCaller(ctx, callerRank0)
		if err != nil {
			return nil, err
		}
		if c.Start == 0 || int64(c.Start) == s.start.Load() {
			return &Supervised{c.line}, nil
		}
		_ = c.Close() // it called while its start was ended
	}
}

// Close stops listening.
func (s *Supervisor) Close() error {
	err := s.plane.Close()
	s.serving.Wait()
	return err
}

// Supervised is a running job as its supervisor sees it.
type Supervised struct{ *line }

// Report is a job's account of itself, four times a second and at once when something has changed. With Daemon a node
// daemon says it, and the program may outlive that.
type Report struct {
	Job       string            `json:"job"`
	Step      string            `json:"step,omitempty"`  // Slurm's, of this run
	Start     int               `json:"start,omitempty"` // that it belongs to; in the first report only
	Daemon    bool              `json:"daemon,omitempty"`
	Nodes     []string          `json:"nodes,omitempty"` // by rank; in the first report only
	Taken     string            `json:"taken,omitempty"` // when checkpoints are; in the first report only
	Points    uint64            `json:"points"`          // passed by rank 0
	Restoring bool              `json:"restoring,omitempty"`
	Ready     bool              `json:"ready,omitempty"` // Restore is over
	Restored  *RestoredStatus   `json:"restored,omitempty"`
	Committed map[string]uint64 `json:"committed,omitempty"` // newest in this run, by level
	Newest    *EpochStatus      `json:"newest,omitempty"`    // that is at the last level
	Stopped   uint64            `json:"stopped,omitempty"`   // the final checkpoint
	Ended     bool              `json:"ended,omitempty"`     // every rank has called Close
	Failing   string            `json:"failing,omitempty"`   // checkpoints in a row that failed, as in Status
	// Terminated: rank 0 was sent TERM, which means stop to it. It waits a
	// moment for Tell, to know how much time that leaves.
	Terminated bool        `json:"terminated,omitempty"`
	Lost       *LostStatus `json:"lost,omitempty"`
	// Unrestorable is the reason why Restore failed, if it lies in the checkpoints: another
	// start with the same directories would fail in the same way.
	Unrestorable string `json:"unrestorable,omitempty"`
	// Missing: this is for want of data, which may come back with a node; not
	// because the program differs or has died after each restore.
	Missing bool `json:"missing,omitempty"`
	// MissingNodes are the nodes that may have it, as far as that is known.
	MissingNodes []string `json:"missing_nodes,omitempty"`
	// Failed is the reason why Open failed; nothing follows it. FailedNodes are those of the ranks at
	// fault, if it was not all of them.
	Failed      string   `json:"failed,omitempty"`
	FailedNodes []string `json:"failed_nodes,omitempty"`
}

// RestoredStatus is coordinated.RestoreStats in plain data.
type RestoredStatus struct {
	Epoch   uint64  `json:"epoch"`
	Level   string  `json:"level"` // of rank 0's shard
	Bytes   int64   `json:"bytes"`
	Seconds float64 `json:"s"`       // all of Restore
	Fetch   float64 `json:"fetch_s"` // of that, until every rank had read its shard
}

// LostStatus is coordinated.LostError in plain data.
type LostStatus struct {
	Rank     int     `json:"rank"`
	Node     string  `json:"node"`
	Noticed  int     `json:"noticed"`
	Observed string  `json:"observed"`
	Silent   float64 `json:"silent_s"` // before it was noticed; 0 when a connection broke
	// Aborted is the text with which the rank called Abort; empty if it did not.
	Aborted string `json:"aborted,omitempty"`
}

// Next returns the next report. Silence for longer than patience, and the end of
// the connection, are errors: rank 0 or its node is gone, or it has left. The first
// call confirms to rank 0 that it is heard: its later reports reach the caller
// even if its process ends at once.
func (s *Supervised) Next(patience time.Duration) (Report, error) {
	if s.first != nil {
		_ = s.send(Order{Heard: true}) // a rank 0 that has left needs no answer
	}
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
// long the job has until it is killed; 0 means that it is not known.
func (s *Supervised) Request(stop bool, within time.Duration) error {
	if err := s.send(Order{Stop: stop, WithinSeconds: within.Seconds()}); err != nil {
		return fmt.Errorf("ask the job for a checkpoint: %w", err)
	}
	return nil
}

// Tell answers a report that says Terminated: the job has so long until it is
// killed, whatever it counts on after TERM. 0 means that it is to go by that.
func (s *Supervised) Tell(within time.Duration) error {
	if err := s.send(Order{WithinSeconds: within.Seconds(), Answer: true}); err != nil {
		return fmt.Errorf("tell the job how much time is left: %w", err)
	}
	return nil
}

// An Order is a request of a supervisor.
type Order struct {
	Stop          bool    `json:"stop"`
	WithinSeconds float64 `json:"within_s,omitempty"`
	Answer        bool    `json:"answer,omitempty"` // to a report that says Terminated; asks for nothing
	Heard         bool    `json:"heard,omitempty"`  // to the first report; asks for nothing
}

// A Supervision is the value of config.SupervisorVar.
type Supervision struct {
	NodeLost bool // the run before ended because a node was lost
	// Continues is set once the job has taken a checkpoint: this start restores the newest, whatever its settings
	// told the first start to restore.
	Continues bool
	Requeue   string // Slurm job that the ranks may put back into the queue; empty: none

	Start int // number of the start; 0: not known

	addr string
	key  control.Key
}

// Address returns where the supervisor listens, at which no other does while it lives. "" is that of none.
func (v *Supervision) Address() string { return v.addr }

// Dial connects to the supervisor.
func (v *Supervision) Dial(ctx context.Context) (net.Conn, error) {
	return control.DialClient(ctx, v.addr, 0, v.key)
}

// ParseSupervisor reads such a value.
func ParseSupervisor(s string) (v Supervision, err error) {
	words := strings.Fields(s)
	bad := errors.New("option Supervisor: not a value that holdfast run sets; unset " +
		"" + config.SupervisorVar)
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
		v.NodeLost = v.NodeLost || w == partNodeLost
		v.Continues = v.Continues || w == partContinues
		if job, ok := strings.CutPrefix(w, partRequeue); ok {
			v.Requeue = job
		}
		if n, ok := strings.CutPrefix(w, partStart); ok {
			v.Start, _ = strconv.Atoi(n) // none is 0
		}
	}
	return v, nil
}

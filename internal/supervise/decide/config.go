package decide

import (
	"os"
	"time"

	"github.com/holdfast-hpc/holdfast/slurm"
)

// Exit codes of a run. The others are the program's own.
const (
	ExitGood    = 0
	ExitBad     = 1
	ExitStopped = 75 // EX_TEMPFAIL: the program stopped after a final checkpoint
)

// Limits are set by the user: flags of holdfast run, which document them.
type Limits struct {
	MinNodes, MaxRestarts       int
	MinRanks                    int // 0: the number of ranks never changes
	Requeue                     bool
	Lead                        time.Duration
	StartTimeout, EndTimeout    time.Duration
	Stall, WaitNodes, BeginAnew time.Duration
}

// Config has the facts known before the first start.
type Config struct {
	Limits
	Nodes []string // of the allocation, or of mpirun; none: the nodes are not known
	Here  []string // those on which this command runs
	Width int      // nodes that the program is to have
	Full  Full     // the program's nodes when none is missing

	Images      bool          // the program does not know of checkpoints, and images are taken of it
	CUDA        bool          // the program uses CUDA, and may know of no checkpoints
	Recovers    bool          // the launcher ends with 0 although a rank has died
	Announced   bool          // each node announces that the program starts on it
	Watched     bool          // from other nodes, which requeue the job when this one dies
	PeerTimeout time.Duration // of the ranks
	StopSignals []os.Signal   // of the program
	Local       bool          // the program keeps checkpoints on its nodes' own disks
	Global      bool          // and at the global level

	Job       *slurm.Job    // nil without Slurm
	Deadline  time.Time     // the time limit; zero = none
	Grace     time.Duration // from TERM to the kill; 0 = not known
	GraceTime time.Duration // the time of a preempted job
	Warning   slurm.Warning // by a signal, before the time limit

	Began  time.Time // when this command did
	Memory Memory    // of earlier runs
}

// Full is the size of a program that has all the nodes it was submitted for. Both are 0 if it is not known.
type Full struct{ Nodes, Ranks int }

// On returns how many ranks fit on some nodes when each takes as many as it does at the full size.
func (f Full) On(nodes int) int {
	if f.Nodes == 0 {
		return 0
	}
	return min(f.Ranks, nodes*((f.Ranks+f.Nodes-1)/f.Nodes))
}

// Probes is how often a node is tried before it counts as dead.
const Probes = 3

// ProbeTime returns how long each of them takes at most: a share of the ranks' patience, 3 s by default, but never less
// than TCP takes to try again.
func (c *Config) ProbeTime() time.Duration { return max(c.PeerTimeout/5, time.Second) }

// Memory is the file that a run under Slurm leaves with the checkpoints at global for the next one. All of it is a
// hint: without it nothing is known.
type Memory struct {
	Epoch      uint64    `json:"epoch"`             // that was measured
	Seconds    float64   `json:"checkpoint_s"`      // it took, from the request until it was at global
	Job        string    `json:"job,omitempty"`     // Slurm's number; the fields below are about it
	BegunAt    time.Time `json:"begun_at,omitzero"` // when it began from nothing; zero = it restored something
	Safe       bool      `json:"safe,omitempty"`    // an epoch of it came to global, or was there before
	Took       bool      `json:"took,omitempty"`    // a start took a checkpoint, at any level
	Local      string    `json:"local,omitempty"`   // directory on each node's own disk
	NoProgress int       `json:"in_vain,omitempty"` // runs up to the time limit in a row that brought little
	Width      int       `json:"nodes,omitempty"`   // of the program, when the job had all of its nodes
	Tasks      int       `json:"tasks,omitempty"`   // ranks, under srun
	// runs in a row that were started again too often and took no checkpoint
	Stale int `json:"stale,omitempty"`
}

package decide

import (
	"os"
	"syscall"
	"time"

	"github.com/holdfast-hpc/holdfast/internal/job"
	"github.com/holdfast-hpc/holdfast/slurm"
)

// Event is something that has happened: one of the types below.
type Event any

// The events of a start. None comes from an earlier start once the next has been asked for.
type (
	// Started answers Start: the launcher runs, or Err is the reason why not.
	Started struct {
		Line string
		Err  error
	}
	// Announced reports that the program starts on a node, in a step of Slurm's if that is known.
	Announced struct{ Node, Step string }
	// Vanished reports that a process that had announced itself on a node has ended.
	Vanished struct{ Node string }
	// TaskFailed reports that srun tells of a task that ended with an error.
	TaskFailed struct{ Node, Text string }
	// NoneLeft reports that all processes that mpirun has started have ended and wait for it to collect them,
	// or that this is so no longer.
	NoneLeft struct{ Is bool }
	// Paused reports that the ranks have given up their GPUs, and wait for them, or have them again.
	Paused struct{ Is bool }
	// Reported is rank 0's report about the program.
	Reported struct{ job.Report }
	// Lost reports that rank 0 has hung up, or was silent for too long.
	Lost struct{ Silent time.Duration }
	// Peeked answers Peek: nodes that take no connection, and why.
	Peeked struct{ Faults map[string]string }
	// Asked answers RequestStop: whether rank 0 has been asked. If not, its last reports have come.
	Asked struct{ OK bool }
	// Exited reports that the launcher has ended and nothing of the start follows.
	Exited struct{ Code int }
)

// The other events.
type (
	// Begin is the first one.
	Begin struct{}
	// Tick reports that time has passed. It comes ten times a second, and when a Timer is due.
	Tick struct{}
	// Signalled is a signal to this command.
	Signalled struct{ Signal os.Signal }
	// Examined answers Examine with the faults of nodes; healthy ones are not in it.
	Examined struct{ Faults map[string]string }
	// JobShown answers AskJob.
	JobShown struct {
		Info slurm.JobInfo
		Err  error
	}
	// Requeued answers Requeue.
	Requeued struct{ Err error }
	// Salvaged answers Salvage: the newest epoch that is committed at global now.
	Salvaged struct {
		Epoch uint64
		Err   error
	}
)

// Action is one of the types below; actions are carried out in the order returned.
type Action any

// The actions.
type (
	// Say tells the user of a decision.
	Say struct{ Text string }
	// Start launches the program.
	Start struct {
		Number   int
		Nodes    []string // nil = as it was given
		Out      []string // nodes that are not to be used
		Ranks    int      // 0 = as it was given
		Fresh    bool     // it is to restore nothing
		Skip     []uint64 // epochs after which the program died twice
		NodeLost bool     // the epoch that it restored last is not to blame for the end of the start before
		// Continues is set once the job has taken a checkpoint: HOLDFAST_FRESH and HOLDFAST_EPOCH were for the start
		// that took it.
		Continues bool
	}
	// End ends the launcher and the rest of its step, if that is known. Exited follows.
	End struct{ Step string }
	// EndStep ends the ranks of a launcher that has exited.
	EndStep struct{ Step string }
	// Pass passes a signal on to the launcher.
	Pass struct{ Signal syscall.Signal }
	// RequestStop asks rank 0 for a final checkpoint. Its time is that until the kill; 0 = not known.
	RequestStop struct{ Within time.Duration }
	// Tell answers a rank 0 that was sent TERM with the time until the kill; 0 = not known.
	Tell struct{ Within time.Duration }
	// Peek connects to nodes.
	Peek struct {
		Nodes    []string
		Patience time.Duration
	}
	// Examine finds out which nodes are dead.
	Examine struct {
		Closely []string // that must show that they start something
		Silent  []string // that count as dead unless Slurm says so itself; none of them is asked
		Dead    []string // that were before
		Patient bool     // they may only be slow
	}
	// Exclude names the nodes that are dead now.
	Exclude struct{ Nodes []string }
	// AdviseMPI says which MPI goes with this launcher.
	AdviseMPI struct{}
	// AskJob asks Slurm about the job, up to a time; 0 = the usual time.
	AskJob struct{ Within time.Duration }
	// Requeue puts the job back into the queue.
	Requeue struct{}
	// Salvage copies epochs from the nodes' own disks to global, up to a time. It is of use if that
	// is behind an epoch that global has.
	Salvage struct {
		Nodes  []string
		Have   uint64
		Within time.Duration
	}
	// Remember keeps a Memory for the next run.
	Remember struct{ Memory Memory }
	// Timer asks for a Tick at a time, instead of the one that was asked for before.
	Timer struct{ At time.Time }
	// Exit ends the run. Err is the reason why it did not begin.
	Exit struct {
		Code int
		Err  error
	}
)

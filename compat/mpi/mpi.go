package mpi

import (
	"errors"
	"log"
	"os"
	"strconv"
	"sync"

	"github.com/holdfast-hpc/holdfast/mpiwrap"
)

// LogErrors has errors of calls logged besides being returned.
var LogErrors = true

// Op is a reduction operator.
type Op int

// The operators.
const (
	OpSum Op = iota
	OpMax
	OpMin
	OpProd
	OpLAND // logical and
	OpLOR  // logical or
	OpBAND // bitwise and
	OpBOR  // bitwise or
)

var ops = [...]mpiwrap.Op{mpiwrap.Sum, mpiwrap.Max, mpiwrap.Min, mpiwrap.Prod,
	mpiwrap.Land, mpiwrap.Lor, mpiwrap.Band, mpiwrap.Bor}

// wrapped returns mpiwrap's operator; one out of range stays so and is refused.
func (op Op) wrapped() mpiwrap.Op {
	if op < 0 || int(op) >= len(ops) {
		return mpiwrap.Op(-1)
	}
	return ops[op]
}

// Root is rank 0.
const Root int = 0

// Errors of this package.
var (
	// ErrNotInitialized: a communicator was asked for before Init.
	ErrNotInitialized = errors.New("mpi: not initialised; call mpi.Init first")
	// ErrNotMember: the caller's rank is not one of the communicator's.
	ErrNotMember = errors.New("mpi: this rank is not in the communicator")
)

var state struct {
	sync.Mutex
	world *mpiwrap.Comm
	on    bool  // world is MPI's
	err   error // why there is no world
}

// IsOn reports whether MPI has been initialised; a world of one rank without MPI is
// not on.
func IsOn() bool {
	state.Lock()
	defer state.Unlock()
	return state.on
}

// Init initialises MPI. Collective: all ranks of the job call it, once. It cannot return an error: a failure is logged,
// and NewComm returns it.
func Init() { _ = start(mpiwrap.ThreadSerialized) }

// InitThreadSafe is Init for calls from several goroutines at once. Collective. A library without MPI_THREAD_MULTIPLE
// is an error.
func InitThreadSafe() error { return start(mpiwrap.ThreadMultiple) }

func start(level mpiwrap.ThreadLevel) error {
	state.Lock()
	defer state.Unlock()
	if state.world != nil {
		return nil
	}
	w, err := mpiwrap.Init(mpiwrap.Options{Threads: level})
	switch {
	case err == nil:
		state.world, state.on, state.err = w, true, nil
	case errors.Is(err, mpiwrap.ErrNoLibrary) && !launched():
		state.world, state.err = mpiwrap.Single(), nil
		return nil
	default:
		state.err = err
	}
	return logged(err)
}

// launched reports whether a launcher has started several ranks.
func launched() bool {
	for _, v := range []string{"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS"} {
		if n, err := strconv.Atoi(os.Getenv(v)); err == nil && n > 1 {
			return true
		}
	}
	return false
}

func logged(err error) error {
	if err != nil && LogErrors {
		log.Println(err)
	}
	return err
}

// Finalize ends MPI. Collective: it waits for all ranks to call it. An error is logged.
func Finalize() {
	_ = logged(mpiwrap.Finalize())
}

// World returns the world that this package works on, for a checkpointer; nil before Init. Local.
func World() *mpiwrap.Comm {
	state.Lock()
	defer state.Unlock()
	return state.world
}

// Use makes this package work on a world that the program has initialised with mpiwrap itself, or on a simulated one.
// Local; call it in place of Init.
func Use(world *mpiwrap.Comm) {
	state.Lock()
	defer state.Unlock()
	state.world, state.on, state.err = world, true, nil
}

// WorldRank returns the caller's rank in the world, 0 before Init.
func WorldRank() int {
	if w := World(); w != nil {
		return w.Rank()
	}
	return 0
}

// WorldSize returns the number of ranks of the world, 1 before Init.
func WorldSize() int {
	if w := World(); w != nil {
		return w.Size()
	}
	return 1
}

// Comm is a communicator. Its calls are collective over its ranks, but for SendXX and RecvXX, which concern two ranks,
// and Abort, Rank, Size and Wrapped, which are local. Errors are *mpiwrap.Error or ErrNotMember.
type Comm struct {
	c   *mpiwrap.Comm
	err error // why there is none
}

// NewComm returns the world when ranks is empty, which is local. Otherwise it makes a communicator of the listed world
// ranks. That is collective: every rank of the world calls it with the same list. A rank that is not listed gets a
// communicator of Size 0 whose calls return ErrNotMember. Before Init the error is ErrNotInitialized. ranks is not
// kept.
func NewComm(ranks []int) (*Comm, error) {
	state.Lock()
	w, err := state.world, state.err
	state.Unlock()
	if w == nil {
		if err == nil {
			err = ErrNotInitialized
		}
		return &Comm{err: err}, logged(err)
	}
	if len(ranks) == 0 {
		return &Comm{c: w}, nil
	}
	c, err := w.Create(ranks)
	if err != nil {
		return &Comm{err: err}, logged(err)
	}
	if c == nil {
		return &Comm{err: ErrNotMember}, nil
	}
	return &Comm{c: c}, nil
}

// Wrapped returns the communicator below, for calls this package does not have; nil if the caller is no member. Local.
func (cm *Comm) Wrapped() *mpiwrap.Comm { return cm.c }

// Rank returns the caller's rank, -1 if it is no member. Local.
func (cm *Comm) Rank() int {
	if cm.c == nil {
		return -1
	}
	return cm.c.Rank()
}

// Size returns the number of ranks, 0 if the caller is no member. Local.
func (cm *Comm) Size() int {
	if cm.c == nil {
		return 0
	}
	return cm.c.Size()
}

// Abort ends all ranks of the job at once, with exit code 1. It is local: one rank is enough. Write results before.
func (cm *Comm) Abort() error {
	return cm.on(func(c *mpiwrap.Comm) error { c.Abort(1); return nil })
}

// Barrier returns when every rank of the communicator has called it. Collective.
func (cm *Comm) Barrier() error {
	return cm.on((*mpiwrap.Comm).Barrier)
}

func (cm *Comm) none() error {
	if cm.err != nil {
		return cm.err
	}
	return ErrNotInitialized
}

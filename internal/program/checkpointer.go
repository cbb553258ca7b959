package program

import (
	"context"

	"github.com/holdfast-hpc/holdfast/storage"
)

// Checkpointer is what a *coordinated.Checkpointer does for a program in another process, beside
// what programs in Go call.
type Checkpointer interface {
	// Gather gives every rank's bytes to all, in order of rank, over the control plane. It is
	// collective, in the same order on all ranks; mine has the same length everywhere, and all
	// is Size times as long. Call says what the program does, should a rank not come: the others
	// are named, and the job ends after ten times Options.WaitTimeout.
	Gather(call string, all, mine []byte) error

	// AbortWhile is Abort from another goroutine than that of the calls. What these wait for ends; what they use
	// is freed when left is closed, which says that they are over. Local.
	AbortWhile(why error, left <-chan struct{})

	// ProtectGlobal makes an array that has a Shape part of every checkpoint, as coordinated.ProtectGlobal does for
	// memory of its caller. Local, before Restore or after it.
	ProtectGlobal(name string, a *Array) error

	// Begin lets the first Point pass without a Restore: the program has its state, or gets it
	// in another way. Local, in the place of Restore.
	Begin()

	// RestoreEpoch is Restore of one epoch.
	RestoreEpoch(ctx context.Context, e storage.Epoch) (bool, error)

	// Reserve makes room for captures ahead of time. A Restore whose Level is storage.SourceMemory has left
	// that to be done after Program.Forget, when the program has what it loads: a node need not have memory for both.
	Reserve()

	// Settle waits until nothing of what this rank does at the levels is under way: the repair after a restore and the
	// removal of older epochs included. Local, in the place of a Point.
	Settle(ctx context.Context) error

	// Leave returns this rank's newest epoch if it is committed and its capture is still in shared
	// memory, else nil. Abort then leaves all shared memory mapped: its owner frees it.
	Leave() *storage.MemoryShard

	// CloseAndLeave is Close that leaves all shared memory mapped, and afterwards Leave.
	CloseAndLeave() (*storage.MemoryShard, error)

	// Newest is what this rank saved in the epoch that Restore will restore, or one of another number of ranks in its
	// place, unless that turns out to be damaged; the zero Epoch if there is none. It is called before Restore, and
	// waits until all ranks have called it or Restore.
	Newest(ctx context.Context) (SavedEpoch, error)

	// SavedEpochs lists the epochs that all ranks have, newest first. Collective, before Restore.
	// It reads a table of each.
	SavedEpochs(ctx context.Context) ([]SavedEpoch, error)

	// Verify reads this rank's shard of an epoch of SavedEpochs. What is damaged at one level counts only if no other
	// place has it right. Local.
	Verify(ctx context.Context, e storage.Epoch) error
}

// SavedEpoch is what this rank saved in an epoch, by name.
type SavedEpoch struct {
	Epoch storage.Epoch
	Saved map[string]SavedArray
	Err   error // why it cannot be read
}

// SavedArray is what an epoch has of one array.
type SavedArray struct {
	Layout string // of an element, as in Array; empty: it is something else
	Bytes  int64
	Inline []byte // if they are few
}

// Hooks is what package coordinated, which stands above this one, hands in when it starts.
// Options are coordinated.Options there, and a checkpointer is a *coordinated.Checkpointer.
type Hooks struct {
	Open    func(ctx context.Context, p Program, opt any) (any, error)
	Of      func(checkpointer any) Checkpointer
	OfStart func(opt any, s Start) any
	Named   func(checkpointer any, name string, keep int) any
}

var hooks Hooks

// Register is for package coordinated.
func Register(h Hooks) { hooks = h }

// Open is coordinated.Open for a rank of a program that the caller speaks with; holdfast node
// does. It gives the caller a *coordinated.Checkpointer to call in the program's place, with
// these differences: what is protected is an *Array, signals come from p, and all ranks stop at
// the same point, which they come to equally often.
func Open[C, Options any](ctx context.Context, p Program, opt Options) (*C, error) {
	c, err := hooks.Open(ctx, p, opt)
	if err != nil {
		return nil, err
	}
	return c.(*C), nil
}

// Of returns the side of a checkpointer of Open that programs do not see.
func Of[C any](c *C) Checkpointer { return hooks.Of(c) }

// Start is what a program that another process has started than this one says of itself: what HOLDFAST_SUPERVISOR
// tells it, its step of Slurm, the name of its file, whether it starts over, and whether it continues epochs of other
// numbers of ranks.
type Start struct {
	Supervisor, Step, Program string
	Fresh, Elastic            bool
}

// OfStart returns the options for such a program.
func OfStart[Options any](o Options, s Start) Options { return hooks.OfStart(o, s).(Options) }

// Named returns the options of the checkpoints that a program takes under a name of its own,
// beside those of its points, which c takes: their directories are below those of the job and belong to the same run,
// and nothing but the program asks for them. keep is how many stay; 0 means as many as of the others.
func Named[Options, C any](c *C, name string, keep int) Options {
	return hooks.Named(c, name, keep).(Options)
}

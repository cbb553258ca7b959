package persist

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-hpc/holdfast/coordinated/cut"
	"github.com/holdfast-hpc/holdfast/coordinated/internal/capture"
	"github.com/holdfast-hpc/holdfast/storage"
)

// Options configure a Persister. They are equal on all ranks, except for fields about one rank.
type Options struct {
	Store  *storage.Store
	Levels []string         // that epochs go to, nearest first
	Every  map[string]Every // by level; a level without an entry takes every epoch
	Keep   Every            // epochs that are kept at a level that all ranks share; zero: none
	Rank   int
	Node   []int // the ranks of this one's node, ascending
	// Writers names, by level and rank, the rank that writes the manifests of that rank's directory. At a level without
	// an entry each rank writes its own, or rank 0 those of a shared directory.
	Writers    map[string][]int
	State      *capture.Protected // whose captures are written
	Operations *Operations
	End        *End  // of this process
	Note       *Note // at the rank that writes it; nil elsewhere
	Log        *slog.Logger

	// Meet gives the data of the ranks of a meeting to all of them, in order of rank. It is collective.
	Meet func(m cut.Meeting) ([]cut.Blob, error)
	// Go runs f on a goroutine that is waited for at the end.
	Go func(f func())
	// CopyTime returns the time that copying an epoch from a level to the next will take; 0 if unknown.
	CopyTime func(e storage.Epoch, from, to string) time.Duration
	// KillTime waits at most wait for the supervisor's report when the process will be killed; zero: none came. Called
	// at rank 0.
	KillTime func(ctx context.Context, wait time.Duration) time.Time

	// The functions below report on epochs. Begin reports that a step begins; end its outcome, the bytes of the shards
	// and those they take at the level.
	Begin func(s Step) (end func(bytes, stored int64, err error))
	// Freed reports that all ranks can release the captured bytes; err is set if the epoch reached no level.
	Freed func(e storage.Epoch, err error)
	// Committed reports that an epoch is at a level; took is the time since its cut, waited the part of it before the
	// level was free.
	Committed func(e storage.Epoch, level string, took, waited time.Duration)
	// Skipped reports that an epoch does not go to a level: newer goes in its place, because several waited for a slow
	// level; or, if newer is 0, it was not due there.
	Skipped func(e storage.Epoch, level string, newer storage.Epoch)
	// Failed reports why an epoch is not at all levels.
	Failed func(e storage.Epoch, err error)
	// Phase reports the progress of this rank, for tests.
	Phase func(name string)
}

// Allgather gives every rank's data to all ranks.
func (p *Persister) Allgather(e storage.Epoch, stage string, data []byte) ([]cut.Blob, error) {
	return p.Meet(cut.Meeting{Epoch: cut.Epoch(e), Stage: stage, Data: data})
}

// Step is a part of an epoch's way that takes time.
type Step struct {
	Name  string // of those below
	Epoch storage.Epoch
	Level string
	Bytes int64 // expected to be written; 0: unknown
}

// The names of steps.
const (
	Write      = "write"
	Copy       = "copy"
	Rebuild    = "rebuild"
	VotePut    = "put"    // until it is known whether all ranks have written
	VoteCommit = "commit" // the same of their manifests
)

// Persister takes epochs from captured memory to the levels, together with those of the
// other ranks.
type Persister struct {
	Options
	ctx     context.Context // ends the work when the process must leave
	pace    *pacer          // at rank 0 only
	under   sync.WaitGroup  // turns that are not over; added to by the main thread
	mu      sync.Mutex
	turns   map[storage.Epoch]*turn // guarded by mu: those that are not over
	stored  atomic.Pointer[[]int64] // by rank: size of the newest epoch's shards at the first level
	started atomic.Bool             // this run has noted that the job has had an epoch
}

// New makes a Persister whose work ends with ctx.
func New(ctx context.Context, opt Options) *Persister {
	p := &Persister{Options: opt, ctx: ctx, turns: map[storage.Epoch]*turn{}}
	if opt.Rank == 0 {
		var every []Every
		for i := range opt.Levels {
			every = append(every, p.Every[p.Levels[i]])
		}
		p.pace = newPacer(every)
	}
	return p
}

// Over is closed when every epoch is at the levels that it goes to, or will not be. When it is
// known that the process will be killed, Over is closed in time for that at the latest: copying
// that hangs is left to itself. Called, as Persist and Repair are, by the main thread, which
// waits for a final epoch by itself.
func (p *Persister) Over() <-chan struct{} {
	over, all := make(chan struct{}), make(chan struct{})
	go func() {
		p.under.Wait()
		close(all)
	}()
	var late <-chan time.Time
	if left, known := p.End.closing(); known {
		late = time.After(left)
	}
	go func() {
		defer close(over)
		select {
		case <-all:
		case <-late:
			p.complainLeft()
		}
	}()
	return over
}

// Idle reports whether Over would be closed at once: no epoch, repair or removal of older epochs is under way at the
// levels.
func (p *Persister) Idle() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.turns) == 0
}

// complainLeft logs at rank 0 the epochs that were still being copied when the time was up.
func (p *Persister) complainLeft() {
	p.mu.Lock()
	left := slices.Sorted(maps.Keys(p.turns))
	p.mu.Unlock()
	if p.Rank == 0 && len(left) > 0 {
		p.Log.Warn("holdfast: the time is up; not waiting for epochs that are still being copied", "epochs",
			fmt.Sprint(left))
	}
}

// copying begins the copying of ranks' shards to a level; the last written epoch has the expected size.
func (p *Persister) copying(e storage.Epoch, level string, ranks ...int) (end func(bytes, stored int64, err error)) {
	s := Step{Name: Copy, Epoch: e, Level: level}
	if stored := p.stored.Load(); stored != nil {
		for _, r := range ranks {
			s.Bytes += (*stored)[r]
		}
	}
	return p.Begin(s)
}

// remember notes the known sizes of an epoch's shards at the first level.
func (p *Persister) remember(infos []storage.ShardInfo, ranks int) {
	stored := make([]int64, ranks)
	for i := range infos {
		if r := infos[i].Rank; r < len(stored) {
			stored[r] = infos[i].Stored
		}
	}
	p.stored.Store(&stored)
}

// Package catalog knows the epochs at the levels of a job, for one of its ranks: those in the rank's own directories,
// those that other ranks and rank 0 have reported, those that all ranks have agreed on, those in use, and the number of
// fatal restores.
//
// It decides nothing without the ranks' agreement, and writes only notes beside epochs, never an epoch. A Look is the
// state of a level at one moment: removal, lists of present epochs and ledgers go by it.
//
// A Catalog and its Levels may be shared by goroutines, once they are all added.
package catalog

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"

	"github.com/holdfast-hpc/holdfast/internal/vfs"
	"github.com/holdfast-hpc/holdfast/storage/internal/format"
	"github.com/holdfast-hpc/holdfast/storage/internal/level"
)

// Job is whose epochs a Catalog lists.
type Job struct {
	Name       string
	Rank, Size int
	Elastic    bool // epochs of other numbers of ranks count
	Collective bool // only rank 0 looks into directories that all ranks share
	Node       string
	Nodes      []string        // of each rank
	Identity   format.Identity // of the run; zero: epochs of any run count
	// Peer reaches a level's directory at another rank, by names relative to it; nil: there is no way to other ranks.
	Peer func(ctx context.Context, rank int, level string) PeerFiles
	Log  *slog.Logger
}

// PeerFiles are the files of a directory at another rank. Close ends the connection to it.
type PeerFiles interface {
	vfs.FS
	io.Closer
}

// Catalog has a rank's knowledge of the epochs of its job.
type Catalog struct {
	Job
	Contents level.Contents // of epochs, by Choose
	Others   Known

	levels []*Level
	voted  atomic.Bool // the program reports which epochs all ranks have

	warned sync.Map // files that a warning named
	mu     sync.Mutex
	inUse  map[format.Epoch]int // guarded by mu: how often each epoch is in use
}

// Level is a level with the catalogue's knowledge of its epochs.
type Level struct {
	level.Level
	Keep, KeepEvery int
	Unwritable      error    // why it cannot be written to; nil: it can
	Listed          *Listing // by rank 0; nil: this rank looks
	// Reachable returns, after a cheap look, an error if a rank's shard of a committed epoch cannot be had.
	Reachable func(ctx context.Context, m *format.Manifest, rank int) error

	mu     sync.Mutex
	newest format.Epoch   // guarded by mu: committed here in this run, and not forgotten
	agreed agreement      // guarded by mu: epochs that all ranks have
	look   *Look          // guarded by mu: that the next Prune decides by; nil: one of its own
	ledger *format.Ledger // guarded by mu: that lies there; nil: not known
}

// New returns the catalogue of a job without levels.
func New(job Job) *Catalog {
	return &Catalog{Job: job, Contents: level.Contents{Run: job.Identity}, inUse: map[format.Epoch]int{}}
}

// Add appends a level; the nearest comes first.
func (c *Catalog) Add(l *Level) {
	l.agreed = agreement{unsure: map[format.Epoch]bool{}, failed: map[format.Epoch]bool{}}
	c.levels = append(c.levels, l)
}

// Looks reports whether this rank looks into the level's directory at all.
func (c *Catalog) Looks(l *Level) bool { return !c.Collective || !l.Traits().Shared || c.Rank == 0 }

// looksAlone reports whether this rank looks into the level's directory, and no other removes anything there.
func (c *Catalog) looksAlone(l *Level) bool { return c.Collective && l.Traits().Shared && c.Rank == 0 }

// Owns reports whether files with the identity x belong to this run.
func (c *Catalog) Owns(x format.Identity) bool { return c.Identity.IsZero() || c.Identity.Owns(x) }

// FirstTime reports whether no warning has named a file yet; from now on one has.
func (c *Catalog) FirstTime(file string) bool {
	_, before := c.warned.LoadOrStore(file, true)
	return !before
}

// warnOther warns once of an epoch that is not restored because it is of another run. Those of the run that this one
// has replaced are no surprise.
func (c *Catalog) warnOther(e format.Epoch, at string, err error) {
	if other, ok := errors.AsType[*level.OtherRunError](err); ok && !other.Replaced() && c.FirstTime(other.File) {
		c.Log.Warn("holdfast: an epoch of another run lies in the directory of this one; it is not restored",
			"epoch", e, "level", at, "err", err)
	}
}

// working lists the levels that this rank can write to.
func (c *Catalog) working() (list []*Level) {
	for _, l := range c.levels {
		if l.Unwritable == nil {
			list = append(list, l)
		}
	}
	return list
}

// Newest returns the newest epoch that this run has committed at the level, unless Forget was called since; 0: none.
func (l *Level) Newest() format.Epoch {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.newest
}

// Forget makes the next shard of the level refer to nothing.
func (l *Level) Forget() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.newest = 0
}

// Holders lists the other ranks whose holding of e at a level satisfies match.
func (c *Catalog) Holders(l *Level, e format.Epoch, match func(h *Holding) bool) []int {
	if c.Peer == nil {
		return nil
	}
	return c.Others.Holders(l.Name(), e, match)
}

// PeerDir returns a level's directory at another rank. Its close ends the connection.
func (c *Catalog) PeerDir(ctx context.Context, rank int, l *Level) (level.Epochs, io.Closer) {
	f := c.Peer(ctx, rank, l.Name())
	return level.At(f, l.Name(), "", rank, &c.Contents), f
}

// Manifest reads an epoch's manifest of a level from the own directory, or from that of another rank which has one.
// That of the level parity describes the shards of the level local, too.
func (c *Catalog) Manifest(ctx context.Context, l *Level, e format.Epoch) (*format.Manifest, error) {
	m, err := c.manifestAt(ctx, l, e)
	if err == nil || !l.Traits().Data || ctx.Err() != nil {
		return m, err
	}
	for _, rows := range c.levels {
		if !rows.Traits().Rows {
			continue
		}
		if m, rerr := c.manifestAt(ctx, rows, e); rerr == nil {
			return m.OfData(l.Name()), nil
		}
		break
	}
	return nil, err
}

func (c *Catalog) manifestAt(ctx context.Context, l *Level, e format.Epoch) (*format.Manifest, error) {
	m, err := l.ReadManifest(e)
	if err == nil {
		return m, nil
	}
	for _, r := range c.Holders(l, e, func(h *Holding) bool { return h.Id != [16]byte{} }) {
		d, f := c.PeerDir(ctx, r, l)
		m, merr := d.ReadManifest(e)
		f.Close()
		if merr == nil {
			return m, nil
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		err = errors.Join(err, merr)
	}
	return nil, err
}

package storage

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/holdfast-hpc/holdfast/internal/vfs"
	"github.com/holdfast-hpc/holdfast/storage/internal/catalog"
	"github.com/holdfast-hpc/holdfast/storage/internal/format"
	"github.com/holdfast-hpc/holdfast/storage/internal/level"
	"github.com/holdfast-hpc/holdfast/storage/internal/peer"
	"github.com/holdfast-hpc/holdfast/storage/internal/shard"
)

// Epoch is the number of one global checkpoint. Numbers grow from one epoch to
// the next and are never used twice; 0 is no epoch.
type Epoch = format.Epoch

// ShardInfo is the manifest's entry for one rank's shard at one level.
//
//	Rank       int
//	Node       string   // node whose rank wrote it
//	Bytes      int64    // sum of the section sizes
//	Stored     int64    // bytes of chunks in this shard: less when compressed or referenced
//	ShardBytes int64    // length of the shard in bytes, header to footer
//	Digest     [16]byte // xxh3-128 of what it says; the same at every level
//	Holders    []string // nodes that keep a copy, at levels with copies
//
//	Index   [16]byte // xxh3-128 of the index record
//	Origins []Epoch  // earlier epochs that hold some of its chunks
//	Pack    int      // number of the pack file; -1: it is in none
//	Base    int64    // byte at which it starts in the pack file
//
//	Layout *Layout // what it has of global arrays; nil: none
//
//	func MarshalBinary() ([]byte, error)
//	func UnmarshalBinary(b []byte) error
//	func FileName() string
type ShardInfo = format.ShardInfo

// Section is a named run of bytes to be put into a shard.
//
//	Name   string
//	Size   int64       // bytes; Source yields exactly as many
//	Source io.ReaderAt // may also be a Slicer
type Section = shard.Section

// Slicer is a Source of a Section whose bytes lie in memory already. They are then written
// from where they are; with page-aligned memory nothing is copied.
//
//	// Slice returns n bytes at off, which must stay as they are until Put
//	// returns. Nil means that this range has to be read.
//	Slice(off int64, n int) []byte
type Slicer = shard.Slicer

// Gathered is a Source of a Section whose bytes lie in host memory, but not in their order: ReadAt collects them from
// there.
//
//	func Gathered()
type Gathered = shard.Gathered

// Comparer is a Source of a Section that can tell without reading them which of its chunks, of
// ChunkBytes each, have not changed since an earlier epoch.
//
//	// UnchangedSince is asked about an epoch that is committed at the level. It gives a function that says of a
//	// chunk, by its number, whether it has the bytes that it had in the shard of that epoch, in the section of this
//	// name. digest is that of the shard, as Put returned it: an epoch of the same number may have been written
//	// twice. Nil: nothing is known.
//	//
//	// What is said to be unchanged is not read and refers to that epoch, so the source must be certain. Now and
//	// then such a chunk is read nevertheless: if it differs, Put fails with ErrClaim.
//	UnchangedSince(e Epoch, digest [16]byte) func(chunk int) bool
type Comparer = shard.Comparer

// ErrClaim marks a chunk that its Comparer said to be unchanged, and that has changed.
var ErrClaim = shard.ErrClaim

// ChunkBytes is the length in bytes of the chunks that sections are cut into; the last one has the rest.
const ChunkBytes = format.ChunkBytes

// Bytes is a Source over memory of the caller.
//
//	func ReadAt(p []byte, off int64) (int, error)
//	func Slice(off int64, n int) []byte
type Bytes = shard.Bytes

// Transport carries bytes between the stores of a job's ranks, for the levels that keep redundancy on other nodes. Its
// connections are authenticated: the other end is a rank of this job. Its calls are local: a Store dials another rank's
// while that one accepts.
//
//	// Dial opens a connection to the store of a rank. The caller closes it.
//	Dial(ctx context.Context, rank int) (net.Conn, error)
//	// Accept waits for a connection that another rank's store dialled. The
//	// caller closes it. An error ends the accepting.
//	Accept(ctx context.Context) (conn net.Conn, from int, err error)
type Transport = peer.Transport

// Store keeps one rank's shards on all levels of a job. All its calls are local; those that all ranks make say so.
type Store struct {
	opt    Options
	log    *slog.Logger
	levels []*levelState
	pools  shard.Pools
	lent   bool          // the pools are not freed
	turns  chan struct{} // one entry per shard being written
	pause  shard.Pause   // while the program captures nothing is copied

	catalog *catalog.Catalog

	checked atomic.Pointer[[16]byte] // ID of the manifest whose layouts were found to fit last

	serving *peer.Server // nil without Transport
	guard   *level.Guard

	mu     sync.Mutex
	closed bool           // guarded by mu
	users  sync.WaitGroup // operations under way

	noHandover atomic.Bool // this rank could not be handed a file of its node's flusher
}

// There are as many writers as a rank may have to do with at once: one for the epoch that is put, and one for each of
// two further levels.
const (
	maxWriters = 3
	// Inbound buffers wait for the disk and for bytes that are on their way,
	// never for another rank's buffers.
	inboundBuffers = 8
)

// Open claims the directories of all levels for the job and removes unfinished files of an earlier run of this rank. It
// refuses a directory that is missing or not writable (*DirError), or of another job (*JobError). It also refuses one
// that another run of the job uses (*BusyError, if Options.Run is set) or that another number of ranks has written
// (*SizeError). A field of opt that cannot be used is an *OptionError.
//
// It is local: ranks may open in any order. With Options.Collective all ranks open, and rank 0 before the others. opt
// is copied; its slices, but for Levels, are kept. The caller closes the Store. After an error there is none, and the
// directories are free again.
func Open(ctx context.Context, opt Options) (*Store, error) {
	opt.fs = vfs.OrOS(vfs.From(ctx))
	if err := opt.validate(); err != nil {
		return nil, err
	}
	s := &Store{
		opt:   opt,
		log:   opt.Logger,
		guard: level.NewGuard(ctx, opt.Run),
		turns: make(chan struct{}, maxWriters),
		catalog: catalog.New(catalog.Job{Name: opt.Job, Rank: opt.Rank, Size: opt.Size, Elastic: opt.Elastic,
			Collective: opt.Collective, Node: opt.Node, Nodes: opt.Nodes, Identity: opt.Identity, Log: opt.Logger}),
	}
	if opt.Transport != nil {
		s.catalog.Peer = func(ctx context.Context, rank int, level string) catalog.PeerFiles {
			return peer.NewFS(ctx, opt.Transport, rank, level)
		}
	}
	if s.pools, s.lent = shard.PoolsFrom(ctx); !s.lent {
		s.pools.Own, s.pools.Inbound = shard.NewPool(maxWriters*shard.WriterBuffers), shard.NewPool(inboundBuffers)
		s.pools.Own.Mapped, s.pools.Own.Unmapped = opt.Mapped, opt.Unmapped
	}
	for _, cfg := range opt.Levels {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		l, err := s.openLevel(ctx, cfg)
		s.levels = append(s.levels, l)
		if err != nil && opt.Degrade && degradable(err) {
			err = s.setUnwritable(ctx, l, err)
		}
		if err != nil {
			return nil, errors.Join(err, s.guard.Release())
		}
	}
	if !slices.ContainsFunc(s.levels, func(l *levelState) bool { return l.Unwritable == nil }) {
		var err error
		for _, l := range s.levels {
			err = errors.Join(err, l.Unwritable)
		}
		return nil, errors.Join(err, s.guard.Release())
	}
	s.guard.KeepAlive()
	if opt.Transport != nil {
		s.serving = peer.Serve(peer.Host{Served: s.served, InUse: s.catalog.Use}, opt.Transport, s.pools.Inbound,
			s.log)
	}
	return s, nil
}

// Close waits for operations under way, without a limit of time, stops serving other ranks and frees the buffers.
// Shards that were fetched must be closed before. With a Transport, ranks close only after all have ended their calls
// with each other. Further calls do nothing.
func (s *Store) Close() error {
	s.mu.Lock()
	before := s.closed
	s.closed = true
	s.mu.Unlock()
	s.users.Wait()
	if !before {
		s.catalog.WriteLedgers(nil)
	}
	if s.serving != nil {
		s.serving.Close()
	}
	var err error
	if !s.lent {
		err = errors.Join(s.pools.Own.Close(), s.pools.Inbound.Close())
	}
	return errors.Join(err, s.guard.Release())
}

// enter returns the start of every operation; its result ends the operation.
func (s *Store) enter() (leave func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, ErrClosed
	}
	if err := s.guard.Err(); err != nil {
		return nil, err
	}
	s.users.Add(1)
	return s.users.Done, nil
}

// within is the frame of an operation.
func (s *Store) within(do func() error) error {
	leave, err := s.enter()
	if err != nil {
		return err
	}
	defer leave()
	return do()
}

// entered is within for an operation with a result.
func entered[T any](s *Store, do func() (T, error)) (out T, err error) {
	err = s.within(func() error {
		out, err = do()
		return err
	})
	return out, err
}

// on is the frame of an operation with this rank's part of an epoch at a level.
func (s *Store) on(op string, e Epoch, level string, do func(l *levelState) error) error {
	return s.within(func() error {
		l, err := s.at(level)
		if err != nil {
			return err
		}
		return s.fault(op, e, level, do(l))
	})
}

func (s *Store) fault(op string, e Epoch, level string, err error) error {
	if err == nil || errors.As(err, new(*ShardError)) {
		return err
	}
	return &ShardError{Op: op, Epoch: e, Rank: s.opt.Rank, Level: level, Err: err}
}

// turn waits until this rank may write one more shard.
func (s *Store) turn(ctx context.Context) (done func(), err error) {
	select {
	case s.turns <- struct{}{}:
		return func() { <-s.turns }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// served returns the directory of a level as other ranks see it.
func (s *Store) served(level string) (peer.Dir, error) {
	l, err := s.at(level)
	if err != nil {
		return peer.Dir{}, err
	}
	return l.served, nil
}

// Layout is the part of global arrays in one rank's shard. A program hands it to Put as the section LayoutSection,
// encoded; the manifests of the epoch repeat it.
//
//	Quiet   bool // no message waits in the rank's mailbox, and no receive of it is pending
//	PerRank bool // the shard has other state, too, which makes sense for a rank of this number only
//	Arrays  []layout.Local
//
//	func Encode() ([]byte, error)
type Layout = format.Layout

// LayoutSection is the name of the section of a shard that has its Layout.
const LayoutSection = format.LayoutSection

// DecodeLayout reads the result of Layout.Encode for a rank. Damaged bytes match ErrCorrupt.
func DecodeLayout(rank int, b []byte) (*Layout, error) { return format.DecodeLayout("layout", rank, b) }

// CheckLayouts returns an error if the layouts of all ranks, in their order, do not fit together; so would Commit. It
// is local, and reads no file.
func CheckLayouts(all []*Layout) error {
	m := format.Manifest{Size: len(all)}
	for r, l := range all {
		m.Shards = append(m.Shards, ShardInfo{Rank: r, Layout: l})
	}
	return m.Check()
}

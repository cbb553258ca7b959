// Package level has the places for epochs: the interface Level, Dir on a POSIX file system, and Bucket in an object
// store. They provide files that appear whole or not at all, manifests that commit epochs, the small files of the job,
// and the lock by which one run has a directory for itself. The package knows one place at a time and nothing of other
// ranks; of a shard it knows the file, its length and its footer.
package level

import (
	"context"
	"time"

	"github.com/holdfast-hpc/holdfast/internal/vfs"
	"github.com/holdfast-hpc/holdfast/storage/internal/format"
)

// Level is a place to keep epochs: the operations of their life, and those that reserve the place for one job and one
// run of it. Dir is on a POSIX file system, Bucket in an object store. Operations that need only these calls, like
// Prunable, are functions.
type Level interface {
	Epochs
	records
	Repairs

	// Prepare tries whether the place is there and can be written to. create makes it if only the last element of its
	// path is missing.
	Prepare(create bool) error
	// ForAll makes the owner responsible for the unfinished files of all ranks. No other rank may be writing during
	// ClearTemps then.
	ForAll()
	// ClearTemps removes files that an earlier run of the owner left unfinished.
	ClearTemps() error
	// RestoreMarker is Claim for a place that has lost its marker, and only then.
	RestoreMarker(want format.Marker) error
	// PlaceAttempts gives the first record of a rank's restore attempts its name. They are durable when the function
	// returned has returned nil; it is to be called once.
	PlaceAttempts(t format.RestoreAttempts, rank int) (durable func() error, err error)
	// Lock ensures that no other run uses the place: it takes the lock, or finds it with a rank of the same run. owned
	// reports that this process has to beat. A dead owner is replaced, a live one is a *BusyError.
	Lock(ctx context.Context, want *format.Lock, beat time.Duration) (owned bool, err error)
	// Unused is Lock without taking or writing anything.
	Unused(ctx context.Context, run string, beat time.Duration) error
	// Beat rewrites an own lock, or reports that it is lost (*BusyError), or was removed and is not made again
	// (fs.ErrNotExist).
	Beat(l *format.Lock) error
	// Unlock removes an own lock.
	Unlock(l *format.Lock) error
	// Trusted returns an error if the contents must not be believed: vfs.ErrUnsafe if others could have written them.
	Trusted() error
	// Check calls bad for each damaged or foreign thing beside the epochs, or in the place of one.
	Check(bad func(name string, err error)) error
}

// Epochs has the operations of an epoch's life at a level. Files appear whole and durable or not at all, except by
// Make; an epoch is committed by its manifest.
type Epochs interface {
	Name() string   // of the level; empty if it is not known
	Path() string   // its place, for people
	Traits() Traits // properties of the level
	// Unusable wraps the system's error about the place with the remedy (*DirError).
	Unusable(err error) error
	// Full turns an error about lack of room into a *SpaceError, and leaves others; need is the size of the write.
	Full(err error, need int64) error

	// Put makes a file of an epoch, which fill writes. After an error nothing is left; one for want of room is a
	// *SpaceError.
	Put(e format.Epoch, name string, room Room, fill func(f vfs.File) error) error
	// Open opens a file of an epoch for reading and returns its place.
	Open(e format.Epoch, name string) (f vfs.File, file string, err error)
	// Stat describes a file of an epoch, or without a name the epoch.
	Stat(e format.Epoch, name string) (vfs.Entry, error)
	// Files lists the files of an epoch, in the order of their names.
	Files(e format.Epoch) ([]vfs.Entry, error)
	// Epochs lists the epochs that have files, newest first, committed or not.
	Epochs() ([]format.Epoch, error)
	// SyncEpoch makes the names of an epoch's files durable.
	SyncEpoch(e format.Epoch) error
	// Commit publishes the manifest unless the same one is there already; another one is ErrCommitted. The epochs
	// origins must be committed there.
	Commit(m *format.Manifest, origins []format.Epoch) error
	// ReadManifest reads an epoch's manifest. An absent one is ErrNotCommitted.
	ReadManifest(e format.Epoch) (*format.Manifest, error)
	// Discard removes a file of an uncommitted epoch, and remains of its making.
	Discard(e format.Epoch, name string) error
	// RemoveEpoch permanently removes the manifest before its files. It leaves files that are not part of a checkpoint.
	RemoveEpoch(e format.Epoch) (left []Leftover, err error)

	// Begin makes the place for the files of an epoch of need bytes, and refuses early if they would not fit. Its name
	// is durable when Commit returns. fresh reports that the epoch had no files before.
	Begin(e format.Epoch, need int64) (fresh bool, err error)
}

// Packs has the operations of files with several writers. A level has it unless it is Single.
type Packs interface {
	// Make makes a file under its final name, which only the caller opens by name; room is the least that it will take.
	// A file of that name left by an attempt at the epoch is replaced, unless the epoch is committed. Seal ends it, and
	// its name is durable when Commit returns.
	Make(e format.Epoch, name string, room int64) (vfs.File, error)
	// Join opens a file in the making that several ranks write parts of; room is that of a part. It looks for
	// room only where the place has not begun. The caller syncs and closes the file, or has Seal do it.
	Join(e format.Epoch, temp string, room int64) (vfs.File, error)
	// Seal ends a file that Join or Make has opened: fill completes it, and it is synced, closed and gets its final
	// name unless it has that already.
	Seal(e format.Epoch, f vfs.File, temp, name string, fill func(f vfs.File) error) error
	// Drop removes a file in the making.
	Drop(e format.Epoch, temp string) error
}

// Traits set levels apart.
type Traits struct {
	Shared          bool // all ranks see one place, which has the shards of all
	Single          bool // a file has one writer: it is no Packs
	WrittenByOthers bool // its files are written by other ranks than its owner
	Rows            bool // its files are parity rows; its manifests describe the shards that these were computed from
	Data            bool // parity rows are computed from its shards
	Copies          bool // a shard lies there as often as its entry in the manifest has holders
}

// SurvivesNode reports whether the level keeps files whose node is lost.
func (t Traits) SurvivesNode() bool { return t.Shared || t.WrittenByOthers }

// TraitsOf returns the traits of the level with a name.
func TraitsOf(name string) Traits {
	switch name {
	case format.LevelLocal:
		return Traits{Data: true}
	case format.LevelPartner:
		return Traits{WrittenByOthers: true, Copies: true}
	case format.LevelParity:
		return Traits{WrittenByOthers: true, Rows: true}
	case format.LevelGlobal:
		return Traits{Shared: true}
	}
	return Traits{}
}

// Room is the space that a file takes at a level, in bytes.
type Room struct {
	Sure int64 // without which it is not begun
	Most int64
}

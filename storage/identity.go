package storage

import (
	"context"

	"github.com/holdfast-hpc/holdfast/internal/vfs"
	"github.com/holdfast-hpc/holdfast/storage/internal/format"
	"github.com/holdfast-hpc/holdfast/storage/internal/level"
)

// Identity tells one run from all others: a first start, and the restarts that continue it. A run under a release that
// gave none has the zero Identity.
//
//	ID      [16]byte // random
//	Began   int64    // when the first start was, in nanoseconds since 1970 UTC
//	Before  [16]byte // ID of the run whose directories this run took over to start over; zero: none
//	Adopted bool     // it continues epochs of a release that gave no identity
//
//	func IsZero() bool
//	func Owns(x Identity) bool
//	func Replaced(x Identity) bool
//	func Short() string
type Identity = format.Identity

// RunText names a run for people, by the time of its first start and the first digits of its ID.
func RunText(i Identity) string { return level.RunText(i) }

// RunError reports a level's directory that belongs to another run than the others.
//
//	Level, Dir string
//	Have       Identity // of the directory
//	Want       Identity // of the others
//	Other      string   // the first of these; empty: it is not known
//	Remedy     string
type RunError = level.RunError

// OtherRunError reports an epoch of another run in a directory of this one.
//
//	File     string
//	Manifest *format.Manifest
//	Want     Identity
//
//	func Replaced() bool
type OtherRunError = level.OtherRunError

// OwnerBytes is the length in bytes of an encoded Owner.
const OwnerBytes = format.IdentityBytes + 10

// Owner says which run a directory belongs to, or several by Decide.
type Owner struct {
	Level, Dir string   // of one directory
	Run        Identity // zero: nothing is there, or an older release has written it
	New        bool     // nothing is there
	HasEpochs  bool     // epochs of the run are or were committed there
	Restorable bool     // some are there, perhaps under names of their own
	Newest     Epoch    // of those without a name; 0: none
}

// FindOwners looks which runs the directories of a rank belong to, before Open. It writes nothing. All ranks call it;
// rank 0 asks for all about a directory that all ranks share. Its only error is that of ctx: Open reports the faults of
// directories.
func FindOwners(ctx context.Context, opt Options) ([]Owner, error) {
	opt.fs = vfs.OrOS(vfs.From(ctx))
	var out []Owner
	for _, c := range opt.Levels {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if TraitsOf(c.Name).Shared && opt.Rank != 0 || level.CheckPath(c.Dir) != nil { // Open reports the error
			continue
		}
		out = append(out, opt.owner(ctx, c.Name, c.Dir))
	}
	return out, nil
}

// owner looks at one place.
func (o *Options) owner(ctx context.Context, name, dir string) Owner {
	w := level.OwnerOf(level.Until(ctx, level.At(o.fs, name, dir, o.Rank, nil)))
	return Owner{name, dir, w.Run, w.New, w.HasEpochs, w.Restorable, w.Newest}
}

// Decide finds the run that all of several directories belong to; of some it finds the same alone or with others. A run
// that started over in another one's directories comes before that, one with epochs before one without, the first
// before later ones. Fits says which directories disagree. A zero Run with HasEpochs is one of an older release;
// without, it is for the caller to begin a new run. All ranks call it with the Owners of all. It reads no file.
func Decide(seen []Owner) Owner {
	by := func(x Identity) Identity {
		for _, s := range seen {
			if s.Run.Replaced(x) {
				return s.Run
			}
		}
		return x
	}
	var best Owner
	rank := func(s *Owner) int {
		switch {
		case s.HasEpochs && !s.Run.IsZero() && by(s.Run) == s.Run:
			return 4
		case s.HasEpochs && !s.Run.IsZero():
			return 3
		case s.HasEpochs:
			return 2
		case !s.Run.IsZero():
			return 1
		}
		return 0
	}
	for i := range seen {
		if rank(&seen[i]) > rank(&best) {
			best = seen[i]
		}
	}
	best.Run, best.New, best.Newest, best.Restorable = by(best.Run), false, 0, false
	for _, s := range seen {
		if s.HasEpochs && best.Run.Owns(s.Run) {
			best.Newest, best.Restorable = max(best.Newest, s.Newest), best.Restorable || s.Restorable
		}
	}
	return best
}

// Begin makes the identity of a new run that began now, in nanoseconds since 1970 UTC, in directories of which Decide
// has said was. id is random, and the same on all ranks.
func Begin(id [16]byte, now int64, was Owner, startOver bool) Identity {
	i := Identity{ID: id, Began: now}
	switch {
	case startOver && was.HasEpochs:
		i.Before = was.Run.ID
	case startOver: // the epochs belong to the run that this one replaced
		i.Before = was.Run.Before
	default:
		i.Adopted = was.HasEpochs
	}
	return i
}

// Fits returns a *RunError for a directory with epochs of another run than run; other names the directory with that
// run. Its Remedy names the settings. It is local.
func (s *Owner) Fits(run Identity, startOver bool, other string) error {
	if !s.HasEpochs || startOver || run.Owns(s.Run) || run.Replaced(s.Run) {
		return nil
	}
	return &RunError{Level: s.Level, Dir: s.Dir, Have: s.Run, Want: run, Other: other,
		Remedy: "name the directories of one run (HOLDFAST_GLOBAL, HOLDFAST_LOCAL), or begin a new run in all of " +
			"them with HOLDFAST_FRESH=1"}
}

func (s *Owner) fields(f format.Fields) {
	format.IdentityFields(f, &s.Run)
	f.Flag(&s.HasEpochs)
	f.Flag(&s.Restorable)
	f.Epoch(&s.Newest)
}

// Encode returns the owner without its place, OwnerBytes long, for other ranks.
func (s *Owner) Encode() []byte {
	var e format.Encoder
	s.fields(format.Appending(&e))
	return e.B
}

// DecodeOwner reads the result of Encode, which has OwnerBytes.
func DecodeOwner(b []byte) (s Owner) {
	s.fields(format.Taking(&format.Decoder{B: b}))
	return s
}

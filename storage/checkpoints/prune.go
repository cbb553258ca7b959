package checkpoints

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"syscall"
	"time"

	"github.com/holdfast-hpc/holdfast/internal/random"
	"github.com/holdfast-hpc/holdfast/internal/sleep"
	"github.com/holdfast-hpc/holdfast/storage/internal/catalog"
	"github.com/holdfast-hpc/holdfast/storage/internal/format"
	"github.com/holdfast-hpc/holdfast/storage/internal/level"
)

// PruneRules are the keep rules of Prune; see LevelConfig.
type PruneRules struct {
	Keep, KeepEvery int
	DryRun          bool // only report what would be removed
	// Stays, if set, is called with the reason why an epoch stays in a directory though Keep does not cover it.
	Stays func(e Epoch, dir, why string)
}

// Prune removes the epochs that the rules do not keep from each of the directories of a job that is not running: while
// it runs, the error is a *BusyError. The last directory counts as the widest level.
//
// An epoch counts at a level if the given directories of that level have its parts of as many ranks, with manifests, as
// of any other epoch. An epoch that a dead run left on some nodes only does not count. Give the directories of all
// nodes.
//
// It continues when something cannot be removed. The error names the parts that it left; the result has the epochs that
// it removed. It reads manifests, and no shard.
func Prune(ctx context.Context, dirs []string, rules PruneRules) (removed map[string][]Epoch, err error) {
	switch {
	case rules.Keep < 1:
		return nil, &level.OptionError{Field: "Keep", Reason: fmt.Sprintf("is %d, want at least 1 epoch", rules.Keep)}
	case rules.KeepEvery < 0:
		return nil, &level.OptionError{Field: "KeepEvery", Reason: fmt.Sprintf("is %d; 0 means none", rules.KeepEvery)}
	}
	v, err := Open(ctx, dirs...)
	if err != nil {
		return nil, err
	}
	if len(v.dirs) == 0 {
		return nil, errNoDirs
	}
	if !rules.DryRun {
		release, err := v.lock(ctx, "prune "+random.Text(), false)
		if err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, release()) }()
	}
	return v.prune(ctx, rules)
}

var errNoDirs = &level.OptionError{Field: "Levels", Reason: "no directory given"}

func (v *View) prune(ctx context.Context, rules PruneRules) (map[string][]Epoch, error) {
	out := map[string][]Epoch{}
	var looks []*catalog.Look // before anything is removed; nil: the directory cannot be looked at
	var problems []error
	for _, d := range v.dirs {
		k, err := catalog.NewLook(d.Level)
		looks, problems = append(looks, k), append(problems, err)
	}
	widest := Epoch(0)
	if last := looks[len(looks)-1]; last != nil {
		var err error
		widest, err = catalog.NewestReadable(last)
		problems = append(problems, err)
	}
	whole := map[string]map[Epoch]bool{}
	for _, d := range v.dirs {
		if whole[d.Name()] == nil {
			whole[d.Name()] = wholeAt(looks, d.Name())
		}
	}
	for i, d := range v.dirs {
		if looks[i] == nil {
			continue
		}
		if !rules.DryRun {
			problems = append(problems, level.DropAnnouncements(d))
		}
		no := func(Epoch) bool { return false }
		stays := func(e Epoch, why string) {
			if rules.Stays != nil {
				rules.Stays(e, d.Path(), why)
			}
		}
		removed, odd, err := looks[i].Prune(ctx, &catalog.KeepRules{Keep: rules.Keep, Every: rules.KeepEvery,
			Widest: widest, Counts: func(e Epoch) bool { return whole[d.Name()][e] }, Failed: no, InUse: no,
			Making: func(string) bool { return false }, // the lock is ours: no other process writes
			DryRun: rules.DryRun, Stays: stays},
			func(e Epoch, err error) error { return fmt.Errorf("remove epoch %d from %s: %w", e, d.Path(), err) })
		problems = append(problems, err)
		for _, left := range odd {
			problems = append(problems, fmt.Errorf("not removed: %s: %w", left.Path, left.Err))
		}
		if len(removed) > 0 {
			out[d.Path()] = removed
		}
		if !rules.DryRun {
			problems = append(problems, level.Forget(d, removed))
		}
	}
	return out, errors.Join(problems...)
}

// wholeAt finds the epochs that have parts of as many ranks in the directories of a level as any.
func wholeAt(looks []*catalog.Look, name string) map[Epoch]bool {
	parts := map[Epoch]map[int]bool{}
	for _, d := range looks {
		if d == nil || d.Name() != name {
			continue
		}
		epochs, _ := d.Epochs()
		for _, e := range epochs {
			ranks := catalog.RanksWithManifest(d, e)
			if parts[e] == nil {
				parts[e] = map[int]bool{}
			}
			for _, r := range ranks {
				parts[e][r] = true
			}
		}
	}
	most := 0
	for _, ranks := range parts {
		most = max(most, len(ranks))
	}
	whole := map[Epoch]bool{}
	for e, ranks := range parts {
		whole[e] = len(ranks) == most
	}
	return whole
}

// lock takes the directories for a tool, as a run of the job with this name would: a live run is a *BusyError, and one
// that starts meanwhile waits, and is refused in the end. onlyRead continues without the lock in places that cannot be
// written: no process can remove anything there either.
func (v *View) lock(ctx context.Context, run string, onlyRead bool) (release func() error, err error) {
	g := level.NewGuard(ctx, run)
	for _, d := range v.dirs {
		err := g.Take(ctx, d.Level) // temporary files as of rank 0, whose next start clears them away
		if onlyRead && (errors.Is(err, syscall.EROFS) || errors.Is(err, fs.ErrPermission)) {
			continue
		}
		if err != nil {
			return nil, errors.Join(err, g.Release())
		}
	}
	g.KeepAlive()
	return g.Release, nil
}

// Pin keeps an epoch at a level until UnpinEpoch.
//
//	Epoch Epoch
//	Name  string // given by the user; may be empty
//	Auto  bool   // made by the rule of a job, not by a user
//	Time  int64  // when it was made, in nanoseconds since 1970 UTC
type Pin = format.Pin

// PinEpoch waits keepWaits, and looks every keepLooks, for a Prune that is about to remove the epoch.
const (
	pinWaits = 10 * time.Second
	pinLooks = 50 * time.Millisecond
)

// PinEpoch keeps an epoch in a directory of the level global until UnpinEpoch, with the epochs that it refers to. name
// is for people and may be empty. A running job sees it: its Prune either sees the record before it removes anything,
// or is waited for. An epoch that is not committed there is ErrNotCommitted; so is one that Prune was removing already,
// and then no record is left. It waits at most ten seconds for a Prune that is under way. The record is one small file.
func PinEpoch(ctx context.Context, dir string, e Epoch, name string) error {
	d, err := pinDir(ctx, dir)
	if err != nil {
		return err
	}
	if err := wholeEpoch(d, e); err != nil {
		return err
	}
	if err := level.WritePin(d, &format.Pin{Epoch: e, Name: name, Time: time.Now().UnixNano()}); err != nil {
		return err
	}
	if err := staysWhole(ctx, d, e); err != nil {
		return errors.Join(err, level.RemovePin(d, e))
	}
	return nil
}

// staysWhole waits until no process is about to remove an epoch that is to be kept, or those that it refers to, and
// checks that all files are there.
func staysWhole(ctx context.Context, d *viewDir, e Epoch) error {
	for start := time.Now(); ; {
		m, err := d.ReadManifest(e)
		if err != nil {
			return fmt.Errorf("epoch %d in %s: %w", e, d.Path(), err)
		}
		removing, err := level.Announced(d, append(m.Origins(), e)...)
		switch {
		case err != nil:
			return err
		case !removing:
			return wholeEpoch(d, e)
		case time.Since(start) >= pinWaits:
			return fmt.Errorf("epoch %d in %s is about to be removed, and is not kept: try again; if whoever was to "+
				"remove it has died, the next start of the job or 'holdfast prune' clears its note away", e, d.Path())
		}
		if err := sleep.For(ctx, pinLooks); err != nil {
			return err
		}
	}
}

// wholeEpoch returns the reason for which an epoch cannot be pinned: it is not committed, or one that it refers to is
// not.
func wholeEpoch(l level.Epochs, e Epoch) error {
	m, err := l.ReadManifest(e)
	if err == nil {
		err = level.CheckOrigins(l, m.Origins())
	}
	if err != nil {
		return fmt.Errorf("epoch %d in %s: %w", e, l.Path(), err)
	}
	return nil
}

// UnpinEpoch takes PinEpoch back: the epoch goes when the keep rules say so. Without a record the error matches
// fs.ErrNotExist.
func UnpinEpoch(ctx context.Context, dir string, e Epoch) error {
	d, err := pinDir(ctx, dir)
	if err != nil {
		return err
	}
	pins, err := level.ReadPins(d)
	if err != nil {
		return err
	}
	if _, ok := pins[e]; !ok {
		return fmt.Errorf("epoch %d in %s is not kept: %w", e, dir, fs.ErrNotExist)
	}
	return level.RemovePin(d, e)
}

// Pins lists the records of a directory of the level global. A damaged pin also pins its epoch, and its error joins the
// list. It reads these records alone.
func Pins(ctx context.Context, dir string) (list []Pin, err error) {
	d, err := pinDir(ctx, dir)
	if err != nil {
		return nil, err
	}
	pins, err := level.ReadPins(d)
	if err != nil {
		return nil, err
	}
	for _, e := range slices.Sorted(maps.Keys(pins)) {
		list = append(list, pins[e].Pin)
		err = errors.Join(err, pins[e].Err)
	}
	return list, err
}

// pinDir opens a directory whose epochs can be pinned.
func pinDir(ctx context.Context, dir string) (*viewDir, error) {
	v, err := Open(ctx, dir)
	if err != nil {
		return nil, err
	}
	d := v.dirs[0]
	if !d.Traits().Shared {
		return nil, &level.DirError{Level: d.Name(), Dir: dir, Err: errors.New("only level global keeps epochs"),
			Remedy: "give the job's HOLDFAST_GLOBAL"}
	}
	return d, nil
}

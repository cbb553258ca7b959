package checkpoints

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"syscall"

	"github.com/holdfast-hpc/holdfast/storage/internal/level"
)

// PruneRules are the keep rules of Prune; see LevelConfig.
type PruneRules struct {
	Keep, KeepEvery int
	DryRun          bool // only say what would go
}

func (r *PruneRules) validate() error {
	switch {
	case r.Keep < 1:
		return &level.OptionError{Field: "Keep", Reason: fmt.Sprintf("is %d, want at least 1 epoch", r.Keep)}
	case r.KeepEvery < 0:
		return &level.OptionError{Field: "KeepEvery", Reason: fmt.Sprintf("is %d; 0 means none", r.KeepEvery)}
	}
	return nil
}

// Prune removes the epochs that the rules do not keep from each of the
// directories of a job that is not running: while it runs, the error is a
// *BusyError. The last directory counts as the widest level.
//
// An epoch counts at a level when the directories given of that level have as many
// ranks' parts of it, with a manifest beside them, as of any other epoch: an epoch
// that a dead run left on some nodes only does not count. Give the directories of
// all nodes.
//
// It continues when something cannot be removed. The error says what it left,
// beside the epochs that went.
func Prune(ctx context.Context, dirs []string, rules PruneRules) (removed map[string][]Epoch, err error) {
	if err := rules.validate(); err != nil {
		return nil, err
	}
	v, err := Open(ctx, dirs...)
	if err != nil {
		return nil, err
	}
	if len(v.dirs) == 0 {
		return nil, errNoDirs
	}
	if !rules.DryRun {
		release, err := v.lock(ctx, "prune "+rand.Text(), false)
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
	whole := map[string]map[Epoch]bool{}
	var problems []error
	var left []level.Leftover
	widest, err := level.NewestReadable(v.dirs[len(v.dirs)-1])
	problems = append(problems, err)
	for _, d := range v.dirs {
		if whole[d.Name()] == nil {
			whole[d.Name()] = v.wholeAt(d.Name())
		}
	}
	for _, d := range v.dirs {
		no := func(Epoch) bool { return false }
		kept, err := level.KeptAt(d)
		if err != nil {
			problems = append(problems, err) // what is to stay is not known
			continue
		}
		dead, odd, err := level.Prunable(d, &level.KeepRules{Keep: rules.Keep, Every: rules.KeepEvery, Widest: widest,
			Kept:   kept,
			Counts: func(e Epoch) bool { return whole[d.Name()][e] }, Failed: no, Held: no,
			Making: func(string) bool { return false }}) // the lock is ours: nobody writes
		problems = append(problems, err)
		left = append(left, odd...)
		announced := func() error { return nil }
		if !rules.DryRun {
			problems = append(problems, level.DropAnnouncements(d))
			if announced, err = level.Announce(d, dead); err != nil {
				problems = append(problems, err)
				continue
			}
		}
		for _, e := range dead {
			if err := ctx.Err(); err != nil {
				return out, errors.Join(err, announced())
			}
			if same, err := level.Unchanged(d, kept); !same {
				problems = append(problems, err)
				break // the next call decides anew
			}
			if !rules.DryRun {
				more, err := d.RemoveEpoch(e)
				left = append(left, more...)
				if err != nil {
					problems = append(problems, fmt.Errorf("remove epoch %d from %s: %w", e, d.Path(), err))
					continue
				}
			}
			out[d.Path()] = append(out[d.Path()], e)
		}
		if !rules.DryRun {
			problems = append(problems, announced(), level.Forget(d, out[d.Path()]))
		}
	}
	if len(left) > 0 {
		problems = append(problems, &level.LeftError{Left: left})
	}
	return out, errors.Join(problems...)
}

// wholeAt finds the epochs of which the directories of a level have parts of as
// many ranks as of any.
func (v *View) wholeAt(name string) map[Epoch]bool {
	parts := map[Epoch]map[int]bool{}
	for _, d := range v.dirs {
		if d.Name() != name {
			continue
		}
		epochs, err := d.Epochs()
		if err != nil {
			continue // prunable says so
		}
		for _, e := range epochs {
			ranks := level.RanksWithManifest(d, e)
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

// lock takes the directories for a tool, as a run of the job with this name would: a live run
// is a *BusyError, and one that starts meanwhile waits, and is refused in the end.
// onlyRead continues without the lock where nothing can be written: there nobody
// can remove anything either.
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

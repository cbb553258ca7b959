package checkpoints

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/holdfast-hpc/holdfast/internal/sleep"
	"github.com/holdfast-hpc/holdfast/storage/internal/format"
	"github.com/holdfast-hpc/holdfast/storage/internal/level"
)

// Kept says that an epoch stays at a level until Unkeep.
//
//	Epoch Epoch
//	Name  string // given by the user; may be empty
//	Auto  bool   // made by the rule of a job, not by a user
//	Time  int64  // when it was made, in nanoseconds since 1970 UTC
type Kept = format.Kept

// Keep waits keepWaits, and looks every keepLooks, for a Prune that is about to remove the epoch.
const (
	keepWaits = 10 * time.Second
	keepLooks = 50 * time.Millisecond
)

// Keep says that an epoch stays in a directory of the level global, and with it those that
// it refers to, until Unkeep; name is for people and may be empty. A running job sees
// it: its Prune either sees the record before it removes anything, or is waited for. An epoch that is not committed
// there is ErrNotCommitted; so is one that Prune was removing already, and then no record is left.
func Keep(ctx context.Context, dir string, e Epoch, name string) error {
	d, err := keepDir(ctx, dir)
	if err != nil {
		return err
	}
	if err := wholeEpoch(d, e); err != nil {
		return err
	}
	if err := d.WriteKept(&format.Kept{Epoch: e, Name: name, Time: time.Now().UnixNano()}); err != nil {
		return err
	}
	if err := staysWhole(ctx, d, e); err != nil {
		return errors.Join(err, d.RemoveKept(e))
	}
	return nil
}

// staysWhole waits until nobody is about to remove an epoch that is to stay, or what it refers to, and looks whether
// all of it is there.
func staysWhole(ctx context.Context, d *viewDir, e Epoch) error {
	for begun := time.Now(); ; {
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
		case time.Since(begun) >= keepWaits:
			return fmt.Errorf("epoch %d in %s is about to be removed, and is not kept: try again; if whoever was to "+
				"remove it has died, the next start of the job or 'holdfast prune' clears its note away", e, d.Path())
		}
		if err := sleep.For(ctx, keepLooks); err != nil {
			return err
		}
	}
}

// wholeEpoch says why an epoch cannot be kept: it is not committed, or what it refers to is not.
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

// Unkeep takes Keep back: the epoch goes when the keep rules say so. Without a record the
// error matches fs.ErrNotExist.
func Unkeep(ctx context.Context, dir string, e Epoch) error {
	d, err := keepDir(ctx, dir)
	if err != nil {
		return err
	}
	kept, err := d.ReadKept()
	if err != nil {
		return err
	}
	if _, ok := kept[e]; !ok {
		return fmt.Errorf("epoch %d in %s is not kept: %w", e, dir, fs.ErrNotExist)
	}
	return d.RemoveKept(e)
}

// KeptEpochs lists the records of a directory of the level global. A damaged one keeps its
// epoch, too, and joins the error, beside the list.
func KeptEpochs(ctx context.Context, dir string) (list []Kept, err error) {
	d, err := keepDir(ctx, dir)
	if err != nil {
		return nil, err
	}
	kept, err := d.ReadKept()
	if err != nil {
		return nil, err
	}
	set := map[Epoch]bool{}
	for e := range kept {
		set[e] = true
	}
	for _, e := range format.SortedEpochs(set) {
		list = append(list, kept[e].Kept)
		err = errors.Join(err, kept[e].Err)
	}
	return list, err
}

// keepDir opens a directory whose epochs can be kept.
func keepDir(ctx context.Context, dir string) (*viewDir, error) {
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

package coordinated

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/holdfast-hpc/holdfast/coordinated/internal/connect"
	"github.com/holdfast-hpc/holdfast/internal/job"
	"github.com/holdfast-hpc/holdfast/storage"
)

// identify finds which run this start continues, or begins one, and gives opt its identity. It refuses directories of
// different runs, and a new global directory beside others with epochs, unless the user has said what is meant. bad is
// why this rank cannot look. Collective: it succeeds or fails on all ranks alike.
func (c *Checkpointer) identify(ctx context.Context, all connect.Ranks, opt *storage.Options, bad error) error {
	opt.StartOver = c.opt.Fresh
	mine, err := storage.FindOwners(ctx, *opt)
	bad = errors.Join(bad, err)
	decided, begin, err := decideTogether(all, mine)
	if err != nil {
		return err
	}
	run := c.opt.run
	switch given := !run.IsZero(); {
	case given: // by the checkpoints of the points
	case decided.Run.IsZero() || opt.StartOver:
		run = begin(opt.StartOver)
	default:
		run = decided.Run
	}
	bad = errors.Join(bad, c.opt.again(decided))
	opt.Identity, c.run = run, run
	return connect.Agree(all, "open checkpoint directories", errors.Join(bad, c.refuseOthers(mine, decided, run)))
}

// goOn drops Fresh and Epoch once the job has taken a checkpoint of its own, as the supervisor of its starts knows:
// both are for the first start, and a later one must not lose what that has computed. It returns the setting.
func (o *Options) goOn() (dropped string) {
	if !o.Fresh && o.Epoch == 0 || o.Supervisor == "" {
		return ""
	}
	v, err := job.ParseSupervisor(o.Supervisor)
	if err != nil || !v.Continues { // the reporter says what is wrong with it
		return ""
	}
	dropped = "HOLDFAST_FRESH"
	if o.Epoch != 0 {
		dropped = fmt.Sprintf("HOLDFAST_EPOCH=%d", o.Epoch)
	}
	o.Fresh, o.Epoch = false, 0
	return dropped
}

// again is an error for a job that Slurm has put back into the queue and that is told to start over, or to go back:
// nobody knows whether its earlier start did so and computed on. A supervisor knows.
func (o *Options) again(decided storage.Owner) error {
	const why = "Slurm has put this job back into the queue, and the directories hold checkpoints that its earlier " +
		"start may have taken: unset it to continue from the newest, or submit the job anew; holdfast run --requeue " +
		"sees to this by itself"
	switch {
	case o.slurm.Restarts == 0 || o.Supervisor != "" || !o.run.IsZero() || !decided.Restorable:
		return nil
	case o.Fresh:
		return &OptionError{Name: "Fresh", Why: "it would start over: " + why, env: o.fromEnv}
	case o.Epoch != 0 && decided.Newest > o.Epoch:
		return &OptionError{Name: "Epoch", Why: fmt.Sprintf("it would go back from epoch %d to %d: %s", decided.Newest,
			o.Epoch, why), env: o.fromEnv}
	}
	return nil
}

// decideTogether is storage.Decide of what all ranks have seen; begin makes a new run, with the time and the random
// number of rank 0. Collective.
func decideTogether(all connect.Ranks, mine []storage.Owner) (was storage.Owner,
	begin func(startOver bool) storage.Identity, err error) {
	const each = storage.OwnerBytes + 16 + 8
	was = storage.Decide(mine)
	var id [16]byte
	if _, err := rand.Read(id[:]); err != nil {
		return was, nil, err
	}
	b := binary.LittleEndian.AppendUint64(append(was.Encode(), id[:]...), uint64(time.Now().UnixNano()))
	every := make([]byte, each*all.Size())
	if err := all.Allgather(every, b); err != nil {
		return was, nil, fmt.Errorf("compare whose the checkpoint directories are: %w", err)
	}
	first := every[storage.OwnerBytes:]
	begin = func(startOver bool) storage.Identity {
		return storage.Begin([16]byte(first[:16]), int64(binary.LittleEndian.Uint64(first[16:])), was, startOver)
	}
	var seen []storage.Owner
	for b := range slices.Chunk(every, each) {
		seen = append(seen, storage.DecodeOwner(b))
	}
	was = storage.Decide(seen)
	return was, begin, nil
}

// refuseNew refuses a new, empty directory of the level global beside others that hold epochs of a run: they would be
// restored, and nobody has said that they should.
func refuseNew(s *storage.Owner, decided storage.Owner) error {
	here := ""
	if decided.Newest > 0 {
		here = fmt.Sprintf(", or set HOLDFAST_EPOCH=%d to continue it in this one", decided.Newest)
	}
	return fmt.Errorf("the %s directory %s is new, but nearer directories hold checkpoints of %s: to continue "+
		"that run, name the directory that it used%s; to begin a new run, give it empty directories, or "+
		"set HOLDFAST_FRESH=1",
		s.Level, s.Dir, storage.RunText(decided.Run), here)
}

// refuseOthers says which of this rank's directories belongs to another run than the others.
func (c *Checkpointer) refuseOthers(mine []storage.Owner, decided storage.Owner, run storage.Identity) error {
	beside := ""
	for _, s := range mine {
		if s.Run == run {
			beside = fmt.Sprintf("level %s in %s", s.Level, s.Dir)
		}
	}
	for _, s := range mine {
		if err := s.Fits(run, c.opt.Fresh, beside); err != nil {
			return err
		}
		shared := storage.TraitsOf(s.Level).Shared
		if shared && s.New && decided.Restorable && !c.opt.Fresh && c.opt.Epoch == 0 && c.opt.run.IsZero() {
			return refuseNew(&s, decided)
		}
	}
	return nil
}

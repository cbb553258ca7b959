package supervise

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/holdfast-hpc/holdfast/slurm"
	"github.com/holdfast-hpc/holdfast/storage"
)

// salvageTime bounds bringing checkpoints from the nodes to global where the job has no time
// limit; salvageLeast is what there must be.
const (
	salvageTime  = 10 * time.Minute
	salvageLeast = 10 * time.Second
)

// note keeps the newest epoch that is known to be committed at each level.
func (r *runner) note(committed map[string]storage.Epoch) {
	for level, e := range committed {
		if r.at == nil {
			r.at = map[string]storage.Epoch{}
		}
		r.at[level] = max(r.at[level], e)
	}
}

// salvage brings the newest checkpoint that is only on the nodes' own disks to global before
// this command gives up: the job's nodes, and with them their disks, are gone for it soon.
// A step on each node that is left copies what it has, and the one that brings the last shard
// commits.
func (r *runner) salvage(ctx context.Context) {
	newest := max(r.at[storage.LevelLocal], r.at[storage.LevelPartner], r.at[storage.LevelParity])
	have := r.at[storage.LevelGlobal]
	if r.salvaged || r.job == nil || r.opt.Local == "" || r.opt.Global == "" || newest <= have || len(r.nodes) == 0 {
		return
	}
	r.salvaged = true
	within := salvageTime
	if !r.deadline.IsZero() {
		within = min(within, time.Until(r.deadline)-salvageLeast)
	}
	if r.told {
		within = r.grace() / 2
	}
	if within < salvageLeast {
		r.say("epoch %d is on the nodes' own disks only, and there is no time to copy it to global", newest)
		return
	}
	r.say("copying epoch %d from the nodes' own disks to global, for %v at most", newest, within.Round(time.Second))
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	e, err := r.collect(ctx, have)
	if err != nil {
		r.say("epoch %d could not be copied to global: %v", newest, err)
		return
	}
	r.say("epoch %d is now committed at global", e)
}

// collect has all nodes that are left bring what they have, and returns the newest epoch that
// is committed at global by that; 0 if there is none behind have.
func (r *runner) collect(ctx context.Context, have storage.Epoch) (storage.Epoch, error) {
	line := []string{r.flags.Self, "flush", "--salvage", "salvage-" + r.job.ID, "--to", r.opt.Global, r.opt.Local,
		filepath.Join(r.opt.Local, storage.LevelPartner)}
	var live []string
	for _, n := range r.nodes {
		if !r.isDead(n) {
			live = append(live, n)
		}
	}
	left, _ := ctx.Deadline()
	patient := slurm.Client{Timeout: time.Until(left)}
	serr := patient.RunOnAll(ctx, live, line...) // what some have may be enough
	newest, err := newestAt(ctx, r.opt.Global)
	if newest > have {
		return newest, nil
	}
	if err = errors.Join(serr, err); err == nil {
		err = fmt.Errorf("the nodes that are left do not have the shards of all ranks in %s", r.opt.Local)
	}
	return 0, err
}

// newestAt is the newest epoch that is committed in a directory.
func newestAt(ctx context.Context, dir string) (newest storage.Epoch, err error) {
	v, err := storage.OpenView(nil, dir)
	if err != nil {
		return 0, err
	}
	list, err := v.Epochs(ctx)
	for _, e := range list {
		if e.Committed {
			newest = max(newest, e.Epoch)
		}
	}
	return newest, err
}

package coordinated

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/holdfast-hpc/holdfast/coordinated/internal/agent"
	"github.com/holdfast-hpc/holdfast/coordinated/internal/connect"
	"github.com/holdfast-hpc/holdfast/coordinated/internal/outcome"
	"github.com/holdfast-hpc/holdfast/coordinated/internal/vote"
	"github.com/holdfast-hpc/holdfast/internal/codec"
	"github.com/holdfast-hpc/holdfast/internal/job"
	"github.com/holdfast-hpc/holdfast/internal/random"
	"github.com/holdfast-hpc/holdfast/storage"
)

// identify finds the run that this start continues, or begins one, and gives opt its identity. It refuses directories
// of different runs, and a new global directory beside others with epochs, unless the user has decided. bad is the
// error of this rank's look. Collective: it succeeds or fails on all ranks alike.
func (c *Checkpointer) identify(ctx context.Context, all connect.Ranks, opt *storage.Options, bad error) error {
	opt.StartOver = c.opt.Fresh
	mine, err := storage.FindOwners(ctx, *opt)
	bad = errors.Join(bad, err)
	decided, begin, err := decideOnAll(all, mine)
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
	bad = errors.Join(bad, c.opt.refuseRequeued(decided))
	opt.Identity, c.run = run, run
	return connect.Agree(all, "open checkpoint directories", errors.Join(bad, c.refuseOthers(mine, decided, run)))
}

// dropFirstStart drops Fresh and Epoch once the job has taken a checkpoint of its own, as the supervisor of its starts
// knows: both are for the first start, and a later one must not lose its work. It returns the setting.
func (o *Options) dropFirstStart() (dropped string) {
	if !o.Fresh && o.Epoch == 0 || o.Supervisor == "" {
		return ""
	}
	v, err := job.ParseSupervisor(o.Supervisor)
	if err != nil || !v.Continues { // the reporter logs its error
		return ""
	}
	dropped = "HOLDFAST_FRESH"
	if o.Epoch != 0 {
		dropped = fmt.Sprintf("HOLDFAST_EPOCH=%d", o.Epoch)
	}
	o.Fresh, o.Epoch = false, 0
	return dropped
}

// refuseRequeued refuses a job that Slurm has put back into the queue and that is to start over, or to go back: without
// a supervisor it is unknown whether its earlier start did so and computed on.
func (o *Options) refuseRequeued(decided storage.Owner) error {
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

// decideOnAll is storage.Decide on the findings of all ranks; begin makes a new run, with the time and the random
// number of rank 0. Collective.
func decideOnAll(all connect.Ranks, mine []storage.Owner) (was storage.Owner,
	begin func(startOver bool) storage.Identity, err error) {
	const each = storage.OwnerBytes + 16 + 8
	was = storage.Decide(mine)
	var id [16]byte
	random.Fill(id[:])
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

// refuseNew refuses a new, empty directory of the level global beside others that hold epochs of a run: these would be
// restored without the user's decision.
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

// refuseOthers names the directories of this rank that belong to another run than the others.
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

// history has the past of a job without an epoch for all ranks.
type history struct {
	Epoch    storage.Epoch `json:",omitempty"` // that all ranks had committed; 0: none is known
	Level    string        `json:",omitempty"`
	Nodes    []string      `json:",omitempty"` // not of this run, which have or had shards of the newest epoch
	NoRecord bool          `json:",omitempty"` // an older build wrote epochs and no record
	Err      string        `json:",omitempty"`
}

// agreed reports whether the job may have had an epoch that all ranks had committed.
func (p *history) agreed() bool { return p.Epoch > 0 || p.NoRecord }

// history asks all levels of all ranks. Collective.
func (c *Checkpointer) history(ctx context.Context) (history, error) {
	mine, err := c.ownHistory(ctx)
	if err != nil {
		mine.Err = err.Error()
	}
	b, err := json.Marshal(mine)
	if err != nil {
		return history{}, err
	}
	blobs, err := c.agent.Allgather(c.life.ctx, 0, agent.StageRestore+"past", b)
	if err != nil {
		return history{}, err
	}
	var all history
	texts := make([]string, len(blobs))
	for i, b := range blobs {
		var one history
		if err := json.Unmarshal(b.Data, &one); err != nil {
			one.Err = err.Error()
		}
		texts[i] = one.Err
		all.NoRecord = all.NoRecord || one.NoRecord
		if one.Epoch > all.Epoch {
			all.Epoch, all.Level = one.Epoch, one.Level
		}
		all.Nodes = append(all.Nodes, one.Nodes...)
	}
	slices.Sort(all.Nodes)
	all.Nodes = slices.Compact(all.Nodes)
	return all, outcome.Failed("look for earlier checkpoints of the job", texts, nil)
}

func (c *Checkpointer) ownHistory(ctx context.Context) (history, error) {
	b, err := c.levels.store.History(ctx)
	if err != nil {
		return history{}, err
	}
	p := history{Epoch: b.Epoch, Level: b.Level, NoRecord: b.NoRecord}
	states, err := c.levels.store.Survey(ctx)
	homes := b.Nodes
	for _, s := range states { // newest epoch first
		if s.Shard.Node != "" && s.Err != nil && s.Epoch == states[0].Epoch {
			homes = append(homes, s.Shard.Node)
		}
	}
	for _, n := range homes {
		if n != "" && !slices.Contains(c.topo.Nodes, n) {
			p.Nodes = append(p.Nodes, n)
		}
	}
	return p, err
}

// LostEpochsError reports that the job has had checkpoints and none of them can be
// found: directories were emptied, or are not mounted, or lie on other nodes. The job
// starts over only with Options.Fresh.
type LostEpochsError struct {
	Epoch storage.Epoch // one that all ranks had committed
	Level string        // where
	Nodes []string      // that the run was on which committed it, and this one is not on
}

// Error names the newest epoch that the job committed, and the nodes that may have its shards.
func (e *LostEpochsError) Error() string {
	s := fmt.Sprintf("restore: the job has committed epoch %d at level %s, but no rank finds a checkpoint at any "+
		"level: mount or name the directories that had them", e.Epoch, e.Level)
	if len(e.Nodes) > 0 {
		s += fmt.Sprintf(", or start on node(s) %s, which the job ran on", names(e.Nodes))
	}
	return s + "; HOLDFAST_FRESH=1 starts over"
}

// MissingNodes lists the nodes whose disks may have the data that an error of Restore reports as missing. If one of
// them returns, a restart may succeed. It is nil for other errors, such as damage.
func MissingNodes(err error) []string {
	var lost *LostEpochsError
	var none *NoCommonEpochError
	switch {
	case errors.As(err, &lost):
		return lost.Nodes
	case errors.As(err, &none):
		return none.Nodes
	}
	return nil
}

// without decides how a job goes on that has no epoch for all ranks: nil means that it starts over. Collective.
func (c *Checkpointer) without(ctx context.Context, per [][]vote.Candidate, flags vote.Flags) error {
	p, err := c.history(ctx)
	if err != nil {
		return err
	}
	found := vote.Any(per) || flags.Has(vote.IsUnreadable)
	switch {
	case !found && p.Epoch == 0:
		return nil
	case !found:
		return &LostEpochsError{Epoch: p.Epoch, Level: p.Level, Nodes: p.Nodes}
	case !p.agreed():
		if c.topo.Rank == 0 {
			c.log.Warn("holdfast: starting over: the commit of the first epoch was interrupted, and not all ranks "+
				"can read it", "why", noCommon(per, flags, p.Nodes))
		}
		return nil
	}
	none := noCommon(per, flags, p.Nodes)
	none.elastic = c.opt.Elastic
	return none
}

// overviews are the findings of rank 0 in the directories that all share, on their way down the control tree: a part
// for all, and a part for each rank below. They travel before the agents start, so nothing else is on the way.
//
// After 8 bytes of length come a byte (rank 0 has findings, or could not look), the bytes for all, and for each rank
// below, itself included, its number and bytes.
type overviews struct {
	found  bool
	common []byte
	own    map[int][]byte
}

// overviewPiece is the size of a message with a part of them. A frame may be longer, so that the other side sees its
// pulse meanwhile.
const overviewPiece = 8 << 20

// encode writes them for some ranks.
func (o *overviews) encode(ranks []int) []byte {
	w := codec.Writer{B: make([]byte, 8)}
	if w.Bool(o.found); o.found {
		w.Bytes(o.common)
		for _, r := range ranks {
			w.Uint(uint64(r))
			w.Bytes(o.own[r])
		}
	}
	binary.LittleEndian.PutUint64(w.B, uint64(len(w.B)))
	return w.B
}

// decodeOverviews reads the bytes of encode, without its length. It keeps b.
func decodeOverviews(b []byte) (*overviews, error) {
	r := codec.Reader{B: b}
	o := &overviews{found: r.Bool(), own: map[int][]byte{}}
	if o.found {
		o.common = r.Bytes()
	}
	for o.found && len(r.B) > 0 {
		rank := int(r.Uint())
		o.own[rank] = r.Bytes()
	}
	if err := r.End(); err != nil {
		return nil, fmt.Errorf("what rank 0 has found in the directories, %d bytes: %w", len(b), err)
	}
	return o, nil
}

// send sends them to the ranks below, to all that it can.
func (o *overviews) send(plane connect.Plane, t *connect.Topology) (err error) {
	for _, c := range t.Children {
		var failed error
		for b := o.encode(t.Below(c)); len(b) > 0 && failed == nil; {
			n := min(len(b), overviewPiece)
			failed = plane.Send(c, b[:n])
			b = b[n:]
		}
		if failed != nil {
			err = errors.Join(err, fmt.Errorf("tell rank %d what the directories have: %w", c, failed))
		}
	}
	return err
}

// receiveOverviews receives them from the rank above.
func receiveOverviews(ctx context.Context, plane connect.Plane, t *connect.Topology) (*overviews, error) {
	var all bytes.Buffer
	for {
		select {
		case in := <-plane.Messages():
			if in.From != t.Parent {
				return nil, fmt.Errorf("rank %d speaks before the directories are open", in.From)
			}
			all.Write(in.Payload)
		case l := <-plane.Lost():
			return nil, fmt.Errorf("rank %d is lost before the directories are open: %w", l.Rank, l.Err)
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
		b := all.Bytes()
		if len(b) >= 8 && uint64(len(b)) >= binary.LittleEndian.Uint64(b) {
			return decodeOverviews(b[8:])
		}
	}
}

// openByOverview opens the store at rank 0 first, which sends its findings to the others. A rank that fails reports to
// those below that there are none: they open nothing, and the following vote names the failed rank. Collective; the
// error is this rank's own.
func (c *Checkpointer) openByOverview(ctx context.Context, opt storage.Options) (err error) {
	o := &overviews{own: map[int][]byte{}}
	if opt.Rank == 0 {
		return errors.Join(c.openFirst(ctx, opt, o), o.send(c.plane, c.topo))
	}
	received, err := receiveOverviews(ctx, c.plane, c.topo)
	if err == nil {
		o = received
	}
	if err = errors.Join(err, o.send(c.plane, c.topo)); err != nil || !o.found {
		return err
	}
	opt.Overview = &storage.Overview{Common: o.common, Own: o.own[opt.Rank]}
	c.levels.store, err = storage.Open(ctx, opt)
	return err
}

// openFirst opens the store and looks for all.
func (c *Checkpointer) openFirst(ctx context.Context, opt storage.Options, o *overviews) (err error) {
	if c.levels.store, err = storage.Open(ctx, opt); err != nil {
		return err
	}
	common, own, err := c.levels.store.Overview(ctx)
	if err != nil {
		return err
	}
	o.found, o.common = true, common
	for r := 1; r < opt.Size; r++ {
		o.own[r] = own(r)
	}
	return nil
}

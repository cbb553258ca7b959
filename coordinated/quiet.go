package coordinated

import (
	"time"

	"github.com/holdfast-hpc/holdfast/coordinated/cut"
	"github.com/holdfast-hpc/holdfast/coordinated/events"
	"github.com/holdfast-hpc/holdfast/coordinated/internal/agent"
	"github.com/holdfast-hpc/holdfast/coordinated/internal/persist"
	"github.com/holdfast-hpc/holdfast/storage"
)

// The ranks learn at the end of the drain, which all of them end alike, whether something is in flight to any of them
// and whether rank 0 would rather have another cut. Then none captures anything, the program continues with its
// messages in the mailboxes, and the ranks vote on the epoch as on one that has failed: a rank whose drain ended
// otherwise, since it ran out of time in the last exchange, is in that vote as well. Rank 0 then asks for the next
// epoch.

// quiet is what rank 0 knows of a checkpoint that is put off. It belongs to the main thread, and from a cut that is put
// off to the request for the next one to the goroutine that votes.
type quiet struct {
	next  storage.Epoch // that the next try will have; 0: nothing is put off
	since time.Time     // of the first cut that was put off
	tries int           // cuts that were put off
	stop  bool          // the next one is to be a final one
	told  bool          // that Quiet has no effect
}

// patience is what decides how long a checkpoint is put off.
type patience struct {
	quiet   time.Duration // Options.Quiet
	waited  time.Duration // since the first cut that was put off
	final   bool
	timeout time.Duration // Options.CutTimeout
	between time.Duration // about the time from Point to Point
	left    time.Duration // until the process is killed
	known   bool          // left is known
}

// more says whether a cut may be put off. For a final checkpoint two more Points have to fit into a tenth of the
// time-out and a quarter of what is left: what was computed since the epoch before is worth more than any number of
// ranks.
func (p patience) more() bool {
	if !p.final {
		return p.waited < p.quiet
	}
	limit := min(p.quiet, p.timeout/10)
	if p.known {
		limit = min(limit, p.left/4)
	}
	return p.quiet > 0 && p.waited+2*p.between <= limit
}

// promptTries is how many tries follow each other at once; the pauses before later ones double, up to longestPause: a
// program that always has messages in flight is not to stand still at every Point.
const (
	promptTries  = 8
	longestPause = time.Second
)

// pauseBefore is how long to wait before a try, counted from 1.
func pauseBefore(try int) time.Duration {
	if try <= promptTries {
		return 0
	}
	return min(time.Millisecond<<min(try-promptTries-1, 20), longestPause)
}

// prefersQuiet says whether this rank would rather have another cut, if something is in flight. Only rank 0 ever
// would. In Close nothing moves any more, so that another cut would be like this one.
func (c *Checkpointer) prefersQuiet(es *EpochStats) bool {
	if c.topo.Rank != 0 || c.opt.Quiet == 0 || c.main.Closed.Load() {
		return false
	}
	if names := c.state.PerRank(); len(names) > 0 && !c.seam.QuietPerRank {
		if !c.quiet.told {
			c.quiet.told = true
			c.log.Warn("holdfast: quiet has no effect: "+are(names)+" protected per rank, so that only this number of "+
				"ranks can restore the epochs", "quiet", c.opt.Quiet)
		}
		return false
	}
	if c.quiet.next != es.Epoch { // the one that was put off was given up since, or there was none
		c.quiet.since, c.quiet.tries = es.cut, 0
	}
	p := patience{quiet: c.opt.Quiet, waited: es.cut.Sub(c.quiet.since), final: es.final, timeout: c.opt.CutTimeout,
		between: time.Since(c.begun) / time.Duration(max(c.main.Points.Load(), 1))}
	p.left, p.known = c.life.end.Left()
	if d := c.opt.Deadline; !d.IsZero() && (!p.known || time.Until(d) < p.left) {
		p.left, p.known = time.Until(d), true
	}
	return p.more()
}

// putOff lets the program go on from a cut at which nothing was captured.
func (c *Checkpointer) putOff(v agent.Verdict, es *EpochStats) error {
	c.phase("put off")
	c.stats.putOff()
	c.record.metrics.PutOff()
	if c.topo.Rank == 0 {
		c.quiet.next, c.quiet.stop = es.Epoch+1, v.Stop
		if c.quiet.tries++; c.quiet.tries == 1 {
			c.log.Info("holdfast: messages are in flight; the checkpoint waits for Points where none are", "epoch",
				es.Epoch, "at_most", c.opt.Quiet)
		}
	}
	all := make(chan error, 1)
	all <- nil
	c.persist.Persist(persist.Captured{Epoch: es.Epoch, Err: persist.ErrPutOff, Final: v.Stop, All: all})
	c.record.events.Emit(events.Event{Name: events.PutOff, Epoch: uint64(es.Epoch)})
	c.record.events.Emit(events.Event{Name: events.Resume, Epoch: uint64(es.Epoch), Dur: int64(es.Blocked),
		Stop: v.Stop})
	return c.agent.Captured(c.life.ctx, v.Epoch)
}

// tryAgain asks for a checkpoint that was put off; at rank 0.
func (c *Checkpointer) tryAgain(e storage.Epoch) {
	_ = c.agent.PutOff(c.life.ctx, cut.Epoch(e), c.quiet.stop, pauseBefore(c.quiet.tries)) // closed: nothing follows
}

// used notes that a cut is used, and says it at rank 0 if it had to be although messages were in flight.
func (c *Checkpointer) used(es *EpochStats) {
	es.PutOff = c.stats.putOffs()
	if c.topo.Rank != 0 || es.PutOff == 0 {
		return
	}
	waited := es.cut.Sub(c.quiet.since).Round(time.Microsecond)
	c.quiet.next = 0
	if es.inFlight {
		c.log.Warn("holdfast: messages were in flight at every cut; only this number of ranks can restore the epoch",
			"epoch", es.Epoch, "cuts", es.PutOff+1, "waited", waited)
	} else {
		c.log.Info("holdfast: no message is in flight any more", "epoch", es.Epoch, "cuts", es.PutOff+1, "waited",
			waited)
	}
}

package coordinated

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/holdfast-hpc/holdfast/coordinated/events"
	"github.com/holdfast-hpc/holdfast/coordinated/internal/agent"
	"github.com/holdfast-hpc/holdfast/coordinated/internal/persist"
	"github.com/holdfast-hpc/holdfast/coordinated/internal/trigger"
	"github.com/holdfast-hpc/holdfast/internal/daly"
	"github.com/holdfast-hpc/holdfast/storage"
)

// defaultMTBF is the mean time between failures that is assumed for jobs whose settings come from the environment and
// do not say when to take checkpoints. A job that silently loses days of work is the worse mistake. With leastCost
// Daly's interval is 7 minutes: a failure costs half of that on average, and the checkpoints cost a program 0.24 % of
// its time. A checkpoint that takes a minute is taken once an hour, for 1.9 %.
const defaultMTBF = 24 * time.Hour

// leastCost is the least cost of a checkpoint if defaultMTBF counts: the bytes of a cheap one load the file system all
// the same.
const leastCost = time.Second

// timingSources names the settings from which FromEnv has Interval and MTBF, empty for none, and reports whether timed
// checkpoints are switched off.
type timingSources struct {
	interval, mtbf string
	off            bool
}

// noteTiming notes where the times come from. An interval that is switched off wins over mtbf.
func (o *Options) noteTiming(values []ConfigValue) {
	for _, v := range values {
		if v.Value == "" || v.Error != "" {
			continue
		}
		from := v.Source
		if from != v.Env && !strings.HasPrefix(from, "-") { // a file
			from = v.Key + " in " + from
		}
		switch v.Key {
		case "interval":
			o.timed.interval = from
		case "mtbf":
			o.timed.mtbf = from
		}
	}
	switch t := &o.timed; {
	case t.interval != "" && o.Interval == 0:
		o.MTBF, t.off = 0, true
	case t.interval == "" && t.mtbf != "" && o.MTBF == 0:
		t.interval, t.off = t.mtbf, true
	}
}

// timing is when checkpoints are taken by the clock.
type timing struct {
	interval, mtbf time.Duration // mtbf wins; 0: none
	least          time.Duration // least cost of a checkpoint
	byDefault      bool
	from           string // the setting
}

func (o *Options) timing() timing {
	switch {
	case o.MTBF > 0:
		return timing{mtbf: o.MTBF, from: cmp.Or(o.timed.mtbf, "Options.MTBF")}
	case o.Interval > 0:
		return timing{interval: o.Interval, from: cmp.Or(o.timed.interval, "Options.Interval")}
	case o.fromEnv && !o.timed.off:
		return timing{mtbf: defaultMTBF, least: leastCost, byDefault: true, from: "default"}
	case o.timed.off:
		return timing{from: o.timed.interval + " switches that off"}
	}
	return timing{from: "the program's Options have neither Interval nor MTBF"}
}

// Timing describes when checkpoints are taken by the clock, and the setting behind that. An empty text says that none
// are.
func (o *Options) Timing() string {
	t := o.timing()
	switch {
	case t.mtbf > 0:
		first := daly.Interval(max(trigger.FirstCost, t.least), t.mtbf)
		return fmt.Sprintf("the first after %s, then by its cost: Daly's interval for mtbf %s (%s)", timeText(first),
			timeText(t.mtbf), t.from)
	case t.interval > 0:
		return fmt.Sprintf("every %s (%s)", timeText(t.interval), t.from)
	}
	return ""
}

func (o *Options) whenTaken() string {
	if when := o.Timing(); when != "" {
		return "by the clock: " + when
	}
	when := "only when asked for"
	if o.DeadlineLead > 0 && (!o.Deadline.IsZero() || o.slurmJob() != "") {
		when += " and before the deadline"
	}
	return when + "; none by the clock: " + o.timing().from
}

// timeText writes a duration without zero parts: 10m, not 10m0s.
func timeText(d time.Duration) string {
	if d >= time.Minute {
		d = d.Round(time.Second)
	}
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = s[:len(s)-2]
	}
	if strings.HasSuffix(s, "h0m") {
		s = s[:len(s)-2]
	}
	return s
}

// At the end of the drain, which all ranks end alike, the ranks learn whether messages are in flight to any of them and
// whether rank 0 would rather have another cut. Then no rank captures, the program continues with its messages in the
// mailboxes, and the ranks vote on the epoch as on one that has failed: a rank whose drain ran out of time in the last
// exchange is in that vote as well. Rank 0 then asks for the next epoch.

// quiet is rank 0's state of a checkpoint that is put off. It belongs to the main thread, and from a cut that is put
// off to the request for the next one to the goroutine that votes.
type quiet struct {
	next   storage.Epoch // that the next try will have; 0: nothing is put off
	since  time.Time     // of the first cut that was put off
	tries  int           // cuts that were put off
	stop   bool          // the next one is to be a final one
	warned bool          // that Quiet has no effect
}

// prefersQuiet reports whether this rank would rather have another cut, if something is in flight. Only rank 0 ever
// would. In Close nothing moves any more, so that another cut would be like this one.
func (c *Checkpointer) prefersQuiet(es *EpochStats) bool {
	if c.topo.Rank != 0 || c.opt.Quiet == 0 || c.main.Closed.Load() {
		return false
	}
	if names := c.state.PerRank(); len(names) > 0 && !c.seam.QuietPerRank {
		if !c.quiet.warned {
			c.quiet.warned = true
			c.log.Warn("holdfast: quiet has no effect: "+are(names)+" protected per rank, so that only this number of "+
				"ranks can restore the epochs", "quiet", c.opt.Quiet)
		}
		return false
	}
	if c.quiet.next != es.Epoch { // the checkpoint that was put off was given up since, or there was none
		c.quiet.since, c.quiet.tries = es.cut, 0
	}
	p := trigger.Patience{Quiet: c.opt.Quiet, Waited: es.cut.Sub(c.quiet.since), Final: es.final,
		Timeout: c.opt.CutTimeout, Between: time.Since(c.opened) / time.Duration(max(c.main.Points.Load(), 1))}
	p.Left, p.Known = c.life.end.Left()
	if d := c.opt.Deadline; !d.IsZero() && (!p.Known || time.Until(d) < p.Left) {
		p.Left, p.Known = time.Until(d), true
	}
	return p.More()
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

// used notes that a cut is used, and logs at rank 0 if messages were in flight nevertheless.
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

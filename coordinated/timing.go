package coordinated

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/holdfast-hpc/holdfast/coordinated/internal/trigger"
	"github.com/holdfast-hpc/holdfast/internal/daly"
)

// defaultMTBF is the mean time between failures that is assumed for jobs whose settings come from the environment and
// say nothing of when to take checkpoints. A job that loses days of work without a word is the worse mistake. With
// leastCost Daly's interval is 7 minutes: a failure costs half of that on average, and the checkpoints cost a program
// 0.24 % of its time. One that takes a minute is taken once an hour, for 1.9 %.
const defaultMTBF = 24 * time.Hour

// leastCost is what a checkpoint is taken to cost at least where defaultMTBF counts: the bytes of a cheap one load the
// file system all the same.
const leastCost = time.Second

// origins is what FromEnv has found of Interval and MTBF: where each is from, empty for nowhere, and whether timed
// checkpoints are switched off.
type origins struct {
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
	least          time.Duration // what a checkpoint is taken to cost at least
	byDefault      bool
	from           string // what says so
}

// timing returns what is in force.
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

// Timing says for people when checkpoints are taken by the clock, and what says so. An empty text says that none are.
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

// whenTaken says when checkpoints are taken.
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

// timeText writes a duration without what is zero: 10m, not 10m0s.
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

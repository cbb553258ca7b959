// Package model says what share of its time a job spends on its own work, by
// the number of nodes: Daly's model of checkpoints and failures.
package model

import (
	"fmt"
	"math"
	"path/filepath"
	"time"

	"github.com/holdfast-hpc/holdfast/internal/bench"
	"github.com/holdfast-hpc/holdfast/internal/bench/plot"
	"github.com/holdfast-hpc/holdfast/internal/daly"
)

// Options are the assumptions. Rates are in bytes a second.
type Options struct {
	NodeMTBF time.Duration // mean time between failures of one node
	State    float64       // bytes of a node
	Disk     float64       // rate of a node's disk
	Shared   float64       // rate of the parallel file system for all nodes together
	Link     float64       // rate at which one node reaches it
	Blocked  time.Duration // that a program waits for a checkpoint of Holdfast
	Start    time.Duration // of the job: until its ranks run again
	Nodes    []int
}

// A way is a way to take checkpoints on so many nodes.
type way struct {
	Name string
	// cost is what the program waits for one, latency how much later it is durable,
	// and read what a restart takes to get it back; in seconds.
	cost, latency, read func(o *Options, nodes int) float64
}

// ways are the ways to take checkpoints that are compared.
var ways = []way{
	{"Holdfast, disk and partner behind the program",
		func(o *Options, _ int) float64 { return o.Blocked.Seconds() },
		func(o *Options, _ int) float64 { return 2 * o.State / o.Disk }, // own shard and the partner's copy
		func(o *Options, _ int) float64 { return o.State / o.Disk }},
	{"program waits for disk and partner",
		func(o *Options, _ int) float64 { return 2 * o.State / o.Disk }, none,
		func(o *Options, _ int) float64 { return o.State / o.Disk }},
	{"program waits for the parallel file system", sharedTime, none, sharedTime},
}

func none(*Options, int) float64 { return 0 }

// sharedTime is how long all nodes take to write or read their state together.
func sharedTime(o *Options, nodes int) float64 {
	return o.State / math.Min(o.Link, o.Shared/float64(nodes))
}

// efficiency returns the share of the run time that is the program's own work, at
// Daly's interval: checkpoints that block for cost, failures that come at random
// with mean time mtbf between them, each of which loses what was done since the
// newest durable checkpoint, and takes restart. All in seconds:
//
//	τ / (M e^((R+L)/M) (e^((τ+δ)/M) − 1))
//
// with τ the interval, δ the cost, M the time between failures, R the restart (J. T.
// Daly, Future Generation Computer Systems 22 (2006) 303, equation 20). L is by how
// much a checkpoint is durable later than it was taken; that it is lost in every
// failure is an upper bound, and the interval is L at least: the next checkpoint
// waits for it. Zero when the job makes no progress worth speaking of.
func efficiency(cost, latency, restart, mtbf float64) float64 {
	tau := math.Max(interval(cost, mtbf), latency)
	e := tau / (mtbf * math.Exp((restart+latency)/mtbf) * math.Expm1((tau+cost)/mtbf))
	if math.IsNaN(e) || e < 1e-3 {
		return 0
	}
	return e
}

// interval is Daly's, in seconds.
func interval(cost, mtbf float64) float64 {
	seconds := func(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
	return daly.Interval(seconds(cost), seconds(mtbf)).Seconds()
}

func (w way) efficiency(o *Options, nodes int) float64 {
	m := o.NodeMTBF.Seconds() / float64(nodes)
	return efficiency(w.cost(o, nodes), w.latency(o, nodes), w.read(o, nodes)+o.Start.Seconds(), m)
}

// Run computes the shares of all ways but the last, beside the last.
func Run(r *bench.Runner, o *Options) {
	r.Start("model", 0)
	base := ways[len(ways)-1]
	for _, n := range o.Nodes {
		m := o.NodeMTBF.Seconds() / float64(n)
		for _, w := range ways[:len(ways)-1] {
			every := math.Max(interval(w.cost(o, n), m), w.latency(o, n))
			r.Add(bench.Row{Case: fmt.Sprintf("%d node(s), MTBF %s", n, timeText(m)),
				Metric: fmt.Sprintf("%s, every %s", w.Name, timeText(every)), Unit: "of the time"}.
				Of(bench.Samples{w.efficiency(o, n)}, bench.Samples{base.efficiency(o, n)}, nil))
		}
	}
}

// timeText writes seconds in the largest unit of which there are two at least.
func timeText(s float64) string {
	for _, u := range []struct {
		name string
		s    float64
	}{{"years", 365.25 * 86400}, {"days", 86400}, {"h", 3600}, {"min", 60}} {
		if s >= 2*u.s {
			return fmt.Sprintf("%.1f %s", s/u.s, u.name)
		}
	}
	return fmt.Sprintf("%.0f s", s)
}

// curves are the efficiencies by number of nodes.
func (o *Options) curves() []plot.Curve {
	var out []plot.Curve
	most := o.Nodes[len(o.Nodes)-1]
	for _, w := range ways {
		c := plot.Curve{Name: w.Name}
		for x := 1.0; x <= float64(most)*1.001; x *= math.Pow(10, 0.125) {
			n := int(math.Round(x))
			c.X, c.Y = append(c.X, float64(n)), append(c.Y, w.efficiency(o, n))
		}
		out = append(out, c)
	}
	return out
}

// Draw draws the curves in a directory and returns the files.
func (o *Options) Draw(dir string) ([]string, error) {
	p, err := plot.Curves("Share of the time that is the program's own work", "nodes", "", o.curves())
	if err != nil {
		return nil, err
	}
	plot.LogX(p)
	p.Legend.Top, p.Legend.Left = false, true
	p.Y.Min, p.Y.Max = 0, 1
	return plot.Save(p, filepath.Join(dir, "model-efficiency"))
}

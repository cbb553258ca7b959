package coordinated

import "github.com/holdfast-hpc/holdfast/coordinated/internal/metrics"

// openMetrics starts the metrics of this node, on its first rank. Without them
// the job runs as well.
func (c *Checkpointer) openMetrics() {
	rank := c.world.Rank()
	if (c.opt.MetricsDir == "" && c.opt.MetricsListen == "") || c.topo.nodeOf(rank)[0] != rank {
		return
	}
	m, err := metrics.Open(metrics.Options{Job: c.opt.Job, Node: c.topo.nodes[rank], Rank: rank, Size: c.world.Size(),
		Dir: c.opt.MetricsDir, Listen: c.opt.MetricsListen, Now: c.lookMetrics, Logger: c.log})
	if err != nil {
		c.log.Warn("holdfast: metrics", "error", err)
	}
	c.metrics = m
}

// lookMetrics is what a scrape looks at.
func (c *Checkpointer) lookMetrics() metrics.Now {
	now := metrics.Now{Points: c.points.load()}
	last := c.levels[len(c.levels)-1]
	for _, es := range c.Stats().Epochs {
		_, there := es.Durable[last]
		if _, skipped := es.Skipped[last]; !there && !skipped && es.Err == nil {
			now.BacklogEpochs++
		}
	}
	for _, w := range c.working() {
		now.BacklogBytes += max(0, w.Total-w.Bytes)
	}
	return now
}

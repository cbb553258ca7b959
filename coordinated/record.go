package coordinated

import (
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/holdfast-hpc/holdfast/coordinated/events"
	"github.com/holdfast-hpc/holdfast/coordinated/internal/agent"
	"github.com/holdfast-hpc/holdfast/coordinated/internal/connect"
	"github.com/holdfast-hpc/holdfast/coordinated/internal/metrics"
	"github.com/holdfast-hpc/holdfast/internal/vfs"
	"github.com/holdfast-hpc/holdfast/storage"
)

// record is what stays of a run for people.
type record struct {
	events  *events.Log  // nil: none
	metrics *metrics.Set // nil: none
}

// eventsOff is the value of Options.Events that switches the log off.
const eventsOff = "off"

// eventsDir is where the event logs of all runs lie; "" if there are none.
func (o *Options) eventsDir() string {
	switch o.Events {
	case eventsOff:
		return ""
	case "", "on":
		return filepath.Join(o.contactDir(), events.DirName)
	}
	return o.Events
}

// lastRun is the number of the newest run in the event logs that this rank
// sees.
func (c *Checkpointer) lastRun() uint64 {
	dir := c.opt.eventsDir()
	if dir == "" {
		return 0
	}
	runs, err := events.Runs(vfs.With(context.Background(), c.opt.files), dir)
	if err != nil {
		c.log.Warn("holdfast: cannot list the event logs of earlier runs", "error", err)
	}
	if len(runs) == 0 {
		return 0
	}
	return uint64(runs[len(runs)-1])
}

// openLog starts the event log of this run. Without one the job runs as well.
func (c *Checkpointer) openLog(run int) {
	dir := c.opt.eventsDir()
	if dir == "" {
		return
	}
	rank := c.topo.Rank
	ctx := vfs.With(context.Background(), c.opt.files)
	l, err := events.Create(ctx, events.Options{Dir: dir, Rank: rank, Begun: c.begun, Logger: c.log,
		Header: events.Header{Job: c.opt.Job, Run: run, Size: c.topo.Size(), Node: c.topo.Nodes[rank],
			PID:     os.Getpid(),
			AliveNS: int64(agent.AliveEvery), Levels: c.levels.use, Program: filepath.Base(os.Args[0])}})
	if err != nil {
		c.log.Warn("holdfast: this run has no event log", "error", err)
		return
	}
	c.record.events = l
	if err := events.Prune(ctx, dir, run, rank); err != nil {
		c.log.Warn("holdfast: cannot remove event logs of old runs", "error", err)
	}
}

// agreeNumbers finds the highest epoch and run that any rank knows of, so that
// no number is used twice. Its begin and end on all ranks are what the report
// compares their clocks by.
func (c *Checkpointer) agreeNumbers(priv connect.Ranks, epoch, run uint64) (uint64, uint64, error) {
	start := time.Now()
	mine := binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil, epoch), run)
	all := make([]byte, len(mine)*priv.Size())
	if err := priv.Allgather(all, mine); err != nil {
		return 0, 0, fmt.Errorf("coordinated: agree on the newest epoch: %w", err)
	}
	end := time.Now()
	for ; len(all) > 0; all = all[16:] {
		epoch = max(epoch, binary.LittleEndian.Uint64(all))
		run = max(run, binary.LittleEndian.Uint64(all[8:]))
	}
	c.openLog(int(run) + 1)
	c.record.events.EmitAt(end, events.Event{Name: events.Sync, What: "open", Dur: int64(end.Sub(start))})
	return epoch, run, nil
}

// failure logs an error.
func (c *Checkpointer) failure(what string, e storage.Epoch, err error) {
	c.record.events.Emit(events.Event{Name: events.Failure, Epoch: uint64(e), What: what, Text: err.Error()})
}

// lastWords brings the log to the file before the process leaves.
func (c *Checkpointer) lastWords() {
	ctx, cancel := context.WithTimeout(context.Background(), 500*time.Millisecond)
	defer cancel()
	c.record.events.Flush(ctx)
}

// openMetrics starts the metrics of this node, on its first rank. Without them
// the job runs as well.
func (c *Checkpointer) openMetrics() {
	if (c.opt.MetricsDir == "" && c.opt.MetricsListen == "") || !c.topo.First() {
		return
	}
	m, err := metrics.Open(metrics.Options{Job: c.opt.Job, Node: c.topo.Node(), Rank: c.topo.Rank, Size: c.topo.Size(),
		Dir: c.opt.MetricsDir, Listen: c.opt.MetricsListen, Now: c.lookMetrics, Logger: c.log})
	if err != nil {
		c.log.Warn("holdfast: metrics", "error", err)
	}
	c.record.metrics = m
}

// lookMetrics is what a scrape looks at.
func (c *Checkpointer) lookMetrics() metrics.Now {
	now := metrics.Now{Points: c.main.Points.Load()}
	last := c.levels.use[len(c.levels.use)-1]
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

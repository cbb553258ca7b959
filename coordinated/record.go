package coordinated

import (
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/holdfast-hpc/holdfast/coordinated/control"
	"github.com/holdfast-hpc/holdfast/coordinated/events"
	"github.com/holdfast-hpc/holdfast/coordinated/internal/agent"
	"github.com/holdfast-hpc/holdfast/coordinated/internal/connect"
	"github.com/holdfast-hpc/holdfast/coordinated/internal/metrics"
	"github.com/holdfast-hpc/holdfast/gpustate"
	"github.com/holdfast-hpc/holdfast/internal/codec"
	"github.com/holdfast-hpc/holdfast/internal/vfs"
	"github.com/holdfast-hpc/holdfast/storage"
)

// record has the logs and metrics of a run.
type record struct {
	events  *events.Log  // may be nil
	metrics *metrics.Set // may be nil
}

// eventsOff is the value of Options.Events that switches the log off.
const eventsOff = "off"

// eventsDir returns the directory of the event logs of all runs; may be empty.
func (o *Options) eventsDir() string {
	if o.Events == eventsOff {
		return ""
	}
	return filepath.Join(o.contactDir(), events.DirName)
}

// lastRun returns the number of the newest run in the event logs that this rank sees. If the ranks of a node share a
// log, the first of them looks.
func (c *Checkpointer) lastRun(key control.Key) uint64 {
	dir := c.opt.eventsDir()
	if n := c.logNode(key); dir == "" || n != nil && n.First != c.topo.Rank {
		return 0
	}
	runs, err := events.Runs(vfs.With(context.Background(), c.files), dir)
	if err != nil {
		c.log.Warn("holdfast: cannot list the event logs of earlier runs", "error", err)
	}
	if len(runs) == 0 {
		return 0
	}
	return uint64(runs[len(runs)-1])
}

// logNode has the ranks of a node share an event log where its directory may be on a file
// system of all nodes: there are fewer files then. Nil: this rank has its own.
func (c *Checkpointer) logNode(key control.Key) *events.Node {
	mates := c.topo.Mates()
	if _, real := c.plane.(*control.Plane); !real || len(mates) == 1 ||
		c.opt.eventsDir() == filepath.Join(c.opt.Local, events.DirName) {
		return nil
	}
	return &events.Node{First: mates[0], Ranks: len(mates), Secret: digest("events", key)}
}

// openLog starts the event log of this run. Without one the job runs as well.
func (c *Checkpointer) openLog(run int, key control.Key) {
	dir := c.opt.eventsDir()
	if dir == "" {
		return
	}
	rank, node := c.topo.Rank, c.logNode(key)
	ctx := vfs.With(context.Background(), c.files)
	l, err := events.Create(ctx, events.Options{Dir: dir, Rank: rank, Begun: c.opened, Logger: c.log, Node: node,
		Header: events.Header{Job: c.opt.Job, Run: run, Size: c.topo.Size(), Node: c.topo.Nodes[rank],
			PID:     os.Getpid(),
			AliveNS: int64(agent.AliveEvery), Levels: c.levels.use,
			Program: cmp.Or(c.opt.program, filepath.Base(os.Args[0]))}})
	if err != nil {
		c.log.Warn("holdfast: this run has no event log", "error", err)
		return
	}
	c.record.events = l
	old := []int{rank}
	switch {
	case node == nil:
	case node.First == rank:
		old = c.topo.Mates()
	default:
		return
	}
	if err := events.Prune(ctx, dir, run, old...); err != nil {
		c.log.Warn("holdfast: cannot remove event logs of old runs", "error", err)
	}
}

// agreeNumbers finds the highest epoch and run that any rank knows, so that no number is used twice. The report
// compares the ranks' clocks by its begin and end.
func (c *Checkpointer) agreeNumbers(priv connect.Ranks, key control.Key, epoch, run uint64) (uint64, uint64, error) {
	start := time.Now()
	mine := binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil, epoch), run)
	all := make([]byte, len(mine)*priv.Size())
	if err := priv.Allgather(all, mine); err != nil {
		return 0, 0, fmt.Errorf("agree on the newest epoch: %w", err)
	}
	end := time.Now()
	for r := (codec.Reader{B: all}); len(r.B) > 0; {
		epoch, run = max(epoch, r.Fixed(8)), max(run, r.Fixed(8))
	}
	c.openLog(int(run)+1, key)
	c.record.events.EmitAt(end, events.Event{Name: events.Sync, What: "open", Dur: int64(end.Sub(start))})
	return epoch, run, nil
}

func (c *Checkpointer) failure(what string, e storage.Epoch, err error) {
	c.record.events.Emit(events.Event{Name: events.Failure, Epoch: uint64(e), What: what, Text: err.Error()})
}

// flushLog writes the log to the file before the process leaves.
func (c *Checkpointer) flushLog() {
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

// FromSource is a device program that was built from source, because the device did
// not load its binary.
type FromSource struct {
	Device string // the name that the device is protected under
	gpustate.SourceBuild
}

// fromSource lists such programs of all protected devices, and logs those that were not
// logged before. It runs on the main thread.
func (c *Checkpointer) fromSource() (list []FromSource) {
	for _, d := range c.state.Devices() {
		for _, s := range d.BuiltFromSource() {
			list = append(list, FromSource{d.Name, s})
			c.logFromSource(list[len(list)-1])
		}
	}
	return list
}

func (c *Checkpointer) logFromSource(f FromSource) {
	key := f.Device + "\x00" + f.Program + "\x00" + f.Why
	if c.main.loggedSources[key] {
		return
	}
	c.main.loggedSources[key] = true
	kernels := strings.Join(f.Kernels, ",")
	c.log.Warn("holdfast: a device program was built from source, because its binary did not load",
		"device", f.Device, "program", f.Program, "kernels", kernels, "why", f.Why)
	c.record.events.Emit(events.Event{Name: events.Source, What: f.Device + "/" + f.Program, Text: "kernels " +
		kernels + ": " + f.Why})
}

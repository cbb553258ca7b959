// Package metrics counts the cost of a job's checkpoints for Prometheus: as text over HTTP, and as a file for the
// textfile collector of node_exporter. Users rely on the names; docs/MONITORING.md lists them.
//
// A nil Set counts nothing.
package metrics

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Options name the job and the outputs.
type Options struct {
	Job, Node  string
	Rank, Size int
	// Dir is the directory of a file that has the current metrics; empty means none.
	Dir string
	// Listen is the address at which /metrics is served; without a host it is the loopback one. Empty means none.
	Listen string
	// Now is read at every look.
	Now    func() Now
	Logger *slog.Logger
}

// Now has values that are read when they are wanted, not counted.
type Now struct {
	Points        uint64
	BacklogEpochs int   // cut, and not at the last level yet
	BacklogBytes  int64 // still to be copied by this rank, about
}

// fileEvery is how often the file is written when nothing happens: Prometheus
// scrapes about as often.
const fileEvery = 15 * time.Second

// Set is the metrics of one rank.
type Set struct {
	opt     Options
	own     []string // labels of all metrics
	mu      sync.Mutex
	metrics []*metric // by name

	captured, failed, givenUp, capturedBytes, putOff      *metric // counters
	committed, storedBytes, seconds, skipped              *metric // counters by level, step and why
	blocked, durable                                      *metric // histograms
	lastEpoch, lastTime, restoreBytes                     *metric // gauges by level
	restoredEpoch, restoreSeconds                         *metric // gauges
	points, backlogEpochs, backlogBytes, ranks, startTime *metric // gauges

	file string
	addr net.Addr // at which they are served, or nil
	wake chan struct{}
	stop context.CancelFunc
	wg   sync.WaitGroup
}

// Open starts to write and to serve. An impossible part is an error, and the rest goes on: the Set is never nil. The
// caller closes it.
func Open(opt Options) (*Set, error) {
	ctx, stop := context.WithCancel(context.Background())
	s := &Set{opt: opt, wake: make(chan struct{}, 1), stop: stop, own: []string{label("job_name", opt.Job),
		label("node", opt.Node), label("rank", strconv.Itoa(opt.Rank))}}
	s.register()
	var errs []error
	if opt.Listen != "" {
		errs = append(errs, s.serve(ctx))
	}
	if opt.Dir != "" {
		s.file = filepath.Join(opt.Dir, fileName(opt.Job, opt.Node))
		if err := s.write(); err != nil {
			errs = append(errs, err)
			s.file = ""
		} else {
			s.wg.Go(func() { s.refresh(ctx) })
		}
	}
	return s, errors.Join(errs...)
}

var odd = regexp.MustCompile(`[^A-Za-z0-9._-]+`)

// fileName returns one that the collector reads: they end in .prom.
func fileName(job, node string) string {
	return "holdfast-" + odd.ReplaceAllString(job, "_") + "-" + odd.ReplaceAllString(node, "_") + ".prom"
}

func (s *Set) register() {
	const counter, gauge, histogram = "counter", "gauge", "histogram"
	s.captured = s.metric(counter, "epochs_captured_total", "Checkpoints captured on this rank.")
	s.failed = s.metric(counter, "epochs_failed_total", "Checkpoints captured that did not reach all levels.")
	s.givenUp = s.metric(counter, "epochs_given_up_total",
		"Checkpoints given up because ranks did not reach a Point in time.")
	s.putOff = s.metric(counter, "cuts_put_off_total",
		"Cuts that were not used because messages were in flight (quiet).")
	s.capturedBytes = s.metric(counter, "captured_bytes_total", "Bytes of state captured on this rank.")
	s.committed = s.metric(counter, "epochs_committed_total", "Checkpoints committed at a level.", "level")
	s.skipped = s.metric(counter, "epochs_skipped_total", "Checkpoints that did not go to a level: not due, or late "+
		"because a newer one went in their place.", "level", "why")
	s.storedBytes = s.metric(counter, "stored_bytes_total", "Bytes that this rank has written to a level.", "level")
	s.seconds = s.metric(counter, "step_seconds_total", "Time this rank spent in each step of its checkpoints; the "+
		"program stands still in park, drain and capture.", "step")
	s.blocked = s.metric(histogram, "blocked_seconds", "Time a checkpoint blocked the program on this rank.")
	s.durable = s.metric(histogram, "durable_seconds", "Time from the cut to the commit at a level.", "level")
	s.lastEpoch = s.metric(gauge, "last_epoch", "Number of the newest checkpoint committed at a level.", "level")
	s.lastTime = s.metric(gauge, "last_commit_timestamp_seconds", "Time of the newest commit at a level.", "level")
	s.restoredEpoch = s.metric(gauge, "restored_epoch",
		"Number of the checkpoint that this run restored; 0 on a first start.")
	s.restoreSeconds = s.metric(gauge, "restore_seconds", "Duration of the restore on this rank.")
	s.restoreBytes = s.metric(gauge, "restore_bytes", "Bytes that this rank restored, by the level that it read them "+
		"from; memory is what an earlier start left in the node daemon.", "level")
	s.points = s.metric(gauge, "points", "Points passed by the program in this run.")
	s.backlogEpochs = s.metric(gauge, "flush_backlog_epochs", "Checkpoints not yet at the last level.")
	s.backlogBytes = s.metric(gauge, "flush_backlog_bytes", "Approximate bytes that this rank still has to flush.")
	s.ranks = s.metric(gauge, "ranks", "Number of ranks of the job.")
	s.startTime = s.metric(gauge, "start_timestamp_seconds", "Time when this run opened its checkpoints.")
	s.ranks.put(float64(s.opt.Size))
	s.startTime.put(now())
	slices.SortFunc(s.metrics, func(a, b *metric) int { return strings.Compare(a.name, b.name) })
}

// now is in seconds since 1970.
func now() float64 { return float64(time.Now().UnixNano()) / 1e9 }

// Captured counts a checkpoint that was captured.
func (s *Set) Captured(bytes int64, park, drain, capture, blocked time.Duration) {
	if s == nil {
		return
	}
	s.captured.add(1)
	s.capturedBytes.add(float64(bytes))
	s.blocked.observe(blocked)
	s.seconds.add(park.Seconds(), "park")
	s.seconds.add(drain.Seconds(), "drain")
	s.seconds.add(capture.Seconds(), "capture")
	s.poke()
}

// Wrote counts the end of writing or copying to a level.
func (s *Set) Wrote(step, level string, stored int64, took time.Duration) {
	if s == nil {
		return
	}
	s.storedBytes.add(float64(max(stored, 0)), level)
	s.seconds.add(took.Seconds(), step)
}

// Committed counts a checkpoint that exists at a level.
func (s *Set) Committed(epoch uint64, level string, took time.Duration) {
	if s == nil {
		return
	}
	s.committed.add(1, level)
	s.durable.observe(took, level)
	s.lastEpoch.put(float64(epoch), level)
	s.lastTime.put(now(), level)
	s.poke()
}

// Skipped counts a checkpoint that does not go to a level: a newer one takes the place of
// one that is late, and else it was not due.
func (s *Set) Skipped(level string, late bool) {
	if s == nil {
		return
	}
	why := "not due"
	if late {
		why = "late"
	}
	s.skipped.add(1, level, why)
	s.poke()
}

// Failed counts a checkpoint that was captured and failed, GivenUp one that was
// not captured.
func (s *Set) Failed() {
	if s != nil {
		s.failed.add(1)
		s.poke()
	}
}

// GivenUp counts a checkpoint without a cut.
func (s *Set) GivenUp() {
	if s != nil {
		s.givenUp.add(1)
		s.poke()
	}
}

// PutOff counts a cut that is not used because messages are in flight.
func (s *Set) PutOff() {
	if s != nil {
		s.putOff.add(1)
		s.poke()
	}
}

// Restored notes the epoch from which this run continued.
func (s *Set) Restored(epoch uint64, level string, bytes int64, took time.Duration) {
	if s != nil {
		s.restoredEpoch.put(float64(epoch))
		s.restoreSeconds.put(took.Seconds())
		s.restoreBytes.put(float64(bytes), level)
	}
}

// poke has the file written soon.
func (s *Set) poke() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// refresh writes the file when something has changed, and at intervals.
func (s *Set) refresh(ctx context.Context) {
	tick := time.NewTicker(fileEvery)
	defer tick.Stop()
	failing := false
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.wake:
		case <-tick.C:
		}
		err := s.write()
		if err != nil && !failing {
			s.opt.Logger.Warn("holdfast: metrics", "error", err)
		}
		failing = err != nil
	}
}

// write replaces the file, whole.
func (s *Set) write() error {
	f, err := os.CreateTemp(filepath.Dir(s.file), filepath.Base(s.file)) // the collector reads only names in .prom
	if err != nil {
		return fmt.Errorf("metrics: %w", err)
	}
	_, err = f.Write(s.text())
	if err = errors.Join(err, f.Chmod(0o644), f.Close()); err == nil {
		err = os.Rename(f.Name(), s.file)
	}
	if err != nil {
		os.Remove(f.Name())
		return fmt.Errorf("metrics: %w", err)
	}
	return nil
}

// Close stops serving and removes the file: its figures would stand still while
// the job is gone. It may be called again.
func (s *Set) Close() error {
	if s == nil {
		return nil
	}
	s.stop()
	s.wg.Wait()
	if s.file == "" {
		return nil
	}
	if err := os.Remove(s.file); err != nil && !os.IsNotExist(err) {
		return fmt.Errorf("metrics: %w", err)
	}
	return nil
}

// Package metrics counts what the checkpoints of a job cost, for Prometheus: as
// text over HTTP, and as a file for the textfile collector of node_exporter. The
// names are part of what users rely on; docs/MONITORING.md lists them.
//
// A nil Set counts nothing.
package metrics

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Options say whose metrics they are and where they go.
type Options struct {
	Job, Node  string
	Rank, Size int
	// Dir is where a file with the metrics is kept up to date; empty means none.
	Dir string
	// Listen is the address at which /metrics is served; without a host it is the
	// loopback one. Empty means none.
	Listen string
	// Now is read at every look.
	Now    func() Now
	Logger *slog.Logger
}

// Now is what is looked at rather than counted.
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
	opt Options
	reg *prometheus.Registry

	captured, failed, givenUp, capturedBytes prometheus.Counter
	putOff                                   prometheus.Counter
	committed, storedBytes, seconds          *prometheus.CounterVec
	skipped                                  *prometheus.CounterVec
	blocked                                  prometheus.Histogram
	durable                                  *prometheus.HistogramVec
	lastEpoch, lastTime, restoreBytes        *prometheus.GaugeVec
	restoredEpoch, restoreSeconds            prometheus.Gauge

	file   string
	server *http.Server
	addr   net.Addr // where they are served; nil if they are not
	wake   chan struct{}
	stop   context.CancelFunc
	wg     sync.WaitGroup
}

// seconds from a millisecond to a quarter of an hour.
var secondsBuckets = []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 25, 60, 150, 400, 900}

// Open starts to write and to serve. What cannot be is an error, and the rest
// goes on: the Set is never nil. The caller closes it.
func Open(opt Options) (*Set, error) {
	ctx, stop := context.WithCancel(context.Background())
	s := &Set{opt: opt, reg: prometheus.NewRegistry(), wake: make(chan struct{}, 1), stop: stop}
	s.register()
	var errs []error
	if opt.Listen != "" {
		errs = append(errs, s.serve())
	}
	if opt.Dir != "" {
		s.file = filepath.Join(opt.Dir, fileName(opt.Job, opt.Node))
		if err := s.write(); err != nil {
			errs = append(errs, err)
			s.file = ""
		} else {
			s.wg.Go(func() { s.keep(ctx) })
		}
	}
	return s, errors.Join(errs...)
}

var odd = regexp.MustCompile(`[^A-Za-z0-9._-]+`)

// fileName is one that the collector reads: they end in .prom.
func fileName(job, node string) string {
	return "holdfast-" + odd.ReplaceAllString(job, "_") + "-" + odd.ReplaceAllString(node, "_") + ".prom"
}

func (s *Set) register() {
	own := prometheus.Labels{"job_name": s.opt.Job, "node": s.opt.Node, "rank": strconv.Itoa(s.opt.Rank)}
	auto := promauto.With(prometheus.WrapRegistererWith(own, prometheus.WrapRegistererWithPrefix("holdfast_", s.reg)))
	level := []string{"level"}
	counter := func(name, help string) prometheus.Counter {
		return auto.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	}
	counters := func(name, help, label string) *prometheus.CounterVec {
		return auto.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, []string{label})
	}
	gauges := func(name, help string) *prometheus.GaugeVec {
		return auto.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, level)
	}
	gauge := func(name, help string) prometheus.Gauge {
		return auto.NewGauge(prometheus.GaugeOpts{Name: name, Help: help})
	}
	look := func(name, help string, f func(Now) float64) {
		auto.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, func() float64 { return f(s.opt.Now()) })
	}
	s.captured = counter("epochs_captured_total", "Checkpoints captured on this rank.")
	s.failed = counter("epochs_failed_total", "Checkpoints captured that did not reach all levels.")
	s.givenUp = counter("epochs_given_up_total", "Checkpoints given up because ranks did not reach a Point in time.")
	s.putOff = counter("cuts_put_off_total", "Cuts that were not used because messages were in flight (quiet).")
	s.capturedBytes = counter("captured_bytes_total", "Bytes of state captured on this rank.")
	s.committed = counters("epochs_committed_total", "Checkpoints committed at a level.", "level")
	s.skipped = auto.NewCounterVec(prometheus.CounterOpts{Name: "epochs_skipped_total",
		Help: "Checkpoints that did not go to a level: not due, or late because a newer one went in their place."},
		[]string{"level", "why"})
	s.storedBytes = counters("stored_bytes_total", "Bytes that this rank has written to a level.", "level")
	s.seconds = counters("step_seconds_total", "Time this rank spent in each step of its checkpoints; the program "+
		"stands still in park, drain and capture.", "step")
	s.blocked = auto.NewHistogram(prometheus.HistogramOpts{Name: "blocked_seconds",
		Help: "Time a checkpoint blocked the program on this rank.", Buckets: secondsBuckets})
	s.durable = auto.NewHistogramVec(prometheus.HistogramOpts{Name: "durable_seconds",
		Help: "Time from the cut to the commit at a level.", Buckets: secondsBuckets}, level)
	s.lastEpoch = gauges("last_epoch", "Number of the newest checkpoint committed at a level.")
	s.lastTime = gauges("last_commit_timestamp_seconds", "Time of the newest commit at a level.")
	s.restoredEpoch = gauge("restored_epoch", "Number of the checkpoint that this run restored; 0 on a first start.")
	s.restoreSeconds = gauge("restore_seconds", "Duration of the restore on this rank.")
	s.restoreBytes = gauges("restore_bytes", "Bytes that this rank restored, by the level that it read them from; "+
		"memory is what an earlier start left in the node daemon.")
	look("points", "Points passed by the program in this run.", func(n Now) float64 { return float64(n.Points) })
	look("flush_backlog_epochs", "Checkpoints not yet at the last level.", func(n Now) float64 {
		return float64(n.BacklogEpochs)
	})
	look("flush_backlog_bytes", "Approximate bytes that this rank still has to flush.", func(n Now) float64 {
		return float64(n.BacklogBytes)
	})
	gauge("ranks", "Number of ranks of the job.").Set(float64(s.opt.Size))
	gauge("start_timestamp_seconds", "Time when this run opened its checkpoints.").SetToCurrentTime()
}

// Captured counts a checkpoint that was captured.
func (s *Set) Captured(bytes int64, park, drain, capture, blocked time.Duration) {
	if s == nil {
		return
	}
	s.captured.Inc()
	s.capturedBytes.Add(float64(bytes))
	s.blocked.Observe(blocked.Seconds())
	s.seconds.WithLabelValues("park").Add(park.Seconds())
	s.seconds.WithLabelValues("drain").Add(drain.Seconds())
	s.seconds.WithLabelValues("capture").Add(capture.Seconds())
	s.poke()
}

// Wrote counts the end of writing or copying to a level.
func (s *Set) Wrote(step, level string, stored int64, took time.Duration) {
	if s == nil {
		return
	}
	s.storedBytes.WithLabelValues(level).Add(float64(max(stored, 0)))
	s.seconds.WithLabelValues(step).Add(took.Seconds())
}

// Committed counts a checkpoint that exists at a level.
func (s *Set) Committed(epoch uint64, level string, took time.Duration) {
	if s == nil {
		return
	}
	s.committed.WithLabelValues(level).Inc()
	s.durable.WithLabelValues(level).Observe(took.Seconds())
	s.lastEpoch.WithLabelValues(level).Set(float64(epoch))
	s.lastTime.WithLabelValues(level).SetToCurrentTime()
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
	s.skipped.WithLabelValues(level, why).Inc()
	s.poke()
}

// Failed counts a checkpoint that was captured and failed, GivenUp one that was
// not captured.
func (s *Set) Failed() {
	if s != nil {
		s.failed.Inc()
		s.poke()
	}
}

// GivenUp counts a checkpoint without a cut.
func (s *Set) GivenUp() {
	if s != nil {
		s.givenUp.Inc()
		s.poke()
	}
}

// PutOff counts a cut that is not used because messages are in flight.
func (s *Set) PutOff() {
	if s != nil {
		s.putOff.Inc()
		s.poke()
	}
}

// Restored notes what this run continued from.
func (s *Set) Restored(epoch uint64, level string, bytes int64, took time.Duration) {
	if s != nil {
		s.restoredEpoch.Set(float64(epoch))
		s.restoreSeconds.Set(took.Seconds())
		s.restoreBytes.WithLabelValues(level).Set(float64(bytes))
	}
}

// poke has the file written soon.
func (s *Set) poke() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// keep writes the file when something has happened, and now and then.
func (s *Set) keep(ctx context.Context) {
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
	if err := prometheus.WriteToTextfile(s.file, s.reg); err != nil {
		return fmt.Errorf("metrics: %w", err)
	}
	return nil
}

// serve answers GET /metrics.
func (s *Set) serve() error {
	host, port, err := net.SplitHostPort(s.opt.Listen)
	if err != nil {
		return fmt.Errorf("metrics: address %q: %w; use PORT as in \":9469\", or HOST:PORT", s.opt.Listen, err)
	}
	if host == "" {
		host = "127.0.0.1"
	}
	l, err := net.Listen("tcp", net.JoinHostPort(host, port))
	if err != nil {
		return fmt.Errorf("metrics: %w", err)
	}
	s.addr = l.Addr()
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(s.reg, promhttp.HandlerOpts{MaxRequestsInFlight: 4,
		Timeout: 10 * time.Second}))
	s.server = &http.Server{Handler: mux, ReadTimeout: 10 * time.Second, WriteTimeout: 30 * time.Second,
		IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 16 << 10}
	s.wg.Go(func() {
		if err := s.server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			s.opt.Logger.Warn("holdfast: metrics", "error", err)
		}
	})
	return nil
}

// Close stops serving and removes the file: its figures would stand still while
// the job is gone. It may be called again.
func (s *Set) Close() error {
	if s == nil {
		return nil
	}
	s.stop()
	var errs []error
	if s.server != nil {
		errs = append(errs, s.server.Close())
	}
	s.wg.Wait()
	if s.file != "" {
		if err := os.Remove(s.file); err != nil && !os.IsNotExist(err) {
			errs = append(errs, fmt.Errorf("metrics: %w", err))
		}
	}
	return errors.Join(errs...)
}

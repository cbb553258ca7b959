package apps

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/holdfast-hpc/holdfast/bench"
	"github.com/holdfast-hpc/holdfast/internal/daly"
)

// checkpointsPerRun is about how many checkpoints a run with an interval takes.
const checkpointsPerRun = 4

// measured has the times of one application. Times are in seconds, one per run.
type measured struct {
	*suite
	app  app
	work float64

	until time.Time // when the rounds should be over; zero: after Options.Runs

	without, armed, checkpointed bench.Samples // the steps
	interval                     time.Duration // of checkpointed
	taken                        int           // checkpoints in a run of checkpointed
	blocked                      bench.Samples // one for each checkpoint
	durable                      map[string]bench.Samples
	bytes                        int64 // of rank 0 in a checkpoint
	restart                      bench.Samples
	parts                        []part        // of restart, in order
	opened                       bench.Samples // the time of opening the checkpointer before it
	raw                          bench.Set
}

// part is one part of a restart.
type part struct {
	name string
	took bench.Samples
}

// addPart notes the time of a part in one restart.
func (m *measured) addPart(name string, took float64) {
	i := slices.IndexFunc(m.parts, func(p part) bool { return p.name == name })
	if i < 0 {
		i = len(m.parts)
		m.parts = append(m.parts, part{name: name})
	}
	m.parts[i].took = append(m.parts[i].took, took)
}

// all runs the suite for one application.
func (m *measured) all(ctx context.Context) error {
	m.durable = map[string]bench.Samples{}
	steps := []func(context.Context) error{m.calibrate, m.rounds}
	if m.wants(caseCheckpoint) || m.wants(caseRestart) {
		steps = append(steps, m.baselines)
	}
	for _, step := range steps {
		if err := step(ctx); err != nil {
			return err
		}
		if err := ctx.Err(); err != nil {
			return err
		}
	}
	m.Add(m.rows()...)
	return nil
}

// calibrate finds the work that takes the time of Options.Seconds. Its first start also fills the
// caches of the compilers.
func (m *measured) calibrate(ctx context.Context) error {
	m.Step("%s: finding the work that takes %.1f s", m.app.name, m.o.Seconds)
	m.work = min(1, m.o.Seconds)
	for range 2 {
		t, _, err := m.run(ctx, m.app, start{work: m.work})
		if err != nil {
			return err
		}
		grow := m.o.Seconds / t.Loop
		m.work *= grow
		if grow < 1.5 {
			break
		}
	}
	return nil
}

// wants reports whether a case is to be measured.
func (m *measured) wants(name string) bool {
	return m.o.Cases == nil || slices.Contains(m.o.Cases, name)
}

// rounds measures all ways to run the program in turn, so that a disturbance affects all of them.
// It stops early when the time is over.
func (m *measured) rounds(ctx context.Context) error {
	for i := range m.Runs {
		m.Step("%s: round %d of %d", m.app.name, i+1, m.Runs)
		start := time.Now()
		for _, step := range m.round(i) {
			if err := step(ctx); err != nil {
				return err
			}
		}
		// The baselines take about a quarter of a round.
		if next := time.Since(start) * 5 / 4; !m.until.IsZero() && time.Now().Add(next).After(m.until) {
			m.Step("%s: out of time after round %d", m.app.name, i+1)
			break
		}
	}
	return nil
}

// round lists the runs of a round: the ways that are compared in one order and, the next time, in
// the other.
func (m *measured) round(i int) []func(context.Context) error {
	var steps []func(context.Context) error
	if m.wants(caseArmed) {
		steps = append(steps, m.loop(start{}, func(s float64) { m.without = append(m.without, s) }))
	}
	if m.wants(caseArmed) || m.wants(caseCheckpoint) {
		steps = append(steps, m.loop(start{directory: "armed", fresh: true},
			func(s float64) { m.armed = append(m.armed, s) }))
	}
	if i%2 == 1 {
		slices.Reverse(steps)
	}
	if m.wants(caseCheckpoint) || m.wants(caseRestart) && i == 0 {
		steps = append(steps, m.runCheckpoints)
	}
	if m.wants(caseRestart) {
		steps = append(steps, m.runRestart)
	}
	return steps
}

// loop runs the application and adds the seconds of its steps.
func (m *measured) loop(st start, add func(float64)) func(context.Context) error {
	st.work = m.work
	return func(ctx context.Context) error {
		t, _, err := m.run(ctx, m.app, st)
		if err == nil {
			add(t.Loop)
		}
		return err
	}
}

// runCheckpoints takes some checkpoints in a run. The first interval follows from the time of the
// steps so far; it is halved while a run ends before its first checkpoint.
func (m *measured) runCheckpoints(ctx context.Context) error {
	if m.interval == 0 {
		loop := m.o.Seconds
		if len(m.armed) > 0 {
			loop = slices.Min(append(slices.Clone(m.armed), m.without...))
		}
		m.interval = time.Duration(loop / (checkpointsPerRun + 0.5) * float64(time.Second))
	}
	for {
		t, _, err := m.run(ctx, m.app, start{work: m.work, directory: "taken", fresh: true, every: m.interval})
		if err != nil {
			return err
		}
		if len(t.Epochs) > 0 {
			return m.addCheckpoints(t)
		}
		if m.interval /= 2; m.interval < time.Millisecond {
			return fmt.Errorf("%s: no checkpoint in a run of %.2f s; use --seconds to make it longer", m.app.name,
				t.Loop)
		}
	}
}

func (m *measured) addCheckpoints(t *Times) error {
	for _, e := range t.Epochs {
		if e.Error != "" {
			return fmt.Errorf("%s: checkpoint failed: %s", m.app.name, e.Error)
		}
		m.blocked = append(m.blocked, e.Blocked)
		for level, d := range e.Durable {
			m.durable[level] = append(m.durable[level], d)
		}
		m.bytes = e.Bytes
	}
	m.checkpointed, m.taken = append(m.checkpointed, t.Loop), max(m.taken, len(t.Epochs))
	return nil
}

// runRestart continues from the newest checkpoint.
func (m *measured) runRestart(ctx context.Context) error {
	if err := m.warm("taken"); err != nil {
		return err
	}
	t, _, err := m.run(ctx, m.app, start{work: m.work, directory: "taken"})
	if err != nil {
		return err
	}
	if t.RestoredEpoch == 0 {
		return fmt.Errorf("%s: did not continue from its checkpoint", m.app.name)
	}
	m.restart = append(m.restart, t.Build+t.Restore)
	m.addPart("build the program", t.Build)
	for _, p := range t.Restoring {
		m.addPart(p.Part, p.Took)
	}
	m.opened = append(m.opened, t.Open)
	return nil
}

func (m *measured) baselines(ctx context.Context) (err error) {
	m.Step("%s: baselines", m.app.name)
	m.raw, err = m.rawBaselines(ctx, m.app, m.bytes)
	return err
}

// extra returns the seconds that a checkpoint adds to a run; at least the time that the program waits
// for it.
func (m *measured) extra() float64 {
	longer := slices.Min(m.checkpointed) - slices.Min(m.armed)
	return max(longer/float64(m.taken), m.blocked.Median())
}

// daly returns the interval for the given mean time between failures.
func (m *measured) daly() time.Duration {
	return daly.Interval(time.Duration(m.blocked.Median()*float64(time.Second)), m.o.MTBF)
}

// rows returns the results.
func (m *measured) rows() []bench.Row {
	var out []bench.Row
	if m.wants(caseArmed) {
		out = append(out, m.row("steps, no library").Of(m.without, nil, nil), m.armedRow())
	}
	if m.wants(caseCheckpoint) {
		out = append(out, m.checkpointRows()...)
	}
	if m.wants(caseRestart) {
		out = append(out, m.restartRows()...)
	}
	return out
}

func (m *measured) row(format string, args ...any) bench.Row {
	return bench.Row{Case: m.caseName(), Metric: fmt.Sprintf(format, args...), Unit: "s"}
}

func (m *measured) checkpointRows() []bench.Row {
	out := []bench.Row{
		m.row("a checkpoint every %s / armed", short(m.interval)).Fastest(m.checkpointed, m.armed, nil),
		m.row("one checkpoint, %s a rank: program waits / raw write+fsync", size(m.bytes)).
			Of(m.blocked, m.raw[rawWrite], nil),
	}
	for _, level := range slices.Sorted(maps.Keys(m.durable)) {
		out = append(out, m.row("one checkpoint: durable %s / raw write+fsync", level).
			Of(m.durable[level], m.raw[rawWrite], nil))
	}
	daly, mtbf := m.daly().Seconds(), short(m.o.MTBF)
	out = append(out, m.row("Daly interval at MTBF %s, from a checkpoint's cost / armed", mtbf).
		Of(bench.Samples{daly + m.extra()}, bench.Samples{daly}, goalDaly))
	return out
}

// armedRow compares pairs of runs, one with the library and one without, each right after the
// other. The goal is met, or missed, if the whole confidence interval of the median of the ratios
// says so.
func (m *measured) armedRow() bench.Row {
	p := pairs(m.armed, m.without)
	how := "from"
	if p.sure {
		how = "95 % sure"
	}
	r := m.row("library armed / no library, %d pair(s): %s %.4f to %.4f, fastest %.4f",
		len(m.armed), how, p.low, p.high, slices.Min(m.armed)/slices.Min(m.without)).Of(m.armed, m.without, goalArmed)
	r.Ratio, r.Met = &p.ratio, nil
	if above := p.low > float64(goalArmed); p.sure && (above || p.high <= float64(goalArmed)) {
		met := !above
		r.Met = &met
	}
	return r
}

// restartRows compare a restart with the least that every restart needs, and list the parts of both.
func (m *measured) restartRows() []bench.Row {
	raw := []part{{"read", m.raw[rawRead]}, {"upload", m.raw[rawUpload]}, {"build", m.raw[rawBuild]}}
	sum := 0.0
	for _, p := range raw {
		sum += p.took.Median()
	}
	out := []bench.Row{m.row("restart: build+restore / raw read+upload+build").Of(m.restart, bench.Samples{sum},
		goalRestart)}
	add := func(what string, parts ...part) {
		for _, p := range parts {
			r := m.row("restart: %s, %s", what, p.name)
			r.Unit = "ms"
			out = append(out, r.Of(p.took.Times(1000), nil, nil))
		}
	}
	add("of that", m.parts...)
	add("before that", part{"open the checkpointer", m.opened})
	add("of the baseline", raw...)
	return out
}

func (m *measured) caseName() string {
	with := "without MPI"
	if m.launcher != nil {
		with = m.launcher.Title
	}
	if m.o.Ranks == 1 {
		return fmt.Sprintf("%s, 1 rank, %s", m.app.name, with)
	}
	return fmt.Sprintf("%s, %d ranks, %s", m.app.name, m.o.Ranks, with)
}

// short returns a duration with about two digits.
func short(d time.Duration) string {
	switch {
	case d >= 10*time.Hour:
		return fmt.Sprintf("%.0f h", d.Hours())
	case d >= 10*time.Minute:
		return fmt.Sprintf("%.0f min", d.Minutes())
	case d >= 10*time.Second:
		return fmt.Sprintf("%.0f s", d.Seconds())
	}
	return fmt.Sprintf("%.2g s", d.Seconds())
}

func size(n int64) string {
	if n >= 10e6 {
		return fmt.Sprintf("%.0f MB", float64(n)/1e6)
	}
	return fmt.Sprintf("%.2g MB", float64(n)/1e6)
}

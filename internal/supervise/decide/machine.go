package decide

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/holdfast-hpc/holdfast/slurm"
)

type phase uint8

const (
	between  phase = iota // no start goes on, and the next step is under way
	running               // a start goes on
	ending                // it is being ended
	judging               // it has ended, and its nodes are being examined
	pausing               // before the next start
	awaiting              // nodes that may have the missing data
	over
)

// Machine decides for one run. It is not safe for concurrent use.
type Machine struct {
	cfg   Config
	now   time.Time
	out   []Action
	phase phase

	shown     []func(slurm.JobInfo, error) // the next step after the answers to AskJob
	then      func(Event)                  // the next step after the answer to Requeue or Salvage
	due       time.Time                    // of the timer; zero = none
	timed     func()                       // what follows it
	postponed []os.Signal                  // signals that came between two starts: for the next one

	nodes nodes
	limit limit
	past  past
	mem   Memory
	try   *try // the newest start
}

// New returns a machine that has seen nothing yet.
func New(cfg Config) *Machine {
	if cfg.Job != nil && cfg.Job.Restarts == 0 {
		cfg.Memory.Took = false // it was another run of this allocation
	}
	return &Machine{cfg: cfg, mem: cfg.Memory, nodes: nodes{dead: map[string]string{}, unfit: map[string]string{}},
		past: past{deaths: map[uint64]int{}, at: map[string]uint64{}}}
}

// Step takes an event and returns the actions, in order.
func (m *Machine) Step(now time.Time, ev Event) []Action {
	m.now, m.out = now, nil
	if m.phase == over {
		return nil
	}
	switch ev := ev.(type) {
	case Begin:
		m.beginLimit()
		m.next()
	case Tick:
		if !m.due.IsZero() && !m.now.Before(m.due) {
			m.due = time.Time{}
			m.timed()
		}
	case Signalled:
		m.signal(ev.Signal)
	case Examined:
		m.examined(ev.Faults)
	case JobShown:
		follow := m.shown[0]
		m.shown = m.shown[1:]
		follow(ev.Info, ev.Err)
	case Requeued, Salvaged:
		m.then(ev)
	case Started:
		m.started(ev)
	case Exited:
		m.exited(ev.Code)
	case Asked:
		m.asked(ev.OK)
	default:
		if m.phase == running {
			m.try.hear(m, ev)
		}
	}
	if m.phase == running && len(m.shown) == 0 {
		m.watch()
	}
	return m.out
}

func (m *Machine) do(a Action) { m.out = append(m.out, a) }

func (m *Machine) say(format string, args ...any) { m.do(Say{fmt.Sprintf(format, args...)}) }

func (m *Machine) askJob(within time.Duration, follow func(slurm.JobInfo, error)) {
	m.shown = append(m.shown, follow)
	m.do(AskJob{within})
}

func (m *Machine) after(d time.Duration, f func()) {
	m.due, m.timed = m.now.Add(d), f
	m.do(Timer{m.due})
}

func (m *Machine) exit(code int) {
	m.phase = over
	m.do(Exit{Code: code})
}

func (m *Machine) remember() {
	if m.cfg.Global && m.cfg.Job != nil {
		m.do(Remember{m.mem})
	}
}

// next is the next start, if the job is still this one.
func (m *Machine) next() {
	m.phase = between
	// If the first start comes so late, this node may have been frozen, and the job put back into the queue from
	// another one meanwhile.
	late := m.cfg.Watched && m.now.Sub(m.cfg.Began) > Silence
	if m.past.starts == 0 && !late {
		m.launch()
		return
	}
	m.ours(requeuePause, m.launch, func() { m.exit(ExitStopped) })
}

// Silence is how long this command may stand still before another node takes it for dead.
const Silence = 5 * time.Second

func (m *Machine) launch() {
	nodes, ranks, err := m.choose()
	if err != nil {
		m.say("giving up: %v", err)
		m.leave(ExitBad)
		return
	}
	m.past.starts++
	m.nodes.used = nodes
	m.try = &try{nodes: nodes, clock: clock{startedAt: m.now}}
	m.due = time.Time{}
	out := slices.DeleteFunc(slices.Clone(m.cfg.Nodes), m.nodes.usable)
	var skip []uint64
	for e, n := range m.past.deaths {
		if n >= mostDeaths {
			skip = append(skip, e)
		}
	}
	m.do(Start{Number: m.past.starts, Nodes: nodes, Out: out, Ranks: ranks, Fresh: m.past.fresh, Skip: skip,
		NodeLost: m.past.death.node, Continues: m.mem.Took && !m.past.fresh})
}

func (m *Machine) started(ev Started) {
	switch {
	case ev.Err != nil && m.past.starts == 1:
		m.phase = over
		m.do(Exit{Err: ev.Err})
		return
	case ev.Err != nil:
		m.say("giving up: %v", ev.Err)
		m.leave(ExitBad)
		return
	}
	m.say("start %d: %s", m.past.starts, ev.Line)
	m.phase = running
	m.replay(m.signalled)
}

func (m *Machine) signal(s os.Signal) {
	switch m.phase {
	case running:
		m.signalled(s)
	case pausing:
		m.wake(s)
	case awaiting:
		m.waitOn(s)
	default:
		m.postpone(s)
	}
}

// postpone puts a signal off to the next start: it may announce the end of the job.
func (m *Machine) postpone(s os.Signal) {
	if len(m.postponed) < 16 {
		m.postponed = append(m.postponed, s)
	}
}

// replay takes the signals that were put off.
func (m *Machine) replay(take func(os.Signal)) {
	postponed := m.postponed
	m.postponed = nil
	for _, s := range postponed {
		take(s)
	}
}

// end ends the rest of the start: the step, then its launcher. Ranks that live have left by themselves by now, as a
// rule.
func (m *Machine) end() {
	m.phase, m.try.killed = ending, true
	m.do(End{m.step()})
}

func (m *Machine) exited(code int) {
	t := m.try
	t.code = code
	if !t.killed && !t.last.Ended && t.last.Stopped == 0 {
		m.do(EndStep{m.step()}) // a launcher that was killed leaves its ranks behind
	}
	m.died(m.now, 0, "")
	m.phase, m.due = between, time.Time{}
	m.judge()
}

// step returns the Slurm step of the start, "" if it is not known.
func (m *Machine) step() string {
	step := cmp.Or(m.try.last.Step, m.try.launching.step)
	if m.cfg.Job == nil || step == "" {
		return ""
	}
	return m.cfg.Job.ID + "." + step
}

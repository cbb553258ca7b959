package cut

import (
	"time"

	"github.com/holdfast-hpc/holdfast/internal/sleep"
)

// coordinator has the additional state of rank 0.
type coordinator struct {
	pending bool // a request waits, or is being served until the cut
	stop    bool // one of the requests wants the program to stop
	busy    bool // an epoch is between park and Done
	last    bool // a final epoch was cut: no other follows unless it fails

	began time.Duration // first tick of the epoch, or unseen: nothing ticks before
	round uint64
	ready bool // all ranks were parked at their last report
	quiet time.Duration
	pause sleep.Backoff // between freezes that fail
}

// ask merges a request into the epoch that is about to be cut, or opens one,
// or queues it behind the one that is being committed.
func (m *Machine) ask(stop bool) {
	r := m.root
	r.pending = true
	r.stop = r.stop || stop
	m.start()
}

// wanted reports whether an epoch is to follow, or is under way.
func (r *coordinator) wanted() bool { return r.pending && !r.last }

func (m *Machine) start() {
	r := m.root
	if !r.wanted() || r.busy || m.phase != idle {
		return
	}
	r.busy = true
	r.round, r.ready, r.quiet = 0, false, 0
	r.pause = sleep.Backoff{First: time.Millisecond, Longest: 100 * time.Millisecond}
	r.began = never
	m.park(m.epoch + 1)
}

// takeStop closes the request: later ones open a new epoch. After a final one
// the program no longer keeps its state as it was at the cut.
func (r *coordinator) takeStop() bool {
	r.last = r.stop
	r.pending, r.stop = false, false
	return r.last
}

// done makes room for the next epoch.
func (m *Machine) done(e Epoch, failed bool) {
	if m.root == nil || e != m.epoch {
		return
	}
	m.root.busy = false
	m.root.last = m.root.last && !failed
	m.start()
}

// tryFreeze opens a round, after a failed one not before the pause: ranks that keep disagreeing would otherwise vote
// all the time.
func (m *Machine) tryFreeze() {
	r := m.root
	if !r.ready || m.phase != parking || m.now < r.quiet {
		return
	}
	r.round++
	m.freeze(r.round)
}

func (r *coordinator) backOff(now time.Duration) {
	r.quiet = now + r.pause.Next()
	r.ready = false
}

// tick is where time decides something: news that has gathered goes out, a
// message in flight is given up hope for and, at the root, a freeze is tried
// again or the epoch given up.
func (m *Machine) tick() {
	if m.phase == parking || m.phase == frozen {
		for i := range m.boxes {
			m.flush(i)
		}
	}
	if m.phase == parking && m.atPoint {
		m.needs.age(m.now, m.cfg.Patience)
		m.evaluate()
	}
	if m.root == nil {
		return
	}
	if m.overdue() {
		stop := m.root.stop
		m.root.pending, m.root.stop, m.root.busy = false, false, false
		m.giveUp(stop)
		return
	}
	m.start()
	m.tryFreeze()
}

// overdue reports that the epoch has been tried for the whole time-out.
func (m *Machine) overdue() bool {
	r := m.root
	if m.phase == idle || m.phase == cutting || m.cfg.Timeout == 0 {
		return false
	}
	if r.began == never {
		r.began = m.now
	}
	return m.now-r.began >= m.cfg.Timeout
}

package mpitest

import (
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/holdfast-hpc/holdfast/mpiwrap"
)

// The model-based test runs random programs and compares what was received with
// MPI's matching rules, which leave choices open: only illegal results are
// errors. Every message names its sender, its place in the sender's order and its
// tag. A run is legal when
//
//  1. each receive got a message that fits its source and tag;
//  2. each message was received exactly once;
//  3. no receive got a message while an earlier one of the same sender and
//     communicator that fits it too was taken by a receive posted later, or by none;
//  4. no receive that was withdrawn had been passed over: no message that fits it
//     was taken by a receive posted after it and finished before its withdrawal;
//  5. what a probe reported was what the next receive of that source and tag got;
//  6. a receive or probe that was pending at a checkpoint and is made again after the
//     restart gets the message that it had.
//
// The program has receives of every kind, protected and not; messages set aside by
// probes; communicators that it makes before and after Restore, of groups with the
// same leader, and temporary ones; and a window. Some drains are given up in the middle.
// Some restarts make communicators in another order than before: they are refused alike
// on all ranks, or each communicator gets its own messages. What the library refuses by
// name at a checkpoint it does not do; anything else that goes wrong is an error.

// note is one message of the script. Source and dest are ranks of its communicator.
type note struct {
	comm, source, dest, seq, tag, length int
	sync                                 bool
	from                                 origin
}

// Model is one rank of a random program. It outlives the world it runs on, so
// that the program can be restarted from a drain.
type Model struct {
	seed   uint64
	size   int
	rounds [][]note // all messages of all ranks, by round
	drains []bool   // after which rounds everybody drains
	broken []broken // drains that are given up, by round
	rng    *rand.Rand

	me      int // world rank
	members [][]int
	ranks   []int // this rank's in each communicator, or -1
	comms   []*mpiwrap.Comm
	life    int
	order   []int // in which late makes communicators
	swapped bool  // another than in the life before
	refused bool  // and that was refused
	freeAt  int   // round after which the window is freed; there may be none
	saved   savedModel
	window  modelWindow
	aside   []*posting // messages set aside
	round   int
	sends   []*mpiwrap.Request
	mine    []note // sent to this rank in the rounds so far
	taken   map[[3]int]bool
	pending []*posting
	log     []*posting // all receives in order of posting
	clock   int
	bug     bug // of its devices
}

// posting is one receive.
type posting struct {
	comm, source, tag    int
	posted, done         int // by the rank's clock
	got                  *note
	withdrawn            bool
	kind                 receiveKind
	buf                  []int64
	req                  *mpiwrap.Request
	device               *testDevice      // of the kinds that have one
	msg                  *mpiwrap.Message // set aside
	had                  *note            // what it had got at the checkpoint
	cancelled            bool             // Cancel was called
	probedTag, probedLen int
}

const (
	noteHead  = 5
	noteMax   = 3000 // elements; above the eager limits
	maxTags   = 3
	modelComm = 7
)

// NewModel writes the script of a program for the given number of ranks. All
// ranks give the same seed.
func NewModel(seed uint64, size, rounds int) *Model {
	m := &Model{seed: seed, size: size, taken: map[[3]int]bool{}}
	rng := rand.New(rand.NewPCG(seed, 77))
	m.drawComms(rng)
	seqs := map[[3]int]int{}
	for range rounds {
		var list []note
		for range rng.IntN(4 * size) {
			c := rng.IntN(modelComm)
			n := note{comm: c, source: rng.IntN(len(m.members[c])), dest: rng.IntN(len(m.members[c])),
				tag: rng.IntN(maxTags), length: noteHead, sync: rng.IntN(4) == 0,
				from: origin(rng.IntN(2) * rng.IntN(int(origins)))}
			if rng.IntN(5) == 0 || n.from != fromHost && rng.IntN(2) == 0 {
				n.length = noteHead + rng.IntN(noteMax)
			}
			k := [3]int{n.comm, n.source, n.dest}
			n.seq = seqs[k]
			seqs[k]++
			list = append(list, n)
		}
		m.rounds = append(m.rounds, list)
		m.drains = append(m.drains, rng.IntN(3) == 0)
		m.broken = append(m.broken, drawBroken(rng, size))
	}
	m.freeAt = rng.IntN(3 * rounds)
	return m
}

// Run continues to the end of the script and checks what was received. With stop it
// saves itself at the next drain that allows it and returns false: Attach it to another
// world and run it again.
func (m *Model) Run(stop bool) (ended bool, err error) {
	for m.round < len(m.rounds) {
		if err := m.doRound(); err != nil {
			return false, fmt.Errorf("seed %d round %d: %w", m.seed, m.round, err)
		}
		if m.round == m.freeAt {
			if err := m.window.freeEarly(m.comms[0]); err != nil {
				return false, fmt.Errorf("seed %d: %w", m.seed, err)
			}
		}
		if err := m.broken[m.round].drain(m.comms[0]); err != nil {
			return false, fmt.Errorf("seed %d, the drain given up after round %d: %w", m.seed, m.round, err)
		}
		drained := m.drains[m.round]
		m.round++
		if !drained {
			continue
		}
		if err := Drain(m.comms[0]); err != nil {
			return false, fmt.Errorf("seed %d after round %d: %w", m.seed, m.round, err)
		}
		if stop {
			if ok, err := m.save(); ok || err != nil {
				return false, err
			}
		}
	}
	if err := m.finish(); err != nil {
		return true, fmt.Errorf("seed %d at the end: %w", m.seed, err)
	}
	if err := m.judge(); err != nil {
		return true, fmt.Errorf("seed %d: %w", m.seed, err)
	}
	return true, nil
}

func (m *Model) doRound() error {
	for _, n := range m.rounds[m.round] {
		if m.ranks[n.comm] == n.dest {
			m.mine = append(m.mine, n)
		}
		if m.ranks[n.comm] != n.source {
			continue
		}
		if err := m.send(n); err != nil {
			return err
		}
	}
	for range m.rng.IntN(8) {
		if err := m.act(); err != nil {
			return err
		}
	}
	return m.window.round(m.comms[0], m.rng)
}

func (m *Model) send(n note) error {
	buf := make([]int64, n.length)
	buf[0], buf[1], buf[2], buf[3], buf[4] = int64(n.source), int64(n.seq), int64(n.tag), int64(n.length), int64(n.comm)
	for i := noteHead; i < n.length; i++ {
		buf[i] = n.element(i)
	}
	start := mpiwrap.Isend[int64]
	if n.sync {
		start = mpiwrap.Issend[int64]
	}
	var r *mpiwrap.Request
	var err error
	if n.from != fromHost {
		r, err = m.sendDevice(n, buf)
	} else {
		r, err = start(m.comms[n.comm], buf, n.dest, n.tag)
	}
	m.sends = append(m.sends, r)
	return err
}

// pattern draws a source and a tag to receive from.
func (m *Model) pattern() *posting {
	p := &posting{comm: m.rng.IntN(modelComm), source: mpiwrap.AnySource, tag: mpiwrap.AnyTag}
	for m.ranks[p.comm] < 0 {
		p.comm = m.rng.IntN(modelComm)
	}
	if m.rng.IntN(2) == 0 {
		p.source = m.rng.IntN(len(m.members[p.comm]))
	}
	if m.rng.IntN(2) == 0 {
		p.tag = m.rng.IntN(maxTags)
	}
	return p
}

func (p *posting) fits(n note) bool {
	return p.comm == n.comm && (p.source == mpiwrap.AnySource || p.source == n.source) &&
		(p.tag == mpiwrap.AnyTag || p.tag == n.tag)
}

// sure reports whether a blocking receive of p must end: more messages that fit it
// are sent than the pending receives could take from it.
func (m *Model) sure(p *posting) bool {
	left := 0
	for _, n := range m.mine {
		if p.fits(n) && !m.taken[n.key()] {
			left++
		}
	}
	return left > len(m.pending)+len(m.aside)
}

// element returns what element i of the message holds, behind its head.
func (n *note) element(i int) int64 {
	return int64(i)<<32 | int64(n.seq)<<8 | int64(n.tag)<<4 | int64(n.source)
}

func (n *note) key() [3]int { return [3]int{n.comm, n.source, n.seq} }

// act does one random thing.
func (m *Model) act() error {
	p := m.pattern()
	c := m.comms[p.comm]
	switch m.rng.IntN(12) {
	case 11:
		if m.sure(p) && len(m.pending)+len(m.aside) == 0 {
			return m.recvShort(p)
		}
	case 0, 1:
		if m.sure(p) {
			return m.recv(p)
		}
	case 2, 3:
		return m.irecv(p)
	case 4:
		return m.testSome()
	case 5:
		return m.cancelOne()
	case 6:
		_, err := c.Endpoint().DrainSome()
		return err
	case 7:
		if m.sure(p) {
			return m.probe(p)
		}
	case 8:
		return m.matched(p)
	case 9:
		return m.setAside(p)
	case 10:
		return m.receiveAside()
	}
	return nil
}

func (m *Model) tick() int { m.clock++; return m.clock }

// post records a receive at the moment it is posted.
func (m *Model) post(p *posting) *posting {
	p.posted, p.buf = m.tick(), make([]int64, noteHead+noteMax)
	m.log = append(m.log, p)
	return p
}

func (m *Model) recv(p *posting) error {
	m.post(p)
	st, err := m.recvInto(p)
	if err != nil {
		return err
	}
	return m.took(p, st)
}

// recvInto receives into the memory of the host or of a device.
func (m *Model) recvInto(p *posting) (mpiwrap.Status, error) {
	switch m.rng.IntN(6) {
	case 0, 1, 2:
		return mpiwrap.Recv(m.comms[p.comm], p.buf, p.source, p.tag)
	}
	if p.kind = onDevice; m.rng.IntN(3) == 0 {
		p.kind = onHostRange
		return mpiwrap.RecvDevice(m.comms[p.comm], mpiwrap.HostRange(p.buf), p.source, p.tag)
	}
	p.device = m.deviceFor(p)
	return mpiwrap.RecvDevice(m.comms[p.comm], p.device, p.source, p.tag)
}

// took checks one received message against the script.
func (m *Model) took(p *posting, st mpiwrap.Status) error {
	p.done = m.tick()
	n, err := p.read()
	if err != nil {
		return err
	}
	if p.device != nil {
		p.device.free()
	}
	if p.had != nil && p.had.key() != n.key() {
		return fmt.Errorf("had got %+v at the checkpoint, made again it got %+v", *p.had, n)
	}
	if st.Source != n.source || st.Tag != n.tag || st.Bytes != 8*int(p.buf[3]) {
		return fmt.Errorf("status %+v of a message that says %v", st, p.buf[:noteHead])
	}
	got, ok := m.find(n.key())
	if !ok {
		return fmt.Errorf("received a message that was not sent: %+v", n)
	}
	if m.taken[n.key()] {
		return fmt.Errorf("received twice: %+v", n)
	}
	for i := noteHead; i < got.length; i++ {
		if p.buf[i] != n.element(i) {
			return fmt.Errorf("element %d of %+v is %#x, want %#x", i, got, p.buf[i], n.element(i))
		}
	}
	m.taken[n.key()] = true
	p.got = &got
	if !p.fits(got) {
		return fmt.Errorf("receive from %d tag %d got %+v", p.source, p.tag, got)
	}
	if p.probedLen > 0 && (p.probedLen != st.Bytes || p.probedTag != st.Tag) {
		return fmt.Errorf("probe said %d bytes, received %d", p.probedLen, st.Bytes)
	}
	return nil
}

// find looks a message to this rank up in the whole script: its sender may be
// rounds ahead.
func (m *Model) find(key [3]int) (note, bool) {
	for _, list := range m.rounds {
		for _, n := range list {
			if m.ranks[n.comm] == n.dest && n.key() == key {
				return n, true
			}
		}
	}
	return note{}, false
}

func (m *Model) irecv(p *posting) error {
	if len(m.pending) >= 6 {
		return nil
	}
	p.kind = receiveKind(m.rng.IntN(int(receiveKinds)))
	m.post(p)
	m.pending = append(m.pending, p)
	return m.start(p)
}

func (m *Model) testSome() error {
	reqs := make([]*mpiwrap.Request, len(m.pending))
	for i, p := range m.pending {
		reqs[i] = p.req
	}
	index, sts, err := mpiwrap.TestSome(reqs...)
	if err != nil {
		return err
	}
	for k, i := range index {
		if err := m.ended(m.pending[i], sts[k]); err != nil {
			return err
		}
	}
	m.pending = slices.DeleteFunc(m.pending, func(p *posting) bool { return p.done > 0 })
	return nil
}

// ended notes the end of a pending receive, with a message or withdrawn.
func (m *Model) ended(p *posting, st mpiwrap.Status) error {
	if p.device != nil {
		p.device.release()
	}
	if p.kind == prepared || p.kind == unprotectedOnDevice {
		if err := p.req.Free(); err != nil {
			return err
		}
	}
	if !st.Cancelled {
		return m.took(p, st)
	}
	if !p.cancelled {
		return fmt.Errorf("a receive nobody cancelled says it was")
	}
	p.done, p.withdrawn = m.tick(), true
	if p.device != nil {
		p.device.free()
	}
	return nil
}

func (m *Model) cancelOne() error {
	if len(m.pending) == 0 {
		return nil
	}
	i := m.rng.IntN(len(m.pending))
	p := m.pending[i]
	m.pending = slices.Delete(m.pending, i, i+1)
	return m.withdraw(p)
}

func (m *Model) withdraw(p *posting) error {
	p.cancelled = true
	if err := p.req.Cancel(); err != nil {
		return err
	}
	st, err := p.req.Wait()
	if err != nil {
		return err
	}
	return m.ended(p, st)
}

// probe looks first and receives what it saw.
func (m *Model) probe(p *posting) error {
	st, err := m.comms[p.comm].Probe(p.source, p.tag)
	if err != nil {
		return err
	}
	q := &posting{comm: p.comm, source: st.Source, tag: st.Tag, probedTag: st.Tag, probedLen: st.Bytes}
	return m.recv(q)
}

// matched sets a message aside, drains what has come, and receives it.
func (m *Model) matched(p *posting) error {
	msg, err := m.comms[p.comm].Improbe(p.source, p.tag)
	if err != nil || msg == nil {
		return err
	}
	m.post(p)
	if m.rng.IntN(2) == 0 {
		if _, err := m.comms[0].Endpoint().DrainSome(); err != nil {
			return err
		}
	}
	st, err := mpiwrap.Mrecv(msg, p.buf)
	if err != nil {
		return err
	}
	return m.took(p, st)
}

// finish withdraws what is pending and receives what is left.
func (m *Model) finish() error {
	for _, p := range m.pending {
		if err := m.withdraw(p); err != nil {
			return err
		}
	}
	m.pending = nil
	for len(m.aside) > 0 {
		if err := m.receiveAside(); err != nil {
			return err
		}
	}
	left := make([]int, modelComm)
	for _, n := range m.mine {
		if !m.taken[n.key()] {
			left[n.comm]++
		}
	}
	for c := range left {
		for range left[c] {
			if err := m.recv(&posting{comm: c, source: mpiwrap.AnySource, tag: mpiwrap.AnyTag}); err != nil {
				return err
			}
		}
	}
	if err := mpiwrap.WaitAll(m.sends...); err != nil {
		return err
	}
	return m.free()
}

// judge applies rules 2 to 4.
func (m *Model) judge() error {
	by := map[[3]int]*posting{}
	for _, p := range m.log {
		if p.got != nil {
			by[p.got.key()] = p
		}
	}
	for _, n := range m.mine {
		if by[n.key()] == nil {
			return fmt.Errorf("never received: %+v", n)
		}
	}
	for _, p := range m.log {
		for _, n := range m.mine {
			q := by[n.key()]
			switch {
			case q == p || !p.fits(n):
			case p.got != nil && n.source == p.got.source && n.seq < p.got.seq && q.posted > p.posted:
				return fmt.Errorf("overtaken: receive %d (from %d tag %d) got %+v, the earlier %+v went to receive %d",
					p.posted, p.source, p.tag, *p.got, n, q.posted)
			case p.withdrawn && q.posted > p.posted && q.done < p.done:
				return fmt.Errorf("passed over: receive %d was withdrawn, %+v went to receive %d", p.posted, n,
					q.posted)
			}
		}
	}
	return nil
}

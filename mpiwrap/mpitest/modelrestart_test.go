package mpitest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/holdfast-hpc/holdfast/internal/endpoint"
	"github.com/holdfast-hpc/holdfast/mpiwrap"
)

// savedModel is what a checkpoint holds of the program besides its own variables.
type savedModel struct {
	mail     []byte
	requests [][]byte // of the protected receives, in order of posting
	window   []byte
	order    []int // in which it had made its communicators
}

// ErrRefused: this life of the program has made its communicators in another order than
// the one before, and was refused, on all ranks. Attach the Model to another world.
var ErrRefused = errors.New("communicators in another order than before the restart are refused")

// drawComms decides who is in which communicator: the world, three of all ranks, and
// three of groups that all begin with rank 0, two of them with the same members.
func (m *Model) drawComms(rng *rand.Rand) {
	all := make([]int, m.size)
	for i := range all {
		all[i] = i
	}
	group := func() []int {
		list := []int{0}
		for _, r := range rng.Perm(m.size) {
			if r != 0 && rng.IntN(3) > 0 {
				list = append(list, r)
			}
		}
		return list
	}
	m.members = [][]int{all, all, all, group(), group(), all, nil}
	m.members[6] = m.members[4]
}

// Attach makes the program run on w, from where it stands.
func (m *Model) Attach(w *mpiwrap.Comm) error {
	m.me = w.Rank()
	if m.rng == nil {
		m.rng = rand.New(rand.NewPCG(m.seed, 1000+uint64(m.me)))
	}
	m.life++
	m.comms, m.ranks = make([]*mpiwrap.Comm, modelComm), make([]int, modelComm)
	for c, list := range m.members {
		m.ranks[c] = slices.Index(list, m.me)
	}
	m.comms[0] = w
	if err := m.early(w); err != nil {
		return err
	}
	if m.life > 1 {
		if err := loadMailbox(w.Endpoint(), m.saved.mail); err != nil {
			return err
		}
		if err := m.temporary(w); err != nil {
			return err
		}
	}
	if err := m.late(w); err != nil {
		return err
	}
	if err := m.window.attach(w, m.saved.window); err != nil || m.life == 1 {
		return err
	}
	// A protected receive is refused on its own rank.
	n, err := m.refusals(w, m.load())
	if n > 0 {
		return ErrRefused
	}
	return err
}

// early makes what the program makes before Restore.
func (m *Model) early(w *mpiwrap.Comm) (err error) {
	m.comms[1], err = w.Dup()
	return errors.Join(err, m.group(w, 3))
}

// late makes what the program makes after Restore, in some lives in another order than
// before.
func (m *Model) late(w *mpiwrap.Comm) error {
	m.order = m.saved.order
	m.swapped = m.life > 1 && !m.refused && rand.New(rand.NewPCG(m.seed, 1<<20+uint64(m.life))).IntN(3) == 0
	if m.swapped || m.order == nil {
		m.order = []int{2, 4, 5, 6}
	}
	if m.swapped && m.saved.order[0] == 2 {
		m.order = []int{5, 6, 2, 4}
	}
	m.refused = false
	for _, i := range m.order {
		n, err := m.refusals(w, m.makers()[i](w))
		switch {
		case err != nil:
			return err
		case n == len(m.members[i]):
			return ErrRefused
		case n > 0:
			return fmt.Errorf("communicator %d in another order than before: %d of its %d ranks were refused", i, n,
				len(m.members[i]))
		}
	}
	return nil
}

// makers returns the places of what is made after Restore.
func (m *Model) makers() map[int]func(w *mpiwrap.Comm) error {
	return map[int]func(w *mpiwrap.Comm) error{
		2: func(w *mpiwrap.Comm) (err error) { m.comms[2], err = w.Dup(); return err },
		4: func(w *mpiwrap.Comm) (err error) { return m.group(w, 4) },
		5: func(w *mpiwrap.Comm) (err error) { m.comms[5], err = w.Dup(); return err },
		6: func(w *mpiwrap.Comm) (err error) { return m.groupElsewhere(w, 6) },
	}
}

// refusals counts the ranks on which a restart that is swapped was refused by err. Any
// other err is returned.
func (m *Model) refusals(w *mpiwrap.Comm, err error) (int, error) {
	n, all := []int{0}, []int{0}
	if m.swapped && errors.Is(err, mpiwrap.ErrMismatch) {
		n[0], err = 1, nil
	}
	if err == nil {
		err = mpiwrap.Allreduce(w.Private(), all, n, mpiwrap.Sum)
	}
	m.refused = all[0] > 0
	return all[0], err
}

func (m *Model) group(w *mpiwrap.Comm, i int) (err error) {
	if m.ranks[i] >= 0 {
		m.comms[i], err = w.CreateGroup(m.members[i], 7)
	}
	return err
}

func (m *Model) groupElsewhere(w *mpiwrap.Comm, i int) (err error) {
	if m.ranks[i] >= 0 {
		m.comms[i], err = w.CreateGroup(m.members[i], 7)
	}
	return err
}

// temporary makes, in some lives, a communicator that was not there before. While messages
// wait for the one whose turn it is it must be refused.
func (m *Model) temporary(w *mpiwrap.Comm) error {
	if rand.New(rand.NewPCG(m.seed, uint64(m.life))).IntN(2) == 0 {
		return nil
	}
	tmp, err := w.Dup()
	if errors.Is(err, mpiwrap.ErrMismatch) {
		return nil
	}
	if err != nil {
		return err
	}
	if n, _, err := tmp.Iprobe(mpiwrap.AnySource, mpiwrap.AnyTag); err != nil || n.Bytes > 0 {
		return fmt.Errorf("a temporary communicator has a message of another: %+v %v", n, err)
	}
	return tmp.Free()
}

func (m *Model) free() error {
	var errs []error
	for _, c := range m.comms[1:] {
		if c != nil {
			errs = append(errs, c.Free())
		}
	}
	return errors.Join(append(errs, m.window.end(m.comms[0]))...)
}

// save makes a checkpoint after a drain. It returns false, on all ranks, if that was
// refused on one because of what is pending there.
func (m *Model) save() (bool, error) {
	w := m.comms[0]
	if err := mpiwrap.WaitAll(m.sends...); err != nil {
		return false, err
	}
	m.sends = nil
	m.settleDevices()
	m.saved.requests, m.saved.order = nil, m.order
	for _, p := range m.pending {
		if !p.protected() {
			continue
		}
		b, err := p.req.MarshalBinary()
		if err != nil {
			return false, err
		}
		m.saved.requests = append(m.saved.requests, b)
	}
	var err error
	m.saved.mail, err = w.Endpoint().SaveMailbox()
	refused := errors.Is(err, mpiwrap.ErrPending)
	if err != nil && !refused {
		return false, err
	}
	if m.saved.window, err = m.window.save(w); err != nil {
		return false, err
	}
	no, any := []int64{0}, []int64{0}
	if refused {
		no[0] = 1
	}
	if err := mpiwrap.Allreduce(w.Private(), any, no, mpiwrap.Max); err != nil || any[0] > 0 {
		return false, err
	}
	return true, m.peek()
}

// peek notes what the receives that are not protected have got, which a restart must
// give them again. The world ends with it.
func (m *Model) peek() error {
	for _, p := range m.pending {
		p.had = nil
		if p.protected() {
			continue
		}
		_, there, err := p.req.Test()
		if err != nil {
			return err
		}
		if there {
			n, err := p.read()
			if err != nil {
				return err
			}
			p.had = &n
		}
	}
	for _, p := range m.aside {
		if _, err := mpiwrap.Mrecv(p.msg, p.buf); err != nil {
			return err
		}
		n, err := p.read()
		if err != nil {
			return err
		}
		p.had = &n
	}
	return nil
}

// load makes pending what was pending: protected receives by their records, others by
// posting or probing again in the order of before.
func (m *Model) load() error {
	again := append([]*posting(nil), m.aside...)
	records := m.saved.requests
	for _, p := range m.pending {
		if !p.protected() {
			again = append(again, p)
			continue
		}
		if p.device != nil { // its memory is part of the checkpoint
			p.req = mpiwrap.NewDeviceRequest(m.comms[p.comm], p.device)
		} else {
			p.req = mpiwrap.NewRequest(m.comms[p.comm], p.buf)
		}
		if err := p.req.UnmarshalBinary(records[0]); err != nil {
			return err
		}
		records = records[1:]
	}
	slices.SortFunc(again, func(a, b *posting) int { return a.posted - b.posted })
	for _, p := range again {
		clear(p.buf)
		if p.msg == nil {
			if err := m.start(p); err != nil {
				return err
			}
			continue
		}
		var err error
		if p.msg, err = m.comms[p.comm].Improbe(p.source, p.tag); err != nil || p.msg == nil {
			return fmt.Errorf("what was set aside is not found again: %+v %v", *p.had, err)
		}
	}
	for _, o := range m.comms[0].Endpoint().UnpostedReceives() {
		return fmt.Errorf("everything is posted again, and still owed: %v", o)
	}
	return nil
}

// broken is a drain that is given up in the middle: by rank, after how many looks at its
// context that has ended. It ends on all ranks: one that has given up need not receive what
// another's drain waits for.
type broken []int

// patience is fewer looks than a drain has before it sleeps between them, and enough for one that can end.
const patience = 190

// drawBroken draws a drain that some ranks give up, now and then; nil is none.
func drawBroken(rng *rand.Rand, size int) broken {
	if rng.IntN(3) > 0 {
		return nil
	}
	b := make(broken, size)
	for i := range b {
		if b[i] = rng.IntN(30); rng.IntN(2) == 0 {
			b[i] = patience
		}
	}
	return b
}

// drain gives a drain up. The program continues with what it has received or not; a rank
// that was late to give up may have ended it.
func (b broken) drain(w *mpiwrap.Comm) error {
	if b == nil {
		return nil
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	if _, err := w.Endpoint().Drain(&looks{ctx, b[w.Rank()], cancel}); err != nil &&
		!errors.Is(err, mpiwrap.ErrDrainIncomplete) {
		return err
	}
	return nil
}

// looks is a context that ends when it has been looked at so often. A rank looks from one
// goroutine.
type looks struct {
	context.Context
	left   int
	cancel func()
}

func (l *looks) Err() error {
	if l.left--; l.left < 0 {
		l.cancel()
	}
	return l.Context.Err()
}

// loadMailbox puts a record in force.
func loadMailbox(e endpoint.Endpoint, record []byte) error {
	apply, err := e.StageMailbox(record)
	if err == nil {
		apply()
	}
	return err
}

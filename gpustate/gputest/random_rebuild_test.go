package gputest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"

	"github.com/holdfast-hpc/holdfast/gpustate"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/fake"
)

// again begins the names that programs take more than once.
const again = "again "

func (p *program) named() bool { return strings.HasPrefix(p.name, again) }

// rebuild releases a program and builds another one of its name, as for other options. Kernels of
// the old one may go on, which a restart could not tell from those of the new one.
func (m *model) rebuild() {
	m.b.Helper()
	name := fmt.Sprint(again, m.luck.IntN(2))
	for _, p := range find[*program](m) {
		if p.name == name {
			m.end(p)
		}
	}
	p := m.program(name)
	m.add(p)
	m.add(&kernel{p: p})
	if m.luck.IntN(2) == 0 && !m.keeps(p) {
		m.end(p) // its kernel is all that the program needs
	}
}

// mixed are kernels of released programs whose name another one has that is in use.
func (m *model) mixed() (list []*kernel) {
	users := map[string]map[*program]bool{}
	use := func(p *program) {
		if users[p.name] == nil {
			users[p.name] = map[*program]bool{}
		}
		users[p.name][p] = true
	}
	for _, p := range find[*program](m) {
		use(p)
	}
	kernels := find[*kernel](m)
	for _, k := range kernels {
		use(k.p)
	}
	for _, k := range kernels {
		if k.p.named() && !k.p.alive && len(users[k.p.name]) > 1 {
			list = append(list, k)
		}
	}
	return list
}

// unmix makes a capture that is refused because of two programs of one name, and does what the
// refusal says.
func (m *model) unmix() {
	m.b.Helper()
	list := m.mixed()
	if len(list) == 0 {
		return
	}
	m.did("a capture with two programs of a name")
	c, err := m.dev.Capture(context.Background(), nil)
	if err == nil {
		m.b.ok(c.Release())
		m.b.Fatalf("a capture with two programs %q in use was not refused", list[0].p.name)
	}
	m.b.want(err, gpustate.ErrIdentity)
	for _, k := range list {
		m.end(k)
	}
	if len(find[*kernel](m)) == 0 {
		m.add(&kernel{p: pick(m, find[*program](m))})
	}
}

// forgotten reports whether a restarted program has no reason to make an object: it belongs to a
// program whose name went to another one.
func (m *model) forgotten(o object) bool {
	p, ok := o.(*program)
	if k, is := o.(*kernel); is {
		p, ok = k.p, true
	}
	if !ok || !p.named() || p.alive {
		return false
	}
	for _, k := range find[*kernel](m) {
		if k.p == p {
			return false
		}
	}
	return true
}

// outdated reports whether a program of the capture has gone since whose name may be taken more than
// once: its name would bring it back.
func (m *model) outdated(s *saved) bool {
	for _, p := range s.again {
		if !p.alive {
			return true
		}
	}
	for k := range s.args {
		if k.p.named() && !k.alive {
			return true
		}
	}
	return false
}

// tried takes captures that come to nothing, for several reasons. The program and the next capture
// do not notice.
func (m *model) tried() {
	m.b.Helper()
	m.unmix()
	switch m.luck.IntN(6) {
	case 0:
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		c, err := m.dev.Capture(ctx, nil)
		if err == nil {
			m.b.ok(c.Release())
			return
		}
		m.b.want(err, context.Canceled)
	case 1, 2:
		if m.dev.Info().Kind != "fake" || m.dev.Info().Server != "" {
			return
		}
		m.finish() // only the capture's own reads fail
		m.dev.LimitShadow(0)
		fake.System.Faults.FailRead(1 + m.luck.IntN(4))
		c, err := m.dev.Capture(context.Background(), nil)
		fake.System.Faults.FailRead(0)
		m.dev.LimitShadow(-1)
		if err == nil {
			m.b.ok(c.Release())
		}
	}
}

var errTorn = errors.New("the checkpoint ends here")

// restore brings a capture to a device, now and then after an attempt that fails on its way.
func (m *model) restore(s *saved) {
	m.b.Helper()
	if m.luck.IntN(3) == 0 {
		var left atomic.Int32
		left.Store(m.luck.Int32N(12))
		err := m.dev.Restore(context.Background(), s.c.Record(), func(i int, dst []byte, off int64) error {
			if left.Add(-1) < 0 {
				return errTorn
			}
			return s.read(i, dst, off)
		})
		if err != nil {
			m.b.want(err, errTorn)
		}
	}
	m.b.ok(m.dev.Restore(context.Background(), s.c.Record(), s.read))
}

// marked restores a capture and takes that back.
func (m *model) marked(s *saved) {
	m.b.Helper()
	if m.luck.IntN(3) > 0 {
		return
	}
	m.did("mark")
	mark, err := m.dev.Mark(context.Background(), nil)
	m.b.ok(err)
	m.b.ok(m.dev.Restore(context.Background(), s.c.Record(), s.read))
	m.b.ok(mark.Undo(context.Background()))
	m.b.ok(mark.Release())
	m.compare()
}

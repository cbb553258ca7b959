package gputest

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/holdfast-hpc/holdfast/gpustate"
)

// counter is a program whose variables count the launches of its kernel. Random
// programs have some beside their objects, on the fake, which moves to itself alone.
type counter struct {
	name     string
	alive    bool
	launches uint32

	p   *gpustate.Program
	k   *gpustate.Kernel
	out *gpustate.Buffer
}

func (c *counter) make(d *gpustate.Device) (err error) {
	if c.p, err = d.Program(c.name, tickSources, ""); err != nil {
		return err
	}
	if c.k, err = c.p.Kernel("tick"); err != nil {
		return err
	}
	if c.out, err = d.Buffer(c.name, 4); err != nil {
		return err
	}
	return c.k.SetArgs(c.out)
}

func (c *counter) release() error { return errors.Join(c.p.Release(), c.k.Release(), c.out.Release()) }

// count launches and checks what the variables have counted before.
func (m *model) count(c *counter) {
	m.b.Helper()
	_, err := m.q.q.Launch(c.k, []int{1}, nil)
	m.b.ok(err)
	got := make([]byte, 4)
	m.b.ok(m.q.q.Read(c.out, 0, got))
	if v := binary.LittleEndian.Uint32(got); v != 201*c.launches {
		m.b.Fatalf("the variables of %q say %d after %d launches, want %d", c.name, v, c.launches, 201*c.launches)
	}
	c.launches++
}

// tick makes, releases or uses counters now and then. It draws from luck of its own,
// so that the rest of a program does not depend on it.
func (m *model) tick() {
	m.b.Helper()
	if m.b.sel.Kind != "fake" {
		return
	}
	switch m.luck.IntN(12) {
	case 0:
		if len(m.counters) < 6 {
			c := &counter{name: fmt.Sprint("counter ", len(m.counters)), alive: true}
			m.b.ok(c.make(m.dev))
			m.counters = append(m.counters, c)
		}
	case 1:
		for _, c := range m.counters {
			if c.alive && m.luck.IntN(8) == 0 {
				c.alive = false
				m.b.ok(c.release())
			}
		}
	case 2, 3, 4:
		m.countAll()
	}
}

func (m *model) countAll() {
	m.b.Helper()
	for _, c := range m.counters {
		if c.alive {
			m.count(c)
		}
	}
}

// recount makes the counters again that a restarted program has.
func (m *model) recount() {
	m.b.Helper()
	for _, c := range m.counters {
		if c.alive {
			m.b.ok(c.make(m.dev))
		}
	}
}

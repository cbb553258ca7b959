package gputest

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/holdfast-hpc/holdfast/gpustate"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/fake"
)

// counter is a program whose variables count the launches of its kernel, with a constant
// that is written now and then. Random programs have some beside their objects, where programs
// can have variables.
type counter struct {
	name  string
	alive bool
	counted

	p   *gpustate.Program
	k   *gpustate.Kernel
	out *gpustate.Buffer
}

// counted is what the variables of a counter hold.
type counted struct{ launches, scale uint32 }

// countSources are as tickSources, with the same variables on all devices.
var countSources = gpustate.Sources{
	OpenCL: "count global ticks 4 global others 12 constant scale 4", // for the fake
	CUDA: `
__device__ unsigned ticks, others[3];
__constant__ unsigned scale;

extern "C" __global__ void count(unsigned *out) {
	out[0] = ticks + 100 * others[2] + scale;
	ticks += 1;
	others[2] += 2;
}
`}

func init() {
	fake.Register("count", 1, func(l fake.Launch) {
		le := binary.LittleEndian
		a, b := l.Globals["ticks"], l.Globals["others"][8:]
		le.PutUint32(l.Args[0].Bytes, le.Uint32(a)+100*le.Uint32(b)+le.Uint32(l.Globals["scale"]))
		le.PutUint32(a, le.Uint32(a)+1)
		le.PutUint32(b, le.Uint32(b)+2)
	})
}

func (c *counter) make(d *gpustate.Device) (err error) {
	if c.p, err = d.Program(c.name, countSources, ""); err != nil {
		return err
	}
	if c.k, err = c.p.Kernel("count"); err != nil {
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
	if v := binary.LittleEndian.Uint32(got); v != 201*c.launches+c.scale {
		m.b.Fatalf("the variables of %q say %d after %d launches, want %d", c.name, v, c.launches,
			201*c.launches+c.scale)
	}
	c.launches++
}

// tick makes, releases or uses counters now and then. It draws from luck of its own,
// so that the rest of a program does not depend on it.
func (m *model) tick() {
	m.b.Helper()
	if m.b.sel.Kind != "fake" && m.b.sel.Kind != "cuda" {
		return
	}
	switch m.luck.IntN(14) {
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
	case 5:
		for _, c := range m.counters {
			if c.alive && m.luck.IntN(2) == 0 {
				m.rescale(c)
			}
		}
	}
}

// rescale writes the constant of a counter.
func (m *model) rescale(c *counter) {
	m.b.Helper()
	v, err := c.p.Variable("scale")
	m.b.ok(err)
	c.scale = m.luck.Uint32N(1000)
	m.b.ok(m.q.q.Write(v, 0, gpustate.Bytes([]uint32{c.scale})))
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

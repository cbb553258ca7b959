package gputest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/holdfast-hpc/holdfast/gpustate"
)

// model is what a random program's device must hold: one slice per buffer, in
// order of creation.
type model struct {
	b     *bench
	r     *rand.Rand
	dev   *gpustate.Device
	q     *gpustate.Queue
	axpy  *gpustate.Kernel
	lives []*live
	made  int
}

// live is a buffer and what it must contain.
type live struct {
	name string
	buf  *gpustate.Buffer
	want []float32
}

// random runs programs of random object calls and compares the device with the
// model, over captures, restores into new devices and migrations.
func random(t *testing.T, b *bench) {
	programs, steps := 12, 60
	if testing.Short() {
		programs = 3
	}
	for seed := range programs {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			m := &model{b: &bench{T: t, sel: b.sel}, r: rand.New(rand.NewPCG(uint64(seed), 2))}
			m.attach(m.b.open())
			for range steps {
				m.step()
			}
			m.compare()
		})
	}
}

// attach finds the objects that are not buffers on a device.
func (m *model) attach(d *gpustate.Device) {
	m.dev = d
	var err error
	m.q, err = d.Queue("q")
	m.b.ok(err)
	p, err := d.Program("ops", Sources, "")
	m.b.ok(err)
	m.axpy, err = p.Kernel("axpy")
	m.b.ok(err)
}

func (m *model) step() {
	switch k := m.r.IntN(20); {
	case k < 4 || len(m.lives) < 2:
		m.create()
	case k < 6:
		i := m.r.IntN(len(m.lives))
		m.b.ok(m.lives[i].buf.Release())
		m.lives = append(m.lives[:i:i], m.lives[i+1:]...)
	case k < 9:
		m.write()
	case k < 15:
		m.launch()
	case k < 17:
		m.copy()
	case k < 18:
		m.compare()
	case k < 19:
		m.restart()
	default:
		m.migrate()
	}
}

func (m *model) pick() *live { return m.lives[m.r.IntN(len(m.lives))] }

func (m *model) create() {
	l := &live{want: make([]float32, 1+m.r.IntN(3000))}
	if m.r.IntN(2) == 0 {
		m.made++
		l.name = fmt.Sprint("buffer ", m.made)
	}
	var err error
	l.buf, err = m.dev.Buffer(l.name, 4*len(l.want))
	m.b.ok(err)
	m.b.ok(m.q.Write(l.buf, 0, gpustate.Bytes(l.want)))
	m.lives = append(m.lives, l)
}

func (m *model) write() {
	l := m.pick()
	off := m.r.IntN(len(l.want))
	part := l.want[off : off+m.r.IntN(len(l.want)-off)+1]
	for i := range part {
		part[i] = float32(m.r.IntN(100))
	}
	src := append([]float32(nil), part...)
	_, err := m.q.WriteAsync(l.buf, 4*off, gpustate.Bytes(src))
	m.b.ok(err)
}

func (m *model) launch() {
	y, x := m.pick(), m.pick()
	if x == y {
		return
	}
	n := min(len(x.want), len(y.want))
	a := float32(m.r.IntN(2))
	m.b.ok(m.axpy.SetArgs(y.buf, x.buf, a, int32(n)))
	_, err := m.q.Launch(m.axpy, []int{n}, nil)
	m.b.ok(err)
	for i := range n {
		y.want[i] += a * x.want[i]
	}
}

func (m *model) copy() {
	to, from := m.pick(), m.pick()
	if to == from {
		return
	}
	n := 1 + m.r.IntN(min(len(to.want), len(from.want)))
	at, off := m.r.IntN(len(to.want)-n+1), m.r.IntN(len(from.want)-n+1)
	_, err := m.q.Copy(to.buf, 4*at, from.buf, 4*off, 4*n)
	m.b.ok(err)
	copy(to.want[at:at+n], from.want[off:])
}

func (m *model) compare() {
	m.b.Helper()
	for _, l := range m.lives {
		got := make([]float32, len(l.want))
		m.b.ok(m.q.Read(l.buf, 0, gpustate.Bytes(got)))
		for i := range got {
			if got[i] != l.want[i] {
				m.b.Fatalf("buffer %q: element %d is %g, want %g", l.name, i, got[i], l.want[i])
			}
		}
	}
}

// restart captures, spoils the old device, and goes on on a new one.
func (m *model) restart() {
	m.b.Helper()
	m.dev.LimitShadow([]int64{-1, 0, 8192}[m.r.IntN(3)])
	c, err := m.dev.Capture(context.Background(), nil)
	m.b.ok(err)
	for _, l := range m.lives {
		m.b.ok(m.q.Write(l.buf, 0, make([]byte, l.buf.Bytes())))
	}
	next := m.b.open()
	early := m.r.IntN(2) == 0
	if early { // the program makes its objects before it restores
		m.reopen(next)
	}
	m.b.ok(next.Restore(context.Background(), c.Record(), func(i int, dst []byte, off int64) error {
		return c.ReadAt(context.Background(), i, dst, off)
	}))
	m.b.ok(c.Release())
	if !early {
		m.reopen(next)
	}
	m.attach(next)
	m.compare()
}

func (m *model) reopen(d *gpustate.Device) {
	m.b.Helper()
	for _, l := range m.lives {
		var err error
		l.buf, err = d.Buffer(l.name, 4*len(l.want))
		m.b.ok(err)
	}
}

func (m *model) migrate() {
	m.b.Helper()
	to := m.b.sel
	if m.r.IntN(2) == 0 {
		to = gpustate.Select{Kind: "fake"}
	}
	m.b.ok(m.dev.MigrateTo(context.Background(), to))
	m.compare()
}

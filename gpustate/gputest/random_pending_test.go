package gputest

import (
	"bytes"
	"slices"

	"github.com/holdfast-hpc/holdfast/gpustate"
)

// later is a read that nobody has waited for.
type later struct {
	e         *gpustate.Event
	got, want []byte
}

// readLater begins to read a part of an object. The next settle or capture finds the bytes there.
func (m *model) readLater() {
	m.b.Helper()
	x := pick(m, m.linears())
	off := 4 * m.luck.IntN(x.bytes/4)
	n := 4 + 4*m.luck.IntN((x.bytes-off)/4)
	got := bytes.Repeat([]byte{0xA5}, n)
	q, after := m.anyQueue(x)
	e, err := q.q.ReadAsync(x.linear, off, got, after...)
	m.b.ok(err)
	issued(q, e, x)
	m.reads = append(m.reads, later{e, got, bytes.Clone(x.want[off : off+n])})
}

// arrived checks the reads that are complete by now.
func (m *model) arrived() {
	m.b.Helper()
	for _, r := range m.reads {
		done, err := r.e.Done()
		m.b.ok(err)
		if !done {
			m.b.Fatal("a read is not complete after all commands were waited for")
		}
		m.b.ok(same("what was read without waiting", r.got, r.want))
	}
	m.reads = nil
}

// mostEvents bounds how many events a queue's program holds on to.
const mostEvents = 8

// keep holds on to an event, as programs do that look at it much later: its queue may have been
// released then, the device may have moved or gone back.
func (q *queue) keep(e *gpustate.Event) {
	if len(q.events) >= mostEvents {
		q.events = slices.Delete(q.events, 0, 1)
	}
	q.events = append(q.events, e)
}

// recall uses an event of long ago, also of a queue that was released, of this device.
func (m *model) recall() {
	m.b.Helper()
	var list []*gpustate.Event
	for _, c := range m.calls {
		if q, ok := c.o.(*queue); ok && !c.release {
			list = append(list, q.events...)
		}
	}
	if len(list) == 0 {
		return
	}
	e := list[m.luck.IntN(len(list))]
	switch m.luck.IntN(4) {
	case 0:
		m.b.ok(e.Wait())
	case 1:
		_, err := e.Done()
		m.b.ok(err)
	case 2:
		_, err := m.loose.q.Marker(e, list[m.luck.IntN(len(list))])
		m.b.ok(err)
	default:
		_, err := m.q.q.Barrier(e)
		m.b.ok(err)
	}
}

// pending does what leaves commands behind that nobody waits for.
func (m *model) pending() {
	m.b.Helper()
	switch m.luck.IntN(16) {
	case 0, 1:
		m.readLater()
	case 2, 3:
		m.recall()
	}
}

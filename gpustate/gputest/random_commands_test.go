package gputest

import (
	"bytes"
	"errors"
	"math/bits"

	"github.com/holdfast-hpc/holdfast/gpustate"
)

// anyQueue returns a queue and the events that a command on it waits for, so that it comes
// after the commands before it on the same objects: none for those of the same in-order
// queue.
func (m *model) anyQueue(of ...*memory) (*queue, []*gpustate.Event) {
	q := pick(m, find[*queue](m))
	return q, q.after(of...)
}

// after returns the events that a command of the queue on objects waits for.
func (q *queue) after(of ...*memory) (after []*gpustate.Event) {
	for _, x := range of {
		if b := x.base(); b.last != nil && (b.lastQ != q || q.opt.OutOfOrder && !b.fenced) {
			after = append(after, b.last)
		}
	}
	return after
}

// issued notes the last command of objects.
func issued(q *queue, e *gpustate.Event, of ...*memory) {
	q.keep(e)
	for _, x := range of {
		x.base().last, x.base().lastQ, x.base().fenced = e, q, false
	}
}

// linears returns the objects that kernels and copies take.
func (m *model) linears() []*memory {
	var list []*memory
	for _, x := range find[*memory](m) {
		if x.linear != nil {
			list = append(list, x)
		}
	}
	return list
}

func (m *model) write() {
	m.b.Helper()
	x := pick(m, find[*memory](m))
	off := 4 * m.r.IntN(x.bytes/4)
	m.fill(x, off, 4+4*m.r.IntN((x.bytes-off)/4))
}

// fill gives a part of memory small whole numbers, and an image all its pixels.
func (m *model) fill(x *memory, off, n int) {
	m.b.Helper()
	part := x.want[off : off+n]
	for i := range n / 4 {
		floats(part).set(i, float32(m.r.IntN(50)))
	}
	src := bytes.Clone(part)
	m.put(x, off, src)
}

// put writes bytes to the device.
func (m *model) put(x *memory, off int, src []byte) {
	m.b.Helper()
	switch {
	case x.host != nil:
		copy(x.host.Host()[off:], src)
		return
	case x.image != nil:
		q, after := m.anyQueue(x)
		copy(x.want[off:], src)
		e, err := q.q.WriteImageAsync(x.image, x.image.Whole(), bytes.Clone(x.want), after...)
		m.b.ok(err)
		issued(q, e, x)
		return
	}
	q, after := m.anyQueue(x)
	s, shared := x.linear.(*gpustate.Shared)
	if shared && m.r.IntN(2) == 0 {
		m.finish()
		b, err := q.q.Map(s)
		m.b.ok(err)
		copy(b[off:], src)
		m.b.ok(q.q.Unmap(s))
		x.last = nil
		return
	}
	e, err := q.q.WriteAsync(x.linear, off, src, after...)
	m.b.ok(err)
	issued(q, e, x)
}

// spoil overwrites what a capture holds.
func (m *model) spoil(x *memory) {
	m.b.Helper()
	if x.image == nil && x.parent == nil {
		m.put(x, 0, make([]byte, x.bytes))
	}
}

// launch runs a kernel, with the arguments that it has, or with others.
func (m *model) launch(asItIs bool) {
	m.b.Helper()
	k := pick(m, find[*kernel](m))
	m.did("launch of %p with %p %p, null %v, kept %v", k, k.args.y, k.args.x, k.args.null, k.args.kept)
	if m.r.IntN(6) == 0 {
		m.null(k)
		return
	}
	if !asItIs || k.args.unsure {
		y, x := pick(m, m.linears()), pick(m, m.linears())
		if x.base() == y.base() {
			return
		}
		k.args = axpyArgs{y: y, x: x, a: 2, n: int32(min(x.bytes, y.bytes) / 4)}
		m.b.ok(k.k.SetArgs(y.linear, x.linear, k.args.a, k.args.n))
		k.args.a = float32(m.r.IntN(2))
		m.b.ok(k.k.SetArg(2, k.args.a))
	}
	if k.args.null { // of no items: it touches nothing
		_, err := m.q.q.Launch(k.k, []int{4}, nil)
		m.b.ok(err)
		return
	}
	if !k.args.usable() {
		if _, err := m.q.q.Launch(k.k, []int{4}, nil); !errors.Is(err, gpustate.ErrReleased) &&
			!errors.Is(err, gpustate.ErrArgNotSet) {
			m.b.Fatalf("launch without an argument: got %v, want ErrReleased or ErrArgNotSet", err)
		}
		return
	}
	m.run(k.k, k.args)
}

// null gives axpy a null pointer that it does not look at, which stays in the record until
// the arguments are set again.
func (m *model) null(k *kernel) {
	m.b.Helper()
	y := pick(m, m.linears())
	k.args = axpyArgs{}
	m.b.ok(k.k.SetArgs(y.linear, gpustate.Null{}, float32(0), int32(0)))
	q, after := m.anyQueue(y)
	e, err := q.q.Launch(k.k, []int{4}, nil, after...)
	m.b.ok(err)
	issued(q, e, y)
	m.b.ok(k.k.SetArg(0, gpustate.Null{}))
	k.args.null = true
}

// run launches a kernel unless its numbers would get too large to be exact.
func (m *model) run(k *gpustate.Kernel, a axpyArgs) {
	m.b.Helper()
	y, x := floats(a.y.want), floats(a.x.want)
	for i := range int(a.n) {
		if a.a != 0 && y.at(i)+x.at(i) > 1<<20 {
			return
		}
	}
	q, after := m.anyQueue(a.y, a.x)
	e, err := q.q.Launch(k, []int{m.workItems(a.n)}, nil, after...)
	gone := !a.y.alive || !a.x.alive
	if gone && (errors.Is(err, gpustate.ErrReleased) || errors.Is(err, gpustate.ErrArgNotSet)) {
		// a rollback brings an argument back that the program has released, unless a range of it is left: then it
		// is released still, and not set after a rollback to a capture from now on
		return
	}
	m.b.ok(err)
	issued(q, e, a.y, a.x)
	for i := range int(a.n) {
		y.set(i, y.at(i)+a.a*x.at(i))
	}
}

// workItems returns how many work-items a launch for n elements has: on OpenCL the next power of two, of which the
// kernel leaves out those that have no element. PoCL takes small launches as one work-group, compiles the kernel
// again for each size of one, and gives all of them when it is asked for the program's binary.
func (m *model) workItems(n int32) int {
	if m.b.sel.Kind != "opencl" {
		return int(n)
	}
	return 1 << bits.Len32(uint32(n-1))
}

func (m *model) copy() {
	m.b.Helper()
	to, from := pick(m, m.linears()), pick(m, m.linears())
	if to.base() == from.base() {
		return
	}
	n := 1 + m.r.IntN(min(to.bytes, from.bytes)/4)
	at, off := m.r.IntN(to.bytes/4-n+1), m.r.IntN(from.bytes/4-n+1)
	q, after := m.anyQueue(to, from)
	e, err := q.q.Copy(to.linear, 4*at, from.linear, 4*off, 4*n, after...)
	m.b.ok(err)
	issued(q, e, to, from)
	copy(to.want[4*at:4*(at+n)], from.want[4*off:])
}

// finish waits for all commands.
func (m *model) finish() {
	m.b.Helper()
	for _, q := range find[*queue](m) {
		m.b.ok(q.q.Finish())
	}
	for _, x := range find[*memory](m) {
		x.base().last = nil
	}
	m.arrived()
}

// wait waits for the last command of some object.
func (m *model) wait() {
	m.b.Helper()
	if x := pick(m, find[*memory](m)).base(); x.last != nil {
		m.b.ok(x.last.Wait())
	}
}

// compare reads everything.
func (m *model) compare() {
	m.b.Helper()
	m.finish()
	for _, x := range find[*memory](m) {
		got := make([]byte, x.bytes)
		switch {
		case x.host != nil:
			copy(got, x.host.Host())
		case x.image != nil:
			m.b.ok(m.q.q.ReadImage(x.image, x.image.Whole(), got))
		default:
			m.b.ok(m.q.q.Read(x.linear, 0, got))
		}
		for i := range x.bytes / 4 {
			if g, w := floats(got).at(i), floats(x.want).at(i); g != w {
				m.b.Fatalf("memory %q of %d bytes, kind %d: element %d is %g, want %g", x.name, x.bytes, x.kind, i, g,
					w)
			}
		}
	}
	m.lookAt()
}

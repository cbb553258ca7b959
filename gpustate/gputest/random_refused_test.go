package gputest

import (
	"bytes"
	"errors"
	"slices"

	"github.com/holdfast-hpc/holdfast/gpustate"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/fake"
)

// refused makes a call that is refused, or that the program would have to take back:
// nothing may change by it.
func (m *model) refused() {
	m.b.Helper()
	x := pick(m, find[*memory](m))
	if m.r.IntN(2) == 0 {
		m.refusedArgument()
		return
	}
	var err error
	switch m.r.IntN(8) {
	case 0:
		_, err = m.dev.Buffer("q's buffer", -1)
	case 1:
		if x.name == "" || x.kind == kindRange {
			return
		}
		other := *x
		other.bytes *= 2
		err = other.make(m)
	case 2:
		_, err = m.q.q.Launch(pick(m, find[*kernel](m)).k, []int{5}, []int{2})
	case 3:
		_, err = m.dev.Program("", gpustate.Sources{OpenCL: "#error no", CUDA: "#error no"}, "")
	case 4:
		_, err = find[*program](m)[0].p.NewKernel("no such kernel")
	case 5:
		err = m.refusedRange(x)
	case 6:
		err = m.released()
	default:
		_, err = m.dev.Image("", gpustate.ImageDesc{Width: 1 << 17, Height: 1 << 17, Order: gpustate.ChannelR,
			Type: gpustate.ChannelUint8})
	}
	if err == nil {
		m.b.Fatal("a call that is wrong was not refused")
	}
}

func (m *model) refusedRange(x *memory) error {
	if x.linear == nil {
		return m.q.q.Write(m.linears()[0].linear, -4, []byte{1, 2, 3, 4})
	}
	switch b, ok := x.linear.(*gpustate.Buffer); {
	case ok && m.r.IntN(2) == 0:
		_, err := b.Sub("", 4, 4)
		return err
	case m.r.IntN(2) == 0:
		_, err := m.q.q.WriteAsync(x.linear, x.bytes, []byte{1})
		return err
	}
	_, err := m.q.q.Copy(x.linear, 0, x.linear, x.bytes-4, 8)
	return err
}

// released uses an object that the program has released.
func (m *model) released() error {
	for i := len(m.calls) - 1; i >= 0; i-- {
		if !m.calls[i].release {
			continue
		}
		switch o := m.calls[i].o.(type) {
		case *memory:
			if o.linear != nil {
				return m.q.q.Write(o.linear, 0, []byte{1, 2, 3, 4})
			}
		case *queue:
			return o.q.Write(m.linears()[0].linear, 0, []byte{1, 2, 3, 4})
		case *kernel:
			return o.k.SetArg(3, int32(1))
		case *program:
			_, err := o.p.NewKernel("axpy")
			return err
		}
	}
	return gpustate.ErrReleased // there is none
}

// refusedArgument gives a kernel wrong arguments. What some devices take at first is
// set back to what it was.
func (m *model) refusedArgument() {
	m.b.Helper()
	k := pick(m, find[*kernel](m))
	y, x := k.args.y, k.args.x
	if y == nil || !y.alive || !x.alive {
		return
	}
	far := m.dev.Info().Server != "" // it looks at sizes when the kernel is launched
	good := []any{y.linear, x.linear, k.args.a, k.args.n}
	var err error
	switch c := m.r.IntN(6); {
	case c == 0 && !far:
		err = k.k.SetArg(2, float64(3))
	case c == 1 && !far:
		err = k.k.SetArg(0, float32(3))
	case c == 2 && !far:
		err = k.k.SetArgs(x.linear, y.linear, float32(7), int64(1))
	case c == 3:
		err = k.k.SetArgs(x.linear, y.linear, float32(7))
	case c == 4:
		err = k.k.SetArgs(x.linear, y.linear, float32(7), 7)
	default:
		err = k.k.SetArg(2, "7")
	}
	if err == nil {
		m.b.ok(k.k.SetArgs(good...))
	}
}

// scarce does something while, on a fake device, one of the next allocations now and then
// fails. A capture goes to the host then; the device takes the memory of captures for what the
// program makes; without any the program's call fails.
func (m *model) scarce(do func() error) error {
	if m.b.sel.Kind != "fake" || m.dev.Info().Server != "" || m.luck.IntN(4) > 0 {
		return do()
	}
	fake.System.Faults.FailAlloc(1 + m.luck.IntN(3))
	defer fake.System.Faults.FailAlloc(0)
	return do()
}

// small has some programs run on fake devices that give only little memory at a time: the shadow of a
// capture is in many blocks then, and objects lie in several of them.
func (m *model) small() {
	if m.b.sel.Kind != "fake" || m.b.sel.Remote != "" || m.luck.IntN(2) == 0 {
		return
	}
	m.b.Cleanup(func() { fake.System.Infos = nil })
	infos, err := fake.System.Devices()
	m.b.ok(err)
	for i := range infos {
		infos[i].MaxAllocBytes = mostSmall
		if m.luck.IntN(2) == 0 {
			infos[i].MaxAllocBytes = 24 << 10
		}
	}
	infos[1].MaxAllocBytes = infos[0].MaxAllocBytes // they move from one to the other
	fake.System.Infos = infos
}

// mostSmall is more than objects of some chunks that are hashed.
const mostSmall = 1 << 20

// hog asks for more memory than the device has left: what captures have there goes to the host, and
// the call fails.
func (m *model) hog() {
	m.b.Helper()
	i := m.dev.Info()
	if m.luck.IntN(16) > 0 || i.Kind != "cuda" || i.Server != "" {
		return
	}
	b, err := m.dev.Buffer("hog", int(i.GlobalBytes))
	if err == nil {
		m.b.Errorf("a buffer takes all of the device's memory, %d bytes", b.Bytes())
		m.b.ok(b.Release())
	} else if !errors.Is(err, gpustate.ErrOutOfMemory) {
		m.b.want(err, gpustate.ErrLimit)
	}
}

// later is a read without a wait.
type later struct {
	e         *gpustate.Event
	got, want []byte
}

// readAsync begins to read a part of an object. The next finish or capture finds the bytes there.
func (m *model) readAsync() {
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

// pending leaves commands behind without a wait.
func (m *model) pending() {
	m.b.Helper()
	switch m.luck.IntN(16) {
	case 0, 1:
		m.readAsync()
	case 2, 3:
		m.recall()
	}
}

package gputest

import "github.com/holdfast-hpc/holdfast/gpustate"

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
		err = m.gone()
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

// gone uses an object that the program has released.
func (m *model) gone() error {
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

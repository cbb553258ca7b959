package gputest

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/holdfast-hpc/holdfast/gpustate"
	"github.com/holdfast-hpc/holdfast/gpustate/gputest/internal/foreign"
)

const lentBytes = 1 << 20

// lentCopy copies between buffers with native handles alone.
func lentCopy(d *gpustate.Device, code *foreign.Code, q *gpustate.Queue, dst, src *gpustate.Buffer) error {
	return d.Foreign(func(f *gpustate.Foreign) error {
		to, err := dst.Pointer(f)
		if err != nil {
			return err
		}
		from, err := src.Pointer(f)
		if err != nil {
			return err
		}
		queue, err := q.Native(f)
		if err != nil {
			return err
		}
		if d.Info().Kind == "fake" { // its copies do not wait for the queue
			if err := q.Finish(); err != nil {
				return err
			}
		}
		return code.Copy(queue, to, from, src.Bytes())
	})
}

// lending has foreign code work on the device: what it writes is captured without anybody
// waiting for it, and the device stands still only when it has returned.
func lending(t *testing.T, b *bench) {
	d := b.open()
	x, err := d.Buffer("x", lentBytes)
	b.ok(err)
	y, err := d.Buffer("y", lentBytes)
	b.ok(err)
	q, err := d.Queue("q")
	b.ok(err)
	if d.Info().Server != "" {
		err := d.Foreign(func(*gpustate.Foreign) error { return nil })
		if !errors.Is(err, gpustate.ErrUnsupported) ||
			!strings.Contains(err.Error(), d.Info().Server) {
			t.Errorf("a remote device lends: %v", err)
		}
		_, err = d.Adopt("z", 4096, 4096)
		b.want(err, gpustate.ErrUnsupported)
		return
	}
	code, err := foreign.For(d.Info().Kind)
	b.ok(err)
	want := seeded(7, lentBytes)
	for range 20 { // the last one is likely to be under way when the capture begins
		b.ok(q.Write(x, 0, want))
		b.ok(lentCopy(d, code, q, y, x))
	}
	b.ok(holds(d, 1, want))

	var old *gpustate.Foreign
	began, done := make(chan struct{}), make(chan struct{})
	captured := make(chan error, 1)
	b.ok(d.Foreign(func(f *gpustate.Foreign) error {
		old = f
		go func() {
			close(began)
			captured <- holds(d, 1, make([]byte, lentBytes))
			close(done)
		}()
		<-began
		b.ok(q.Write(y, 0, make([]byte, lentBytes))) // a stop that waits keeps nothing else out
		p, err := x.Pointer(f)
		b.ok(err)
		n, err := q.Native(f)
		b.ok(err)
		to, err := y.Pointer(f)
		b.ok(err)
		b.ok(x.Release()) // its memory stays for what has its pointer
		b.want(second(x.Pointer(f)), gpustate.ErrReleased)
		b.ok(q.Finish())
		b.ok(code.Copy(n, to, p, lentBytes))
		b.ok(q.Finish())
		for range 50 { // time enough for a capture
			b.ok(q.Write(y, 0, make([]byte, lentBytes)))
			select {
			case <-done:
				t.Error("a capture was taken while foreign code had the device")
				return nil
			default:
			}
		}
		return nil
	}))
	if err := <-captured; err != nil && !errors.Is(err, gpustate.ErrRange) { // x is gone: y is content 0
		t.Error(err)
	}
	b.ok(holds(d, 0, make([]byte, lentBytes)))
	b.want(second(y.Pointer(old)), gpustate.ErrNotForeign)
	b.want(second(y.Pointer(nil)), gpustate.ErrNotForeign)
	b.want(second(q.Native(old)), gpustate.ErrNotForeign)
	_, err = d.Native(old)
	b.want(err, gpustate.ErrNotForeign)
	other := b.open()
	b.want(other.Foreign(func(f *gpustate.Foreign) error { return second(y.Pointer(f)) }), gpustate.ErrOtherDevice)
	b.ok(d.MigrateTo(context.Background(), b.sel))
	b.ok(d.Foreign(func(f *gpustate.Foreign) error {
		n, err := d.Native(f)
		b.ok(err)
		if n.Generation != f.Generation() || n.Generation < 2 || n.Context == 0 || n.Kind != d.Info().Kind {
			t.Errorf("after a move the device is lent as %+v", n)
		}
		return nil
	}))
	b.ok(d.Close())
	b.want(d.Foreign(func(*gpustate.Foreign) error { return nil }), gpustate.ErrClosed)
}

func second[T any](_ T, err error) error { return err }

// holds captures and compares a content.
func holds(d *gpustate.Device, i int, want []byte) error {
	c, err := d.Capture(context.Background(), nil)
	if err != nil {
		return err
	}
	got := make([]byte, len(want))
	err = c.ReadAt(context.Background(), i, got, 0)
	if err == nil && !bytes.Equal(got, want) {
		err = errors.New("the capture does not hold what foreign code wrote")
	}
	return errors.Join(err, c.Release())
}

// adoption captures memory of foreign code and gives its bytes back after a restart, whether the
// program adopts before the restore or after it.
func adoption(t *testing.T, b *bench) {
	d := b.open()
	if d.Info().Server != "" {
		return // lending looks at the refusal
	}
	code, err := foreign.For(d.Info().Kind)
	b.ok(err)
	adopt := func(d *gpustate.Device) (*gpustate.Buffer, uintptr) {
		t.Helper()
		var p uintptr
		b.ok(d.Foreign(func(f *gpustate.Foreign) error {
			n, err := d.Native(f)
			b.ok(err)
			p, err = code.Alloc(n.Context, 4*items)
			return err
		}))
		x, err := d.Adopt("foreign", p, 4*items)
		b.ok(err)
		again, err := d.Adopt("foreign", p, 4*items)
		b.ok(err)
		if again != x {
			t.Error("the same memory was adopted twice")
		}
		return x, p
	}
	x, p := adopt(d)
	_, err = d.Adopt("foreign", p, items)
	b.want(err, gpustate.ErrConflict)
	_, err = d.Adopt("foreign", p+64, 4*items)
	b.want(err, gpustate.ErrConflict)
	_, err = d.Adopt("", p, 4*items)
	b.want(err, gpustate.ErrIdentity)
	_, err = d.Adopt("none", 0, 4*items)
	b.want(err, gpustate.ErrRange)
	if d.Info().Kind != "fake" { // a fake device believes everything
		_, err = d.Adopt("longer", p, 1<<30)
		b.want(err, gpustate.ErrUnsupported)
	}
	q, err := d.Queue("q")
	b.ok(err)
	want := make([]float32, items)
	for i := range want {
		want[i] = float32(i)
	}
	b.ok(q.Write(x, 0, gpustate.Bytes(want)))
	upper, err := x.Sub("upper", 2*items, 2*items)
	b.ok(err)
	prog, err := d.Program("ops", Sources, "")
	b.ok(err)
	k, err := prog.Kernel("axpy")
	b.ok(err)
	b.ok(k.SetArgs(upper, x, float32(1), int32(items/2)))
	b.want(d.MigrateTo(context.Background(), b.sel), gpustate.ErrAdopted)
	c, err := d.Capture(context.Background(), nil)
	b.ok(err)
	read := func(i int, dst []byte, off int64) error { return c.ReadAt(context.Background(), i, dst, off) }

	for _, first := range []bool{true, false} {
		next := b.open()
		var x *gpustate.Buffer
		var p uintptr
		if first {
			x, p = adopt(next)
		}
		b.ok(next.Restore(context.Background(), c.Record(), read))
		if !first {
			x, p = adopt(next)
		}
		if !x.Restored() {
			t.Error("adopted memory does not say that it was restored")
		}
		nq, err := next.Queue("q")
		b.ok(err)
		prog, err := next.Program("ops", Sources, "")
		b.ok(err)
		k, err := prog.Kernel("axpy") // with the arguments of before, now on that memory
		b.ok(err)
		_, err = nq.Launch(k, []int{items / 2}, nil)
		b.ok(err)
		got := make([]float32, items)
		y, err := next.Buffer("copy", 4*items)
		b.ok(err)
		b.ok(next.Foreign(func(f *gpustate.Foreign) error { // from the memory itself
			b.ok(nq.Finish())
			to, err := y.Pointer(f)
			b.ok(err)
			n, err := nq.Native(f)
			b.ok(err)
			return code.Copy(n, to, p, 4*items)
		}))
		b.ok(nq.Read(y, 0, gpustate.Bytes(got)))
		for i := range got {
			w := float32(i)
			if i >= items/2 {
				w += float32(i - items/2)
			}
			if got[i] != w {
				t.Fatalf("adopted before the restore %v: element %d is %g, want %g", first, i, got[i], w)
			}
		}
		b.ok(x.Release())
		b.ok(next.Close())
		if d.Info().Kind != "cuda" { // of a context that is gone otherwise
			b.ok(code.Free(p))
		}
	}
	b.ok(c.Release())
	b.ok(d.Close())
}

// theirs makes a queue with native handles alone.
func theirs(b *bench, d *gpustate.Device, code *foreign.Code) (q uintptr) {
	b.Helper()
	b.ok(d.Foreign(func(f *gpustate.Foreign) error {
		n, err := d.Native(f)
		b.ok(err)
		q, err = code.NewQueue(n.Context, n.Device)
		return err
	}))
	return q
}

// queueAdoption works on a queue of other code: what that code enqueues there without Foreign's
// handles is ordered with the commands of this package and captured, before and after a restart.
func queueAdoption(t *testing.T, b *bench) {
	d := b.open()
	if d.Info().Server != "" {
		_, err := d.AdoptQueue("theirs", 4096)
		b.want(err, gpustate.ErrUnsupported)
		return
	}
	code, err := foreign.For(d.Info().Kind)
	b.ok(err)
	native := theirs(b, d, code)
	q, err := d.AdoptQueue("theirs", native)
	b.ok(err)
	again, err := d.AdoptQueue("theirs", native)
	b.ok(err)
	if again != q {
		t.Error("the same queue was adopted twice")
	}
	b.want(second(d.AdoptQueue("other", native)), gpustate.ErrConflict)
	b.want(second(d.AdoptQueue("", native)), gpustate.ErrIdentity)
	if d.Info().Kind == "cuda" {
		b.want(second(d.AdoptQueue("default", 0)), gpustate.ErrUnsupported)
		b.want(second(d.AdoptQueue("thread", 2)), gpustate.ErrUnsupported)
	}
	own, err := d.Queue("own")
	b.ok(err)
	b.ok(d.Foreign(func(f *gpustate.Foreign) error {
		n, err := own.Native(f)
		b.ok(err)
		native = n
		return nil
	}))
	b.want(second(d.AdoptQueue("mine", native)), gpustate.ErrConflict)

	x, err := d.Buffer("x", lentBytes)
	b.ok(err)
	y, err := d.Buffer("y", lentBytes)
	b.ok(err)
	want := seeded(11, lentBytes)
	for i := range 20 {
		b.ok(q.Write(x, 0, want[:lentBytes-i]))
		b.ok(lentCopy(d, code, q, y, x))
	}
	b.ok(holds(d, 1, want))
	b.want(d.MigrateTo(context.Background(), b.sel), gpustate.ErrAdopted)
	c, err := d.Capture(context.Background(), nil)
	b.ok(err)
	read := func(i int, dst []byte, off int64) error { return c.ReadAt(context.Background(), i, dst, off) }
	for _, first := range []bool{true, false} {
		next := b.open()
		if first {
			_, err = next.AdoptQueue("theirs", theirs(b, next, code))
			b.ok(err)
		}
		b.ok(next.Restore(context.Background(), c.Record(), read))
		if !first {
			_, err = next.AdoptQueue("theirs", theirs(b, next, code))
			b.ok(err)
		}
		q, err := next.Queue("theirs")
		b.ok(err)
		y, err := next.Buffer("y", lentBytes)
		b.ok(err)
		got := make([]byte, lentBytes)
		b.ok(q.Read(y, 0, got))
		if !bytes.Equal(got, want) {
			t.Errorf("adopted before the restore %v: its queue reads other bytes", first)
		}
		b.ok(q.Release())
		b.ok(next.Foreign(func(f *gpustate.Foreign) error { return nil }))
		b.ok(next.MigrateTo(context.Background(), b.sel)) // nothing of other code is left
		b.ok(next.Close())
	}
	b.ok(c.Release())
}

// contextAdoption opens a device in a context of other code, and moves between it and contexts of
// this package, with the same bytes.
func contextAdoption(t *testing.T, b *bench) {
	d := b.open()
	b.want(second(gpustate.AdoptContext(gpustate.Native{Kind: "nothing", Context: 1})), gpustate.ErrUnsupported)
	if d.Info().Server != "" {
		return
	}
	code, err := foreign.For(d.Info().Kind)
	b.ok(err)
	n := gpustate.Native{Kind: d.Info().Kind}
	b.want(second(gpustate.AdoptContext(n)), gpustate.ErrRange)
	b.ok(d.Foreign(func(f *gpustate.Foreign) error {
		n, err = d.Native(f)
		b.ok(err)
		n.Context, err = code.NewContext(n.Context, n.Device)
		return err
	}))
	their, err := gpustate.AdoptContext(n)
	b.ok(err)
	if got, want := their.Info(), d.Info(); got.Name != want.Name || got.Index != want.Index {
		t.Errorf("the context is one of %v, want %v", got, want)
	}
	b.ok(their.Foreign(func(f *gpustate.Foreign) error {
		got, err := their.Native(f)
		if err == nil && got.Context != n.Context && n.Kind != "fake" {
			err = errors.New("the device lends another context")
		}
		return err
	}))
	w := b.world(their)
	b.ok(w.begin())
	b.ok(w.step())
	c, err := their.Capture(context.Background(), nil)
	b.ok(err)
	b.ok(d.Restore(context.Background(), c.Record(),
		func(i int, dst []byte, off int64) error { return c.ReadAt(context.Background(), i, dst, off) }))
	b.ok(b.world(d).check(1))
	b.ok(c.Release())
	b.ok(w.step())
	b.ok(w.check(2))
	b.ok(their.MigrateTo(context.Background(), b.sel))
	b.ok(w.step())
	b.ok(w.check(3))
	b.ok(their.Close())
	b.ok(code.FreeContext(n.Context)) // it lived on
}

// lentRanges: two ranges are lent at once, each after its moment, and captures wait until both are back.
func lentRanges(t *testing.T, b *bench) {
	d := b.open()
	q, err := d.Queue("q")
	b.ok(err)
	other := b.open()
	strange, err := other.Queue("q")
	b.ok(err)
	const n, off = 4096, 256
	x, err := d.Buffer("x", off+n)
	b.ok(err)
	y, err := d.Buffer("y", off+n)
	b.ok(err)
	z, err := other.Buffer("z", n)
	b.ok(err)
	from, to := q.Range(x, off, n), q.Range(y, off, n)
	if i := d.Info(); i.Server != "" || i.Kind == "opencl" {
		b.want(from.LendWith(nil, to, nil, func(_, _ uintptr) error { return nil }), gpustate.ErrUnsupported)
		return
	}
	never := func(_, _ uintptr) error {
		t.Error("a range of another device was lent")
		return nil
	}
	b.want(from.LendWith(nil, strange.Range(z, 0, n), nil, never), gpustate.ErrOtherDevice)
	b.want(from.LendWith(nil, from.Bytes, nil, never), gpustate.ErrOtherDevice)

	want := bytes.Repeat([]byte{1, 2, 3, 4}, n/4)
	b.ok(q.Write(x, off, want))
	mark, err := to.Mark()
	b.ok(err)
	code, err := foreign.For(d.Info().Kind)
	b.ok(err)
	captured := make(chan error, 1)
	over := false
	b.ok(from.LendWith(nil, to, mark, func(p, into uintptr) error {
		go func() {
			c, err := d.Capture(context.Background(), nil)
			if err == nil && !over {
				err = errors.New("a capture was taken while ranges were lent")
			}
			if c != nil {
				err = errors.Join(err, c.Release())
			}
			captured <- err
		}()
		over = true
		return code.Copy(0, into, p, n)
	}))
	b.ok(<-captured)
	got := make([]byte, n)
	b.ok(q.Read(y, off, got))
	if !bytes.Equal(got, want) {
		t.Error("what was copied between the lent addresses is not in the buffer")
	}
	b.ok(y.Release())
	b.want(from.LendWith(nil, to, nil, never), gpustate.ErrReleased)
}

// lentForGood: what an MPI library made in a context while a range was lent is there when the device has been closed
// and opened again.
func lentForGood(t *testing.T, b *bench) {
	d, err := gpustate.Open(b.sel)
	b.ok(err)
	if i := d.Info(); i.Server != "" || i.Kind == "opencl" {
		b.ok(d.Close())
		return
	}
	code, err := foreign.For(d.Info().Kind)
	b.ok(err)
	const n = 4096
	var made uintptr
	lend := func(d *gpustate.Device, fill byte, do func(p uintptr) error) {
		q, err := d.Queue("q")
		b.ok(err)
		x, err := d.Buffer("x", n)
		b.ok(err)
		b.ok(q.Write(x, 0, bytes.Repeat([]byte{fill}, n)))
		b.ok(q.Range(x, 0, n).Lend(nil, do))
	}
	lend(d, 7, func(p uintptr) (err error) {
		if made, err = code.Alloc(0, n); err != nil {
			return err
		}
		return code.Copy(0, made, p, n)
	})
	b.ok(d.Close())
	d = b.open()
	got := make([]byte, n)
	lend(d, 8, func(p uintptr) error { return errors.Join(code.Copy(0, p, made, n), code.Free(made)) })
	q, err := d.Queue("q")
	b.ok(err)
	x, err := d.Buffer("x", n)
	b.ok(err)
	b.ok(q.Read(x, 0, got))
	if !bytes.Equal(got, bytes.Repeat([]byte{7}, n)) {
		t.Error("memory of the closed device's context is not what it was")
	}
}

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
		var refused *gpustate.ForeignError
		err := d.Foreign(func(*gpustate.Foreign) error { return nil })
		if !errors.As(err, &refused) || !errors.Is(err, gpustate.ErrUnsupported) ||
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

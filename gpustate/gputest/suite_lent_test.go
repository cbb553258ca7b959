package gputest

import (
	"bytes"
	"context"
	"errors"
	"testing"

	"github.com/holdfast-hpc/holdfast/gpustate"
	"github.com/holdfast-hpc/holdfast/gpustate/gputest/internal/foreign"
)

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

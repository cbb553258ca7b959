package gputest

import (
	"bytes"
	"context"
	"errors"
	"testing"

	"github.com/holdfast-hpc/holdfast/gpustate"
	"github.com/holdfast-hpc/holdfast/gpustate/gputest/internal/foreign"
)

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

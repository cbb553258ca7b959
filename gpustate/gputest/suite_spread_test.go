package gputest

import (
	"context"
	"testing"

	"github.com/holdfast-hpc/holdfast/gpustate"
)

// across: bytes go from one device to another one, between kinds too, over moves; and one
// buffer on several devices has what was written last.
func across(t *testing.T, b *bench) {
	const n = 9 << 20 // more than one piece
	var queues []*gpustate.Queue
	var buffers []*gpustate.Buffer
	for _, sel := range []gpustate.Select{b.sel, {Kind: "fake"}, b.sel} {
		d, err := gpustate.Open(sel)
		b.ok(err)
		t.Cleanup(func() { _ = d.Close() })
		q, err := d.QueueWith("q", gpustate.QueueOptions{OutOfOrder: true})
		b.ok(err)
		x, err := d.Buffer("x", n)
		b.ok(err)
		queues, buffers = append(queues, q), append(buffers, x)
	}
	want := pattern(n)
	_, err := queues[0].WriteAsync(buffers[0], 0, want)
	b.ok(err)
	for i := range 3 { // in a ring, back to where they came from
		to := (i + 1) % 3
		_, err := queues[to].Fill(buffers[to], 0, n, []byte{byte(i)}) // the copy comes after it
		b.ok(err)
		b.ok(queues[to].CopyFrom(buffers[to], 4096, queues[i], buffers[i], 4096*min(i, 1), n-4096*3))
	}
	got := make([]byte, n-4096*3)
	b.ok(queues[1].Read(buffers[1], 4096, got))
	b.ok(same("copied across", got, want[:len(got)]))
	for i := range 10 {
		_, err := queues[0].Fill(buffers[0], 0, 4096, []byte{byte(i)})
		b.ok(err)
		_, err = queues[1].Fill(buffers[1], 0, 4096, []byte{99})
		b.ok(err)
		b.ok(queues[1].CopyFrom(buffers[1], 1024, queues[0], buffers[0], 0, 1024))
		b.ok(queues[1].Finish())
		b.ok(queues[1].Read(buffers[1], 1020, got[:8]))
		b.ok(same("copied behind fills", got[:8], []byte{99, 99, 99, 99, byte(i), byte(i), byte(i), byte(i)}))
	}
	b.ok(queues[2].CopyFrom(buffers[2], 0, queues[2], buffers[2], 4096, 4096)) // within one device
	b.want(queues[0].CopyFrom(buffers[0], 8, queues[1], buffers[1], 0, n), gpustate.ErrRange)
	b.want(queues[0].CopyFrom(buffers[1], 0, queues[1], buffers[1], 0, 8), gpustate.ErrOtherDevice)
	b.spread(queues)
}

// spread writes one buffer on each device in turn.
func (b *bench) spread(queues []*gpustate.Queue) {
	b.Helper()
	const n = 8192
	_, err := gpustate.NewSpread("", n)
	b.want(err, gpustate.ErrIdentity)
	s, err := gpustate.NewSpread("spread", n)
	b.ok(err)
	want, got := make([]byte, n), make([]byte, n)
	_, err = s.Use(queues[0], false)
	b.ok(err)
	for i := range 7 { // each writes a part of its own over what the one before left
		q := queues[i%3]
		x, err := s.Use(q, true)
		b.ok(err)
		p := []byte{byte(i + 1)}
		_, err = q.Fill(x, 0, n, want[:1])
		b.ok(err)
		_, err = q.Barrier()
		b.ok(err)
		_, err = q.Fill(x, 1024*i, 1024, p)
		b.ok(err)
		for k := range want {
			want[k] = want[0]
		}
		for k := range 1024 {
			want[1024*i+k] = p[0]
		}
		if i == 3 {
			b.ok(s.Level(queues...))
		}
		x, err = s.Use(queues[(i+2)%3], false)
		b.ok(err)
		b.ok(queues[(i+2)%3].Read(x, 0, got))
		b.ok(same("last written", got, want))
	}
	b.ok(s.Level(queues...))
	for _, q := range queues {
		x, err := s.Use(q, false)
		b.ok(err)
		b.ok(q.Read(x, 0, got))
		b.ok(same("on each device", got, want))
	}
	b.respread(want)
	b.ok(s.Release(queues...))
}

// respread restores a device whose copy had the contents.
func (b *bench) respread(want []byte) {
	b.Helper()
	d := b.open()
	q, err := d.Queue("q")
	b.ok(err)
	s, err := gpustate.NewSpread("spread", len(want))
	b.ok(err)
	x, err := s.Use(q, true)
	b.ok(err)
	b.ok(q.Write(x, 0, want))
	saved, err := d.Capture(context.Background(), nil)
	b.ok(err)
	next, other := b.open(), b.open()
	b.ok(next.Restore(context.Background(), saved.Record(), func(i int, dst []byte, off int64) error {
		return saved.ReadAt(context.Background(), i, dst, off)
	}))
	b.ok(saved.Release())
	s, err = gpustate.NewSpread("spread", len(want))
	b.ok(err)
	q, err = next.Queue("q")
	b.ok(err)
	_, err = s.Use(q, false)
	b.ok(err)
	elsewhere, err := other.Queue("q")
	b.ok(err)
	x, err = s.Use(elsewhere, false)
	b.ok(err)
	got := make([]byte, len(want))
	b.ok(elsewhere.Read(x, 0, got))
	b.ok(same("restored and brought to another device", got, want))
}

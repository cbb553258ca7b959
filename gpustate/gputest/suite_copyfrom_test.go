package gputest

import (
	"testing"

	"github.com/holdfast-hpc/holdfast/gpustate"
)

// across: bytes go from one device to another one, between kinds too.
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
}

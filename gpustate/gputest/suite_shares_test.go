package gputest

import (
	"context"
	"math/rand/v2"
	"testing"

	"github.com/holdfast-hpc/holdfast/gpustate"
)

// shares captures and writes random boxes of two buffers, and compares with the same on the host. Nothing outside the
// boxes changes, and a mark brings back what was there.
func shares(t *testing.T, b *bench) {
	d := b.open()
	q, err := d.Queue("q")
	b.ok(err)
	rng := rand.New(rand.NewPCG(6, 1))
	const n = 3 << 20
	x, err := d.Buffer("x", n)
	b.ok(err)
	y, err := d.Buffer("y", n)
	b.ok(err)
	for round := range 6 {
		d.LimitShadow([]int64{-1, 0, 8 << 10}[round%3])
		list := []gpustate.Share{{Buffer: x}, {Buffer: y}}
		model := [][]byte{pattern(n), pattern(n + 1)[1:]}
		var want [2][]byte
		for i := range list {
			b.ok(q.Write(list[i].Buffer, 0, model[i]))
			for range rng.IntN(4) {
				p := placed(rng, n)
				list[i].Boxes = append(list[i].Boxes, p)
				rows(p.Size, p.At, gpustate.Layout{}, func(at, _ int) {
					want[i] = append(want[i], model[i][at:at+p.Size[0]]...)
				})
			}
		}
		c, err := d.CaptureShares(context.Background(), list, nil)
		b.ok(err)
		m, err := d.MarkShares(context.Background(), list, nil)
		b.ok(err)
		b.ok(d.WriteShares(context.Background(), func(w *gpustate.ShareWriter) error {
			for i := range list {
				for _, p := range list[i].Boxes {
					src := pattern(p.Size[0] * p.Size[1] * p.Size[2])
					if err := w.Write(list[i].Buffer, p.At, p.Size, src, gpustate.Layout{}); err != nil {
						return err
					}
				}
			}
			return nil
		}))
		for i := range list { // what was captured before, whatever was written since
			got := make([]byte, len(want[i]))
			b.ok(c.ReadAt(context.Background(), i, got, 0))
			b.ok(same("captured", got, want[i]))
			now := make([]byte, n)
			b.ok(q.Read(list[i].Buffer, 0, now))
			written := append([]byte(nil), model[i]...)
			for _, p := range list[i].Boxes {
				from := 0
				rows(p.Size, p.At, gpustate.Layout{}, func(at, _ int) {
					from += copy(written[at:at+p.Size[0]], pattern(p.Size[0] * p.Size[1] * p.Size[2])[from:])
				})
			}
			b.ok(same("written", now, written))
		}
		b.ok(m.Undo(context.Background()))
		for i := range list {
			now := make([]byte, n)
			b.ok(q.Read(list[i].Buffer, 0, now))
			b.ok(same("undone", now, model[i]))
		}
		b.ok(m.Release())
		b.ok(c.Release())
	}
	_, err = d.CaptureShares(context.Background(), []gpustate.Share{{Buffer: x,
		Boxes: []gpustate.Placed{{At: gpustate.Layout{Off: n - 7}, Size: gpustate.Box{8}}}}}, nil)
	b.want(err, gpustate.ErrRange)
	b.ok(x.Release())
	_, err = d.CaptureShares(context.Background(), []gpustate.Share{{Buffer: x}}, nil)
	b.want(err, gpustate.ErrReleased)
}

// placed is a random box within n bytes.
func placed(rng *rand.Rand, n int) gpustate.Placed {
	size := gpustate.Box{1 + rng.IntN(300), 1 + rng.IntN(30), 1 + rng.IntN(5)}
	row := size[0] + rng.IntN(2)*rng.IntN(100)
	slice := row * (size[1] + rng.IntN(2)*rng.IntN(10))
	at := gpustate.Layout{Row: row, Slice: slice}
	at.Off = rng.IntN(n - slice*size[2])
	return gpustate.Placed{At: at, Size: size}
}

package gputest

import (
	"bytes"
	"context"
	"math/rand/v2"
	"testing"

	"github.com/holdfast-hpc/holdfast/gpustate"
)

func fills(t *testing.T, b *bench) {
	d := b.open()
	q, err := d.Queue("q")
	b.ok(err)
	const n = 300 << 10
	x, err := d.Buffer("x", n)
	b.ok(err)
	s, err := d.Shared("s", n)
	b.ok(err)
	sub, err := x.Sub("sub", gpustate.SubAlign, 1024)
	b.ok(err)
	for _, o := range []gpustate.Linear{x, s} {
		want := pattern(n)
		b.ok(q.Write(o, 0, want))
		for k := 1; k <= 128; k *= 2 {
			p := bytes.Clone(pattern(400)[70+k : 70+2*k])
			off, size := 3*k, (n/k-5)*k
			e, err := q.Fill(o, off, size, p)
			b.ok(err)
			clear(p) // it was taken over
			copy(want[off:], bytes.Repeat(pattern(400)[70+k:70+2*k], size/k))
			b.ok(e.Wait())
			got := make([]byte, n)
			b.ok(q.Read(o, 0, got))
			b.ok(same("filled", got, want))
		}
	}
	_, err = q.Fill(sub, 16, 32, []byte("Twenty pence piece")[:16])
	b.ok(err)
	got := make([]byte, 80)
	b.ok(q.Read(x, gpustate.SubAlign, got))
	if string(got[16:48]) != "Twenty pence pieTwenty pence pie" {
		t.Errorf("a range was filled with %q", got)
	}
	_, err = q.Fill(x, 0, 0, []byte{1, 2})
	b.ok(err)
	for _, bad := range []struct{ off, n, pattern int }{{0, 6, 3}, {0, 6, 4}, {2, 8, 4}, {0, 256, 256}, {0, 8, 0},
		{n, 4, 4}, {0, n + 4, 4}, {-4, 4, 4}, {4, -4, 4}} {
		_, err = q.Fill(x, bad.off, bad.n, make([]byte, bad.pattern))
		b.want(err, gpustate.ErrRange)
	}
	b.ok(x.Release())
	_, err = q.Fill(x, 0, 4, []byte{1})
	b.want(err, gpustate.ErrReleased)
}

func boxes(t *testing.T, b *bench) {
	d := b.open()
	q, err := d.Queue("q")
	b.ok(err)
	const n = 3 << 20 // several pieces of a transfer
	x, err := d.Buffer("x", n)
	b.ok(err)
	y, err := d.Shared("y", n)
	b.ok(err)
	src, want := pattern(n), make([]byte, n)
	b.ok(q.Write(x, 0, want))
	b.ok(q.Write(y, 0, want))
	size := gpustate.Box{1003, 40, 50}
	at := gpustate.Layout{Row: 1021, Slice: 1021 * 43}.At(5, 1, 2)
	from := gpustate.Layout{Off: 7, Row: 1100, Slice: 1100 * 41}
	b.ok(q.WriteRect(x, at, size, src, from))
	rows(size, at, from, func(t, f int) { copy(want[t:t+size[0]], src[f:]) })
	got := make([]byte, n)
	b.ok(q.Read(x, 0, got))
	b.ok(same("written", got, want))

	e, err := q.CopyRect(y, from, x, at, size)
	b.ok(err)
	moved := make([]byte, n)
	rows(size, from, at, func(t, f int) { copy(moved[t:t+size[0]], want[f:]) })
	e, err = q.ReadRectAsync(y, from, size, got, at, e)
	b.ok(err)
	b.ok(e.Wait())
	b.ok(same("there and back", got, want))
	b.ok(q.Read(y, 0, got))
	b.ok(same("copied", got, moved))
	// within one object, side by side in the same rows
	half := gpustate.Layout{Row: 64}
	b.ok(q.Write(x, 0, src[:6400]))
	_, err = q.CopyRect(x, half.At(32, 0, 0), x, half, gpustate.Box{32, 100})
	b.ok(err)
	b.ok(q.ReadRect(x, half.At(32, 0, 0), gpustate.Box{32, 100}, got, gpustate.Layout{}))
	for i := range 3200 {
		if w := src[i/32*64+i%32]; got[i] != w {
			t.Fatalf("byte %d of the right half is %d, want %d", i, got[i], w)
		}
	}
	// a box that ends with the object, where the gap behind its last row and slice would not
	end, err := x.Sub("end", gpustate.SubAlign, 700)
	b.ok(err)
	last, box := gpustate.Layout{Off: 12, Row: 76, Slice: 380}, gpustate.Box{68, 4, 2}
	b.ok(q.WriteRect(end, last, box, src, gpustate.Layout{}))
	b.ok(q.ReadRect(end, last, box, got[:544], gpustate.Layout{}))
	b.ok(same("at the end", got[:544], src[:544]))
	one := gpustate.Box{4}
	_, err = q.WriteRectAsync(x, gpustate.Layout{}, one, src[:4], gpustate.Layout{})
	b.ok(err)
	b.refusedBoxes(q, x, src)
}

func (b *bench) refusedBoxes(q *gpustate.Queue, x *gpustate.Buffer, host []byte) {
	n := x.Bytes()
	for _, bad := range []struct {
		at   gpustate.Layout
		size gpustate.Box
	}{
		{gpustate.Layout{}, gpustate.Box{}}, {gpustate.Layout{}, gpustate.Box{-4, 1, 1}},
		{gpustate.Layout{Off: -1}, gpustate.Box{4, 1, 1}}, {gpustate.Layout{Off: n - 3}, gpustate.Box{4, 1, 1}},
		{gpustate.Layout{Row: 3}, gpustate.Box{4, 2, 1}}, {gpustate.Layout{Row: 4, Slice: 6}, gpustate.Box{4, 1, 2}},
		{gpustate.Layout{Row: 4, Slice: 4}, gpustate.Box{4, 2, 2}}, {gpustate.Layout{Row: n}, gpustate.Box{4, 2, 1}},
		{gpustate.Layout{Row: 1 << 62}, gpustate.Box{4, 1 << 62, 1 << 62}},
	} {
		b.want(q.WriteRect(x, bad.at, bad.size, host, gpustate.Layout{}), gpustate.ErrRange)
		b.want(q.ReadRect(x, gpustate.Layout{}, bad.size, host, bad.at), gpustate.ErrRange)
		_, err := q.CopyRect(x, bad.at, x, bad.at, bad.size)
		b.want(err, gpustate.ErrRange)
	}
	_, err := q.CopyRect(x, gpustate.Layout{Row: 8}, x, gpustate.Layout{Off: 400, Row: 12}, gpustate.Box{4, 4, 1})
	b.want(err, gpustate.ErrRange)
}

// barriers: on an out-of-order queue nothing but the barriers orders the commands.
func barriers(t *testing.T, b *bench) {
	d := b.open()
	q, err := d.QueueWith("loose", gpustate.QueueOptions{OutOfOrder: true, Window: -1})
	b.ok(err)
	x, err := d.Buffer("x", 4096)
	b.ok(err)
	y, err := d.Buffer("y", 4096)
	b.ok(err)
	for i := range 20 {
		p := []byte{byte(i), 1, 2, 3}
		_, err = q.Fill(x, 0, 4096, p)
		b.ok(err)
		e, err := q.Barrier()
		b.ok(err)
		_, err = q.Copy(y, 0, x, 0, 4096)
		b.ok(err)
		_, err = q.Barrier(e)
		b.ok(err)
		_, err = q.Barrier()
		b.ok(err)
		got := make([]byte, 4096)
		last, err := q.ReadAsync(y, 0, got)
		b.ok(err)
		b.ok(last.Wait())
		b.ok(same("behind barriers", got, bytes.Repeat(p, 1024)))
	}
	b.ok(q.Finish())
}

func imageCommands(t *testing.T, b *bench) {
	d := b.open()
	if !d.Info().Images {
		t.Skip("the device has no images")
	}
	q, err := d.Queue("q")
	b.ok(err)
	const w, h = 37, 23
	var im [2]*gpustate.Image
	for i := range im {
		im[i], err = d.Image("", gpustate.ImageDesc{Width: w, Height: h, Order: gpustate.ChannelRGBA,
			Type: gpustate.ChannelUint8})
		b.ok(err)
	}
	a, c := im[0], im[1]
	all := a.Whole()
	want := pattern(4 * w * h)
	e, err := q.WriteImageAsync(a, all, want)
	b.ok(err)
	r := gpustate.Region{Origin: [3]int{3, 5, 0}, Size: [3]int{20, 11, 1}}
	e, err = q.FillImage(a, r, uintColor(9, 200, 7, 255), e)
	b.ok(err)
	fill := func(px []byte, r gpustate.Region, row func(y int) []byte) {
		for y := range r.Size[1] {
			copy(px[4*((r.Origin[1]+y)*w+r.Origin[0]):][:4*r.Size[0]], row(y))
		}
	}
	fill(want, r, func(int) []byte { return bytes.Repeat([]byte{9, 200, 7, 255}, r.Size[0]) })
	_, err = q.CopyImage(c, [3]int{}, a, all, e)
	b.ok(err)
	// to a buffer and from there to another place
	x, err := d.Buffer("x", 4*w*h+12)
	b.ok(err)
	from := gpustate.Region{Origin: [3]int{10, 0, 0}, Size: [3]int{19, 13, 1}}
	e, err = q.CopyFromImage(x, 12, c, from)
	b.ok(err)
	e, err = q.CopyToImage(c, gpustate.Region{Origin: [3]int{0, 10, 0}, Size: from.Size}, x, 12, e)
	b.ok(err)
	moved := bytes.Clone(want)
	fill(moved, gpustate.Region{Origin: [3]int{0, 10, 0}, Size: from.Size},
		func(y int) []byte { return want[4*(y*w+10):] })
	got := make([]byte, len(want))
	e, err = q.ReadImageAsync(c, all, got, e)
	b.ok(err)
	b.ok(e.Wait())
	b.ok(same("copied", got, moved))
	b.ok(q.ReadImage(a, all, got))
	b.ok(same("filled", got, want))

	_, err = q.CopyImage(c, [3]int{20, 0, 0}, a, from)
	b.want(err, gpustate.ErrRange)
	_, err = q.CopyFromImage(x, 4*w*h, a, from)
	b.want(err, gpustate.ErrRange)
	_, err = q.FillImage(a, gpustate.Region{Origin: [3]int{w, 0, 0}}, gpustate.Color{})
	b.want(err, gpustate.ErrRange)
	other, err := d.Image("other", gpustate.ImageDesc{Width: w, Height: h, Order: gpustate.ChannelRGBA,
		Type: gpustate.ChannelFloat})
	b.ok(err)
	_, err = q.CopyImage(other, [3]int{}, a, from)
	b.want(err, gpustate.ErrConflict)
	_, err = q.FillImage(other, other.Whole(), floatColor(1, -2.5, 0, 4))
	b.ok(err)
	px := make([]float32, 4*w*h)
	b.ok(q.ReadImage(other, other.Whole(), gpustate.Bytes(px)))
	for i, v := range px {
		if v != []float32{1, -2.5, 0, 4}[i%4] {
			t.Fatalf("component %d of an image of floats is %g", i, v)
		}
	}
}

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

// placed returns a random box within n bytes.
func placed(rng *rand.Rand, n int) gpustate.Placed {
	size := gpustate.Box{1 + rng.IntN(300), 1 + rng.IntN(30), 1 + rng.IntN(5)}
	row := size[0] + rng.IntN(2)*rng.IntN(100)
	slice := row * (size[1] + rng.IntN(2)*rng.IntN(10))
	at := gpustate.Layout{Row: row, Slice: slice}
	at.Off = rng.IntN(n - slice*size[2])
	return gpustate.Placed{At: at, Size: size}
}

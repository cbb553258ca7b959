package gputest

import (
	"bytes"
	"context"
	"testing"

	"github.com/holdfast-hpc/holdfast/gpustate"
)

// hashes compares the hashes of captures with their bytes: a chunk has the hash of another one
// exactly if it has its bytes, over captures, moves, and memory that was made again.
func hashes(t *testing.T, b *bench) {
	const chunk = gpustate.HashBytes
	d := b.open()
	q, err := d.Queue("q")
	b.ok(err)
	sizes := []int{3*chunk + 777, 100, chunk, 40 * chunk}
	var list []*gpustate.Buffer
	for i, n := range sizes {
		x, err := d.Buffer("", n)
		b.ok(err)
		b.ok(q.Write(x, 0, seeded(uint64(i), n)))
		list = append(list, x)
	}
	type content struct {
		bytes  [][]byte
		hashes [][]gpustate.Hash
	}
	hashed := 0
	take := func() (c content) {
		t.Helper()
		k, err := d.Capture(context.Background(), nil)
		b.ok(err)
		c.hashes, err = k.Hashes(context.Background())
		b.ok(err)
		for i, o := range k.Contents() {
			c.bytes = append(c.bytes, make([]byte, o.Bytes))
			b.ok(k.ReadAt(context.Background(), i, c.bytes[i], 0))
			for _, h := range c.hashes[i] {
				if h != (gpustate.Hash{}) {
					hashed++
				}
			}
		}
		b.ok(k.Release())
		return c
	}
	same := func(before, after content, changes int) {
		t.Helper()
		found := 0
		for i := range after.bytes {
			for j, h := range after.hashes[i] {
				was := before.hashes[i][j]
				if h == (gpustate.Hash{}) || was == (gpustate.Hash{}) {
					continue
				}
				end := min((j+1)*chunk, len(after.bytes[i]))
				equal := bytes.Equal(before.bytes[i][j*chunk:end], after.bytes[i][j*chunk:end])
				if equal != (h == was) {
					t.Errorf("content %d, chunk %d: bytes equal %v, hashes equal %v", i, j, equal, h == was)
				}
				if h != was {
					found++
				}
			}
		}
		if hashed > 0 && found != changes {
			t.Errorf("%d chunks have another hash, want %d", found, changes)
		}
	}
	first := take()
	second := take()
	same(first, second, 0)
	for _, at := range []struct{ x, off int }{{0, 0}, {0, 3*chunk + 776}, {1, 99}, {3, 17*chunk + chunk - 1},
		{3, 17 * chunk}, {3, 39 * chunk}} {
		b.ok(q.Write(list[at.x], at.off, []byte{^first.bytes[at.x][at.off]}))
	}
	third := take()
	same(second, third, 5)
	b.ok(d.MigrateTo(context.Background(), gpustate.Select{Kind: "fake", Index: 1}))
	b.ok(d.MigrateTo(context.Background(), b.sel))
	same(third, take(), 0)
	restoreHashed(t, b, d)
	if i := d.Info(); (i.Kind == "cuda" || i.Kind == "fake") && hashed == 0 {
		t.Error("no chunk was hashed on the device")
	}
}

// restoreHashed restores a capture and compares the hashes of that with those of a capture of what was restored.
func restoreHashed(t *testing.T, b *bench, d *gpustate.Device) {
	t.Helper()
	ctx := context.Background()
	k, err := d.Capture(ctx, nil)
	b.ok(err)
	restored, err := d.RestoreHashed(ctx, k.Record(), func(i int, dst []byte, off int64) error {
		return k.ReadAt(ctx, i, dst, off)
	})
	b.ok(err)
	b.ok(k.Release())
	if i := d.Info(); restored == nil && (i.Kind == "cuda" || i.Kind == "fake") {
		t.Error("a restore gives no hashes")
	}
	k, err = d.Capture(ctx, nil)
	b.ok(err)
	captured, err := k.Hashes(ctx)
	b.ok(err)
	b.ok(k.Release())
	for i, list := range restored {
		for j, h := range list {
			if h == (gpustate.Hash{}) || captured[i][j] != (gpustate.Hash{}) && captured[i][j] != h {
				t.Errorf("content %d, chunk %d: a restore gives %x, a capture of that %x", i, j, h, captured[i][j])
			}
		}
	}
}

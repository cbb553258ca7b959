package gputest

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/holdfast-hpc/holdfast/gpustate"
)

// captureGoesOn releases, creates and overwrites while the capture is read.
func captureGoesOn(t *testing.T, b *bench) {
	d := b.open()
	w := b.world(d)
	b.ok(w.begin())
	b.ok(w.step())
	c, err := d.Capture(context.Background(), nil)
	b.ok(err)
	b.ok(w.step())
	b.ok(w.check(2))
	b.ok(w.x.Release())
	for range 20 {
		n, err := d.Buffer("", 4*items)
		b.ok(err)
		b.ok(w.queue.Write(n, 0, pattern(4*items)))
	}
	again := b.open()
	b.ok(again.Restore(context.Background(), c.Record(), func(i int, dst []byte, off int64) error {
		return c.ReadAt(context.Background(), i, dst, off)
	}))
	b.ok(b.world(again).check(1))
	b.want(c.ReadAt(context.Background(), 99, nil, 0), gpustate.ErrRange)
	b.want(c.ReadAt(context.Background(), 0, make([]byte, 1<<20), 0), gpustate.ErrRange)
	b.ok(c.Release())
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	if c, err := d.Capture(ended, nil); err == nil { // it may have been quicker
		b.ok(c.Release())
	} else {
		b.want(err, context.Canceled)
	}
	b.ok(w.queue.Finish())
}

// shadows captures with all, with some and with no device memory to copy into.
func shadows(t *testing.T, b *bench) {
	const n = 9 << 20
	d := b.open()
	q, err := d.Queue("q")
	b.ok(err)
	var list []*gpustate.Buffer
	var want [][]byte
	for i := range 4 {
		x, err := d.Buffer("", n)
		b.ok(err)
		want = append(want, seeded(uint64(i), n))
		b.ok(q.Write(x, 0, want[i]))
		list = append(list, x)
	}
	for _, limit := range []int64{-1, 0, 20 << 20} {
		d.LimitShadow(limit)
		c, err := d.Capture(context.Background(), nil)
		b.ok(err)
		for _, x := range list {
			b.ok(q.Write(x, 0, make([]byte, n)))
		}
		for i, x := range list {
			got := make([]byte, n)
			// in odd pieces, like a reader with chunks of its own
			for off := 0; off < n; off += 1_000_003 {
				b.ok(c.ReadAt(context.Background(), i, got[off:min(off+1_000_003, n)], int64(off)))
			}
			b.ok(same("captured", got, want[i]))
			if s := c.Slice(i, 100, 1000); s != nil {
				b.ok(same("slice", s, got[100:1100]))
			}
			b.ok(q.Write(x, 0, got))
		}
		b.ok(c.Release())
	}
}

// pinned reads captures into memory that is pinned, in part pinned and no longer
// pinned, across a migration.
func pinned(t *testing.T, b *bench) {
	const n = 12 << 20
	memory, err := unix.Mmap(-1, 0, 2*n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	b.ok(err)
	defer unix.Munmap(memory)
	pool, got := memory[:n:n], memory[n:]
	d := b.open()
	_, err = d.Pin(pool[1:])
	b.want(err, gpustate.ErrRange)
	var unpin []func() error
	for _, m := range [][]byte{pool, got[:n/2]} {
		u, err := d.Pin(m)
		b.ok(err)
		unpin = append(unpin, u)
	}
	q, err := d.Queue("q")
	b.ok(err)
	x, err := d.Buffer("x", n)
	b.ok(err)
	check := func(seed uint64, limit int64) {
		t.Helper()
		want := seeded(seed, n)
		b.ok(q.Write(x, 0, want))
		d.LimitShadow(limit)
		c, err := d.Capture(context.Background(), func(int) []byte { return pool })
		b.ok(err)
		b.ok(q.Write(x, 0, make([]byte, n)))
		clear(got)
		for off := 0; off < n; off += 5_000_003 { // the second one straddles the end of what is pinned
			b.ok(c.ReadAt(context.Background(), 0, got[off:min(off+5_000_003, n)], int64(off)))
		}
		b.ok(same("captured", got, want))
		b.ok(c.Release())
	}
	check(1, -1)
	check(2, 0)
	b.ok(d.MigrateTo(context.Background(), gpustate.Select{Kind: "fake", Index: 1}))
	check(3, -1)
	b.ok(d.MigrateTo(context.Background(), b.sel))
	check(4, 0)
	b.ok(unpin[0]())
	check(5, 0)
	b.ok(d.Close())
	b.ok(unpin[1]())
}

// seeded makes n random bytes, in words of eight: the race detector looks at each access.
func seeded(seed uint64, n int) []byte {
	r := rand.NewPCG(seed, 1)
	words := make([]uint64, (n+7)/8)
	for i := range words {
		words[i] = r.Uint64()
	}
	return gpustate.Bytes(words)[:n]
}

// restores looks at what a restore refuses and what it leaves.
func restores(t *testing.T, b *bench) {
	first := b.open()
	w := b.world(first)
	b.ok(w.begin())
	c, err := first.Capture(context.Background(), nil)
	b.ok(err)
	defer c.Release()
	read := func(i int, dst []byte, off int64) error { return c.ReadAt(context.Background(), i, dst, off) }

	conflict := b.open()
	_, err = conflict.Buffer("x", 64)
	b.ok(err)
	b.want(conflict.Restore(context.Background(), c.Record(), read), gpustate.ErrConflict)
	if n := conflict.StateBytes(); n != 64 {
		t.Errorf("a refused restore left %d bytes, want 64", n)
	}

	broken := append([]byte(nil), c.Record()...)
	broken[len(broken)/2] ^= 1
	b.want(conflict.Restore(context.Background(), broken, read), gpustate.ErrRecord)

	unread := b.open()
	trouble := errors.New("no such chunk")
	err = unread.Restore(context.Background(), c.Record(), func(int, []byte, int64) error { return trouble })
	b.want(err, trouble)
	if n := unread.StateBytes(); n != 0 {
		t.Errorf("a failed restore left %d bytes", n)
	}
	b.ok(unread.Restore(context.Background(), c.Record(), read))
	b.ok(b.world(unread).check(0))
	restoresTwice(b, c, read)
}

// restoresTwice restores two captures in turn, as when another rank could not read
// the newer one: nothing of it is left that the program has not asked for, neither
// its bytes nor an object that the older one has in another size.
func restoresTwice(b *bench, older *gpustate.Capture, read func(int, []byte, int64) error) {
	newer := b.open()
	for name, n := range map[string]int{"x": 64, "later": 64, "": 64} {
		_, err := newer.Buffer(name, n)
		b.ok(err)
	}
	c, err := newer.Capture(context.Background(), nil)
	b.ok(err)
	defer c.Release()
	d := b.open()
	mine, err := d.Buffer("mine", 64)
	b.ok(err)
	b.ok(d.Restore(context.Background(), c.Record(), func(i int, dst []byte, off int64) error {
		return c.ReadAt(context.Background(), i, dst, off)
	}))
	b.ok(d.Restore(context.Background(), older.Record(), read))
	b.ok(b.world(d).check(0))
	b.ok(mine.Release())
	later, err := d.Buffer("later", 128) // not the 64 bytes of then
	b.ok(err)
	b.ok(later.Release())
}

// migrations moves a running world away and back, more than once.
func migrations(t *testing.T, b *bench) {
	d := b.open()
	w := b.world(d)
	b.ok(w.begin())
	b.ok(w.step())
	home := d.Info().Name
	way := []gpustate.Select{{Kind: "fake", Index: 1}, b.sel, {Kind: "fake"}, b.sel, b.sel}
	next := b.sel
	next.Index++
	if other, err := gpustate.Open(next); err == nil { // a second one of its kind
		b.ok(other.Close())
		way = append(way, next, b.sel)
	}
	for i, to := range way {
		b.ok(d.MigrateTo(context.Background(), to))
		b.ok(w.check(i + 1))
		b.ok(w.step())
		b.ok(w.check(i + 2))
	}
	if d.Info().Name != home {
		t.Errorf("the device is %s, want %s", d.Info(), home)
	}
	m, err := w.queue.Map(w.shared)
	b.ok(err)
	b.want(d.MigrateTo(context.Background(), gpustate.Select{Kind: "fake"}), gpustate.ErrMapped)
	_ = m
	b.ok(w.queue.Unmap(w.shared))
	b.ok(w.check(len(way) + 1))
	// commands that go on meanwhile wait and then run on the new device
	stop, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		for {
			select {
			case <-stop:
				ended <- w.queue.Finish()
				return
			default:
			}
			if err := w.group.SetArg(0, w.y); err != nil {
				ended <- err
				return
			}
			if _, err := w.queue.Launch(w.group, []int{items}, []int{groupSize}); err != nil {
				ended <- err
				return
			}
			if err := w.queue.Finish(); err != nil {
				ended <- err
				return
			}
		}
	}()
	for range 3 {
		b.ok(d.MigrateTo(context.Background(), gpustate.Select{Kind: "fake"}))
		b.ok(d.MigrateTo(context.Background(), b.sel))
	}
	close(stop)
	b.ok(<-ended)
}

// hashes compares the hashes of captures with their bytes: a chunk has the hash of another one
// exactly if it has its bytes, over captures, moves, and memory that was made again.
func hashes(t *testing.T, b *bench) {
	const chunk = gpustate.HashBytes
	d := b.open()
	q, err := d.Queue("q")
	b.ok(err)
	sizes := []int{3*chunk + 777, 100, chunk, 17 * chunk} // the last one is copied in two pieces
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
	for _, at := range []struct{ x, off int }{{0, 0}, {0, 3*chunk + 776}, {1, 99}, {3, 9*chunk + chunk - 1},
		{3, 9 * chunk}, {3, 16 * chunk}} {
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

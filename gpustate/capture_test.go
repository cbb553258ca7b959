package gpustate

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"sync"
	"testing"

	"github.com/holdfast-hpc/holdfast/gpustate/internal/checkpoint"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/chunkhash"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/driver"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/fake"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/object"
)

func TestCaptureStaysWhileProgramGoesOn(t *testing.T) {
	onDevices(t, func(t *testing.T, open func() *Device) {
		s := newSetup(t, open(), 3000)
		s.fill(t)
		s.step(t)
		warm := make([]byte, 1<<20)
		c := must(s.q.dev.Capture(context.Background(), func(n int) []byte {
			if n > len(warm) {
				return nil
			}
			b := warm[:n]
			warm = warm[n:]
			return b
		}))(t)
		s.step(t)
		ok(t, s.q.Finish())
		ok(t, s.x.Release())
		y := make([]float32, 3000)
		ok(t, c.ReadAt(context.Background(), 1, Bytes(y), 0))
		if y[10] != 20 {
			t.Errorf("captured y[10] = %g, want 20", y[10])
		}
		if b := c.Slice(1, 40, 4); b != nil && math.Float32frombits(binary.NativeEndian.Uint32(b)) != 20 {
			t.Errorf("Slice gives other bytes than ReadAt")
		}
		ok(t, c.Release())
		ok(t, c.Release())
	})
}

// TestCaptureOutOfMemory lets each allocation of a capture fail in turn: the
// bytes then go to the host, and the capture is as good.
func TestCaptureOutOfMemory(t *testing.T) {
	d, lib := fakeDevice(t)
	s := big(t, d)
	for n := 1; n <= 4; n++ {
		lib.Faults.FailAlloc(n)
		c := must(d.Capture(context.Background(), nil))(t)
		lib.Faults.FailAlloc(0)
		y := make([]float32, 1<<20)
		ok(t, c.ReadAt(context.Background(), 1, Bytes(y), 0))
		if y[7] != 14 {
			t.Errorf("allocation %d fails: y[7] = %g, want 14", n, y[7])
		}
		ok(t, c.Release())
	}
	s.expect(t, 2)
}

// TestCaptureReadFails lets a read-back fail while the program waits.
func TestCaptureReadFails(t *testing.T) {
	d, lib := fakeDevice(t)
	s := big(t, d)
	d.LimitShadow(0)
	for n := 1; n <= 3; n++ {
		lib.Faults.FailRead(n)
		_, err := d.Capture(context.Background(), nil)
		var object *ObjectError
		if !errors.As(err, &object) || object.Op != "capture" {
			t.Errorf("read %d fails: got %v, want an ObjectError of capture", n, err)
		}
		lib.Faults.FailRead(0)
	}
	s.expect(t, 2)
}

// TestEvict: the program gets memory that a capture has taken for its copy, when it makes
// an object and when the driver finds late that there is none; the capture keeps its
// bytes. So does a restore.
func TestEvict(t *testing.T) {
	const n = 8 << 20
	info := fake.Default
	info.GlobalBytes = 5 * n
	lib := &fake.Library{Infos: []driver.Info{info}}
	d := newDevice(must(lib.Open(0))(t))
	d.state.Reserve = 0
	q := must(d.Queue("q"))(t)
	x, y := must(d.Buffer("x", n))(t), must(d.Buffer("y", n))(t)
	fillWith(t, q, x, 1)
	fillWith(t, q, y, 2)
	check := func(c *Capture) {
		t.Helper()
		for i, want := range []byte{1, 2} {
			got := make([]byte, n)
			ok(t, c.ReadAt(context.Background(), i, got, 0))
			if got[0] != want || got[n-1] != want {
				t.Errorf("content %d is %d, want %d", i, got[0], want)
			}
		}
	}
	shadowed := func() *Capture {
		t.Helper()
		c := must(d.Capture(context.Background(), nil))(t)
		if c.Slice(0, 0, 1) != nil || c.Slice(1, 0, 1) != nil {
			t.Fatal("the capture has no shadow: this tests nothing")
		}
		return c
	}
	c := shadowed()
	reading := make(chan error, 1)
	go func() { // as a writer of checkpoints does
		got := make([]byte, n)
		for range 20 {
			if err := c.ReadAt(context.Background(), 0, got, 0); err != nil || got[0] != 1 {
				reading <- fmt.Errorf("%d: %w", got[0], err)
				return
			}
		}
		reading <- nil
	}()
	z := must(d.Buffer("z", 3*n))(t)
	if c.Slice(0, 0, 1) == nil {
		t.Error("there was room: this tests nothing")
	}
	fillWith(t, q, z, 3)
	ok(t, <-reading)
	check(c)
	ok(t, c.Release())
	if _, err := d.Buffer("more", 1); !errors.Is(err, ErrOutOfMemory) {
		t.Errorf("got %v, want ErrOutOfMemory", err)
	}
	ok(t, z.Release())

	c = shadowed()
	lib.Faults.LateAlloc(1)
	fillWith(t, q, x, 4)
	lib.Faults.LateAlloc(0)
	check(c)
	x.check(t, q, 4)
	ok(t, d.Restore(context.Background(), c.Record(), func(i int, dst []byte, off int64) error {
		return c.ReadAt(context.Background(), i, dst, off)
	}))
	x.check(t, q, 1)
	ok(t, c.Release())

	c = shadowed() // foreign code asks for room itself
	ok(t, d.Foreign(func(f *Foreign) error {
		if !f.MakeRoom() || f.MakeRoom() {
			t.Error("MakeRoom does not free the shadow, once")
		}
		return nil
	}))
	check(c)
	hashes := must(c.Hashes(context.Background()))(t) // of what is in host memory there are none
	for i := range hashes {
		for k, h := range hashes[i] {
			if h != (Hash{}) {
				t.Errorf("chunk %d of content %d, which is in host memory, has a hash", k, i)
			}
		}
	}
	ok(t, c.Release())
	ok(t, d.Close())
	if n := lib.Faults.Live(); n != 0 {
		t.Errorf("%d objects left", n)
	}
}

// capturedTwo returns a device with a capture of two buffers of n bytes, of ones and of twos, whose shadow is on it.
func capturedTwo(t *testing.T, info driver.Info, n int) (*fake.Library, *Device, *Queue, *Capture) {
	t.Helper()
	lib := &fake.Library{Infos: []driver.Info{info}}
	d := newDevice(must(lib.Open(0))(t))
	d.state.Reserve = 0
	q := must(d.Queue("q"))(t)
	x, y := must(d.Buffer("x", n))(t), must(d.Buffer("y", n))(t)
	fillWith(t, q, x, 1)
	fillWith(t, q, y, 2)
	c := must(d.Capture(context.Background(), nil))(t)
	if checkpoint.ShadowBlocks(c) != 2 {
		t.Fatalf("the shadow has %d blocks, want 2: this tests nothing", checkpoint.ShadowBlocks(c))
	}
	return lib, d, q, c
}

// TestEvictInWaves: the program gets the memory that it needs, and a capture keeps the rest of its
// shadow; the bytes of both halves are right.
func TestEvictInWaves(t *testing.T) {
	const n = 32 << 20
	info := fake.Default
	info.GlobalBytes, info.MaxAllocBytes = 4*n, n
	_, d, q, c := capturedTwo(t, info, n)
	for left := 1; left >= 0; left-- {
		fillWith(t, q, must(d.Buffer("", n))(t), 3)
		if checkpoint.ShadowBlocks(c) != left || c.Slice(left, 0, n) == nil || left == 1 && c.Slice(0, 0, n) != nil {
			t.Fatalf("%d blocks are left, want %d, the last content at the host", checkpoint.ShadowBlocks(c), left)
		}
		for i, want := range []byte{1, 2} {
			got := make([]byte, n)
			ok(t, c.ReadAt(context.Background(), i, got, 0))
			if got[0] != want || got[n-1] != want {
				t.Errorf("content %d is %d, want %d", i, got[0], want)
			}
		}
	}
	if _, err := d.Buffer("more", n); !errors.Is(err, ErrOutOfMemory) {
		t.Errorf("got %v, want ErrOutOfMemory", err)
	}
	ok(t, c.Release())
	ok(t, d.Close())
}

// TestCaptureOutlivesDevice reads a capture whose device has been left by a
// migration and closed.
func TestCaptureOutlivesDevice(t *testing.T) {
	lib, other := &fake.Library{}, &fake.Library{}
	d := newDevice(must(lib.Open(0))(t))
	s := big(t, d)
	c := must(d.Capture(context.Background(), nil))(t)
	if c.Slice(1, 0, 4) != nil {
		t.Fatal("the capture has no shadow: this tests nothing")
	}
	ok(t, d.migrate(context.Background(), must(other.Open(1))(t)))
	s.step(t)
	s.expect(t, 4)
	ok(t, d.Close())
	y := make([]float32, 1<<20)
	ok(t, c.ReadAt(context.Background(), 1, Bytes(y), 0))
	if y[7] != 14 {
		t.Errorf("y[7] = %g, want 14", y[7])
	}
	if lib.Faults.Live() == 0 {
		t.Error("the shadow is gone while the capture is in use")
	}
	ok(t, c.Release())
	if a, b := lib.Faults.Live(), other.Faults.Live(); a != 0 || b != 0 {
		t.Errorf("%d and %d objects left", a, b)
	}
}

func init() {
	fake.Register(chunkhash.Kernel, 6, fake.ChunkHash)
}

// TestHashesUnsupported: a device without the kernel says so at each try, and captures as before.
func TestHashesUnsupported(t *testing.T) {
	d, _ := fakeDevice(t, func(i *driver.Info) { i.MaxGroup = 64 })
	must(d.Buffer("x", HashBytes))(t)
	c := must(d.Capture(context.Background(), nil))(t)
	for range 2 {
		if _, err := c.Hashes(context.Background()); !errors.Is(err, ErrUnsupported) {
			t.Errorf("got %v, want ErrUnsupported", err)
		}
	}
	if err := c.ReadAt(context.Background(), 0, make([]byte, HashBytes), 0); err != nil {
		t.Error(err)
	}
	if err := c.Release(); err != nil {
		t.Error(err)
	}
	if _, err := c.Hashes(context.Background()); !errors.Is(err, ErrReleased) {
		t.Errorf("got %v, want ErrReleased", err)
	}
}

// TestHashesOnFullDevice: where the program has all memory, a block of the shadow makes room for the
// hashes of the others; the bytes are those that were captured.
func TestHashesOnFullDevice(t *testing.T) {
	const n = 2 * HashBytes
	d, _ := fakeDevice(t, func(i *driver.Info) { i.GlobalBytes, i.MaxAllocBytes = 4*n, n })
	d.state.Reserve = 0
	q := must(d.Queue("q"))(t)
	fillWith(t, q, must(d.Buffer("x", n))(t), 1)
	fillWith(t, q, must(d.Buffer("y", n))(t), 2)
	c := must(d.Capture(context.Background(), nil))(t)
	if checkpoint.ShadowBlocks(c) != 2 {
		t.Fatalf("the shadow has %d blocks, want 2: this tests nothing", checkpoint.ShadowBlocks(c))
	}
	hashes := must(c.Hashes(context.Background()))(t)
	for i, want := range []bool{true, false} {
		got := make([]byte, n)
		ok(t, c.ReadAt(context.Background(), i, got, 0))
		if !bytes.Equal(got, bytes.Repeat([]byte{byte(i + 1)}, n)) {
			t.Errorf("content %d has other bytes than were captured", i)
		}
		for k, h := range hashes[i] {
			host := d.state.HashKey().Of(got[k*HashBytes : (k+1)*HashBytes])
			if want && h != host || !want && h != (Hash{}) {
				t.Errorf("chunk %d of content %d: got %x, want that of the host, if there is one: %v", k, i, h, want)
			}
		}
	}
	ok(t, c.Release())
}

// TestHashesLeaveNothing: the program gets the memory that the kernel of the hashes has kept, and the
// next capture is hashed as before.
func TestHashesLeaveNothing(t *testing.T) {
	const n = HashBytes
	d, _ := fakeDevice(t, func(i *driver.Info) { i.GlobalBytes, i.MaxAllocBytes = 4*n, 4*n })
	d.state.Reserve = 0
	q := must(d.Queue("q"))(t)
	fillWith(t, q, must(d.Buffer("x", n))(t), 1)
	hash := func() Hash {
		c := must(d.Capture(context.Background(), nil))(t)
		hashes := must(c.Hashes(context.Background()))(t)
		ok(t, c.Release())
		return hashes[0][0]
	}
	before := hash()
	if before == (Hash{}) {
		t.Fatal("nothing was hashed")
	}
	all := must(d.Buffer("all", 3*n))(t)
	ok(t, all.Release())
	if after := hash(); after != before {
		t.Errorf("the hash is %x, before it was %x", after, before)
	}
}

// TestFullDevice: the program takes the device's memory to the last byte once it has been captured. The capture is
// read by several at once, gives its own memory back, and the next captures are taken with the queues that there are.
func TestFullDevice(t *testing.T) {
	const n = 32 << 20
	info := fake.Default
	info.GlobalBytes, info.MaxAllocBytes, info.HostMemory = 4*n, n, false
	lib, d, _, c := capturedTwo(t, info, n)
	lib.Faults.Full(true)
	check := func(c *Capture) {
		t.Helper()
		read := make(chan error)
		const readers = 4
		for range readers {
			go func() {
				var errs []error
				for i, want := range []byte{1, 2} {
					got := make([]byte, n)
					errs = append(errs, c.ReadAt(context.Background(), i, got, 0))
					if got[0] != want || got[n-1] != want {
						errs = append(errs, errors.New("it holds other bytes"))
					}
				}
				read <- errors.Join(errs...)
			}()
		}
		for range readers {
			ok(t, <-read)
		}
	}
	check(c)
	more := must(d.Buffer("more", n))(t) // in the place of a block
	if checkpoint.ShadowBlocks(c) != 1 {
		t.Errorf("%d blocks are left, want 1", checkpoint.ShadowBlocks(c))
	}
	check(c)
	again := must(d.Capture(context.Background(), nil))(t)
	check(again)
	ok(t, more.Release())
	ok(t, errors.Join(c.Release(), again.Release()))
	ok(t, d.Close())
}

// TestScarceTogether: captures are hashed, read and given up while the program takes and gives back memory and the
// device now and then has none: every capture holds the bytes of its moment.
func TestScarceTogether(t *testing.T) {
	const n = 2 << 20
	info := fake.Default
	info.GlobalBytes, info.MaxAllocBytes, info.HostMemory = 8*n, n/2, false
	lib := &fake.Library{Infos: []driver.Info{info}}
	d := newDevice(must(lib.Open(0))(t))
	d.state.Reserve = 0
	q := must(d.Queue("q"))(t)
	x := must(d.Buffer("x", n/2))(t)
	y := must(d.Buffer("y", n/2))(t)
	var readers sync.WaitGroup
	limit := make(chan struct{}, 3)
	evicted := 0
	for i := range 40 {
		fillWith(t, q, x, byte(i))
		fillWith(t, q, y, byte(i+1))
		lib.Faults.FailAlloc(i % 5)
		c := must(d.Capture(context.Background(), nil))(t)
		lib.Faults.FailAlloc(0)
		limit <- struct{}{}
		begin := make(chan struct{})
		readers.Go(func() {
			defer func() { <-limit }()
			if i%2 == 0 {
				<-begin
			}
			if _, err := c.Hashes(context.Background()); err != nil && !errors.Is(err, ErrOutOfMemory) {
				t.Errorf("hashes of capture %d: %v", i, err)
			}
			for k := range 2 {
				got := make([]byte, n/2)
				if err := c.ReadAt(context.Background(), k, got, 0); err != nil || got[0] != byte(i+k) ||
					got[n/2-1] != byte(i+k) {
					t.Errorf("capture %d, content %d: it holds %d (%v), want %d", i, k, got[0], err, i+k)
				}
			}
			if err := c.Release(); err != nil {
				t.Error(err)
			}
		})
		var more []*Buffer
		for k := range 8 {
			if k%3 == i%3 {
				lib.Faults.FailAlloc(1)
			}
			b, err := d.Buffer("", n/2)
			lib.Faults.FailAlloc(0)
			if errors.Is(err, ErrOutOfMemory) {
				continue
			}
			ok(t, err)
			more = append(more, b)
		}
		if i%2 == 0 && c.Slice(1, 0, 1) != nil {
			evicted++
		}
		close(begin)
		for _, b := range more {
			ok(t, b.Release())
		}
	}
	readers.Wait()
	if evicted == 0 {
		t.Error("no capture gave memory back before it was read: this tests nothing")
	}
	ok(t, d.Close())
	if n := lib.Faults.Live(); n != 0 {
		t.Errorf("%d memory objects are left", n)
	}
}

// TestMarkUndo restores another program's state into a device and takes it back:
// bytes, arguments and the set of objects are those of the mark.
func TestMarkUndo(t *testing.T) {
	ctx := context.Background()
	onDevices(t, func(t *testing.T, open func() *Device) {
		other := newSetup(t, open(), 500)
		other.fill(t)
		other.step(t)
		must(other.q.dev.Buffer("later", 64))(t)
		newer, contents := capture(t, other.q.dev, nil)

		for _, used := range []bool{false, true} {
			s := newSetup(t, open(), 500)
			d := s.q.dev
			if used {
				s.fill(t)
				s.step(t)
				s.step(t)
			}
			before, bytesBefore := capture(t, d, nil)
			m := must(d.Mark(ctx, nil))(t)
			if kept := m.before != nil; kept != used {
				t.Errorf("contents kept: %v, of a device used: %v", kept, used)
			}
			ok(t, d.Restore(ctx, newer, readFrom(contents)))
			ok(t, m.Undo(ctx))
			ok(t, m.Release())
			after, bytesAfter := capture(t, d, nil)
			if !bytes.Equal(before, after) {
				t.Errorf("the objects are not those of the mark:\n%q\n%q", after, before)
			}
			if _, there := d.state.Names[object.Key{Kind: "buffer", Name: "later"}]; there {
				t.Error("a buffer of the newer state is left")
			}
			if !used { // OpenCL says nothing of memory that was never written
				for i := range bytesBefore {
					clear(bytesBefore[i])
				}
			}
			for i := range bytesBefore {
				if !bytes.Equal(bytesBefore[i], bytesAfter[i]) {
					t.Errorf("content %d is not that of the mark", i)
				}
			}
		}
	})
}

// TestMarkKeeps: what an image was written and what an earlier Restore brought is there
// after an Undo, although the program has launched nothing.
func TestMarkKeeps(t *testing.T) {
	ctx := context.Background()
	onDevices(t, func(t *testing.T, open func() *Device) {
		type program struct {
			d     *Device
			q     *Queue
			x     *Buffer
			image *Image
		}
		pixels := ImageDesc{Width: 4, Height: 4, Order: ChannelRGBA, Type: ChannelUint8}
		begin := func() *program {
			p := &program{d: open()}
			p.q, p.x = must(p.d.Queue("q"))(t), must(p.d.Buffer("x", 64))(t)
			if p.d.Info().Images {
				p.image = must(p.d.Image("image", pixels))(t)
			}
			return p
		}
		paint := func(p *program, v byte) {
			if p.image != nil {
				ok(t, p.q.WriteImage(p.image, p.image.Whole(), bytes.Repeat([]byte{v}, 64)))
			}
		}
		painted := func(p *program, v byte) {
			t.Helper()
			if p.image == nil {
				return
			}
			got := make([]byte, 64)
			ok(t, p.q.ReadImage(p.image, p.image.Whole(), got))
			if !bytes.Equal(got, bytes.Repeat([]byte{v}, 64)) {
				t.Errorf("the image holds %d..., want %d", got[0], v)
			}
		}
		other := begin()
		state := func(v byte) (rec []byte, contents [][]byte) {
			fillWith(t, other.q, other.x, v)
			paint(other, v)
			return capture(t, other.d, nil)
		}
		older, olderBytes := state(1)
		newer, newerBytes := state(2)
		undone := func(p *program) {
			t.Helper()
			m := must(p.d.Mark(ctx, nil))(t)
			ok(t, p.d.Restore(ctx, older, readFrom(olderBytes)))
			ok(t, m.Undo(ctx))
			ok(t, m.Release())
		}

		written := begin()
		paint(written, 3)
		undone(written)
		painted(written, 3)

		restored := begin()
		ok(t, restored.d.Restore(ctx, newer, readFrom(newerBytes)))
		undone(restored)
		restored.x.check(t, restored.q, 2)
		painted(restored, 2)
	})
}

// TestRecordedContents: the record alone says what the capture has.
func TestRecordedContents(t *testing.T) {
	onDevices(t, func(t *testing.T, open func() *Device) {
		d := open()
		newSetup(t, d, 1000).fill(t)
		c := must(d.Capture(context.Background(), nil))(t)
		defer func() { ok(t, c.Release()) }()
		got := must(RecordedContents(c.Record()))(t)
		want := c.Contents()
		if len(got) != len(want) || len(got) == 0 {
			t.Fatalf("got %v, want %v", got, want)
		}
		for i := range want {
			if got[i].Content != want[i] || got[i].Kind == "" {
				t.Errorf("content %d: got %+v, want %+v", i, got[i], want[i])
			}
		}
	})
	if _, err := RecordedContents([]byte("nothing")); err == nil {
		t.Error("read off what is no record")
	}
}

package gpustate

import (
	"bytes"
	"context"
	"testing"

	"github.com/holdfast-hpc/holdfast/gpustate/internal/object"
)

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

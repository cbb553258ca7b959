package gpustate

import (
	"bytes"
	"context"
	"testing"
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
			if _, there := d.names[key{kind: "buffer", name: "later"}]; there {
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

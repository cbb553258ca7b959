package gpustate

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"unsafe"

	"github.com/holdfast-hpc/holdfast/gpustate/internal/checkpoint"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/driver"
)

// TestRestoreFindsRoomLate: where the driver finds at the first use of an object that there is no memory for it, what
// captures have on the device leaves it for what is restored and for what is adopted, as for the program's own
// commands. A Restore has such a capture of its own if the program has written to the device before it.
func TestRestoreFindsRoomLate(t *testing.T) {
	const n = 5 << 20
	ctx := context.Background()
	first, _ := fakeDevice(t)
	q := must(first.Queue("q"))(t)
	fillWith(t, q, must(first.Buffer("b", n))(t), 7)
	must(first.Image("i", ImageDesc{Width: 9, Height: 7, Order: ChannelRGBA, Type: ChannelUint8}))(t)
	rec, contents := capture(t, first, nil)
	theirs := make([]byte, n)
	var pin runtime.Pinner
	pin.Pin(unsafe.SliceData(theirs))
	t.Cleanup(pin.Unpin) // after the devices are closed
	for name, do := range map[string]func(d *Device) error{
		"restored": func(d *Device) error { return d.Restore(ctx, rec, readFrom(contents)) },
		"share": func(d *Device) error {
			b, err := d.Buffer("b", n)
			return errors.Join(err, d.WriteShares(ctx, func(w *ShareWriter) error {
				return w.Write(b, Layout{}, Box{n, 1, 1}, contents[0], Layout{})
			}))
		},
		"boxes": func(d *Device) error {
			b, err := d.Buffer("b", n)
			return errors.Join(err, d.WriteShares(ctx, func(w *ShareWriter) error {
				return w.Write(b, Layout{}, Box{n / 4, 4, 1}, contents[0], Layout{})
			}))
		},
		"adopted": func(d *Device) error {
			_, err := d.Adopt("b", uintptr(unsafe.Pointer(unsafe.SliceData(theirs))), n)
			return err
		},
	} {
		for late := 1; late <= 3; late++ {
			d, lib := fakeDevice(t, func(i *driver.Info) { i.GlobalBytes, i.HostMemory = 8*n, false })
			d.state.Reserve = 0
			q := must(d.Queue("q"))(t)
			mine := must(d.Buffer("mine", n))(t)
			fillWith(t, q, mine, 9)
			if name == "adopted" {
				ok(t, d.Restore(ctx, rec, readFrom(contents)))
			}
			m := must(d.Mark(ctx, nil))(t)
			if checkpoint.ShadowBlocks(m.before) == 0 {
				t.Fatal("it has no shadow: this tests nothing")
			}
			lib.Faults.LateAlloc(late)
			err := do(d)
			lib.Faults.LateAlloc(0)
			if err != nil {
				t.Errorf("%s: command %d finds no memory: %v", name, late, err)
			} else {
				must(d.Buffer("b", n))(t).check(t, q, 7)
			}
			ok(t, m.Undo(ctx))
			mine.check(t, q, 9)
			ok(t, m.Release())
		}
	}
}

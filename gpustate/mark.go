package gpustate

import (
	"context"

	"github.com/holdfast-hpc/holdfast/gpustate/internal/driver"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/object"
)

// Mark is the state of a device before a Restore: Undo takes back what was restored
// since. The caller releases it.
type Mark struct {
	d      *Device
	record []byte
	before *Capture // nil: nothing had written to the device's memory
}

// Mark records the state of the device. It is cheap as long as the program has issued
// no command and restored nothing, as is usual before a Restore; otherwise it costs a
// Capture, with alloc for the host memory.
func (d *Device) Mark(ctx context.Context, alloc func(bytes int) []byte) (*Mark, error) {
	if err := d.stop(ctx); err != nil {
		return nil, err
	}
	defer d.start()
	m := &Mark{d: d, record: d.state.Table.Record().Encode()}
	if d.untouched() {
		return m, nil
	}
	var err error
	m.before, err = d.state.Capture(ctx, alloc)
	return m, err
}

// untouched says that nothing has written to the device's memory: no command was
// given to it, nothing was restored, and nothing that might have had a command was
// released. The device is stopped.
func (d *Device) untouched() bool {
	if d.state.Filled || d.lent.Load() || int(d.state.NextID) != len(d.state.List) {
		return false
	}
	for _, e := range d.state.List {
		if q, ok := e.Public.(*Queue); ok && q.commands.used {
			return false
		}
		if m := e.Record.Mem; m != nil && (m.Kind == driver.MemHost || m.Kind == driver.MemShared) {
			return false // the host writes to it without a command
		}
		if object.IsVariable(&e.Record) || e.Adopted != 0 { // it may begin with another value than zero
			return false
		}
	}
	return true
}

// Undo returns the device to the mark: it releases objects that a Restore has made
// since, and gives the others their earlier bytes and arguments. Memory that
// nothing had written to is zero.
func (m *Mark) Undo(ctx context.Context) error {
	return m.d.Restore(ctx, m.record, func(i int, dst []byte, off int64) error {
		if m.before == nil {
			clear(dst)
			return nil
		}
		return m.before.ReadAt(ctx, i, dst, off)
	})
}

// Release frees the mark's memory.
func (m *Mark) Release() error {
	if m == nil || m.before == nil {
		return nil
	}
	return m.before.Release()
}

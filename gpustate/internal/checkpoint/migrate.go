package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/holdfast-hpc/holdfast/gpustate/internal/driver"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/object"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/record"
)

// migration is a plan for all objects of a device. Each gets a second entry, for the
// new device, whose handle takes the place of the first one's at the end.
type migration struct{ plan }

// check looks at every object before the first one is made.
func (m *migration) check() error {
	var mems []*record.Object
	for i, e := range m.d.List {
		o := &m.rec.Objects[i]
		if k := e.Kernel; k != nil {
			if err := object.CheckGroup(m.s.Device, k); err != nil {
				return m.fail(o, err)
			}
		}
		if err := object.Check(m.s.Device, o); err != nil {
			return m.fail(o, err)
		}
		if e.Mapped != nil {
			return m.fail(o, object.ErrMapped)
		}
		if e.Adopted != 0 {
			return m.fail(o, object.ErrAdopted)
		}
		if o.Mem != nil {
			mems = append(mems, o)
		}
	}
	if err := object.CheckTotal(mems, m.s.Info()); err != nil {
		return fmt.Errorf("migrate to %s: %w", m.s.Info(), err)
	}
	return nil
}

// carryOut makes all objects on the new device and copies their bytes. The device keeps
// its own.
func (m *migration) carryOut(ctx context.Context) error {
	if err := m.check(); err != nil {
		return err
	}
	if err := m.plan.carryOut(ctx); err != nil {
		return err
	}
	if len(m.others) > 0 {
		v := m.others[0]
		return m.fail(&v.program.Record, fmt.Errorf("its form for that device has an additional variable %q: %w",
			v.variable.Record.Name, object.ErrConflict))
	}
	for i, e := range m.d.List {
		if k := e.Kernel; k != nil {
			if err := m.copyArgs(&m.rec.Objects[i], k); err != nil {
				return err
			}
		}
	}
	m.watch.Step(&m.watch.Report.Remap)
	return nil
}

// copyArgs gives the kernel on the new device the arguments that it has here.
func (m *migration) copyArgs(o *record.Object, k *object.Kernel) error {
	h := m.to[o.ID].Handle
	if err := object.CheckBuilt(m.s.Device, k, h); err != nil {
		return m.fail(o, err)
	}
	if n, exact := m.s.Args(h); exact && len(k.Args) > n {
		return m.fail(o, fmt.Errorf("it has %d arguments on the new device, %d on this one: %w", n, len(k.Args),
			object.ErrConflict))
	}
	if _, err := m.setArgs(o.Kernel, h); err != nil {
		return m.fail(o, err)
	}
	return nil
}

// copies bring the contents of an object to its second entry: between the devices
// if they can, otherwise through the host.
func (m *migration) copies(_ int, o *record.Object, there *object.Entry) []job {
	e := m.d.ByID(o.ID)
	if e.Host != nil {
		return nil // host memory stays where it is
	}
	m.watch.Report.Bytes += o.Mem.Bytes
	through := m.d.uploads(there, m.source(e), false)
	peer, ok := m.s.Device.(driver.PeerCopier)
	if !ok || o.Mem.Kind != driver.MemBuffer { // shared memory, too: Read and Write alone reach it everywhere
		return through
	}
	return []job{func(ctx context.Context, cp *copier) error {
		ok, err := peer.CopyFrom(cp.q, there.Handle, m.d.Session.Device, e.Handle, o.Mem.Bytes)
		for i := 0; !ok && err == nil && i < len(through); i++ {
			err = through[i](ctx, cp)
		}
		return err
	}}
}

// source reads an object's bytes from the old device.
func (m *migration) source(e *object.Entry) filler {
	return func(dst []byte, off int64, place driver.Place) error {
		cp, err := m.d.Session.take(&m.d.Session.reads)
		if err != nil {
			return err
		}
		defer m.d.Session.reads.give(cp)
		if place.Form == driver.FormPixels {
			_, err := cp.read(e.Handle, place, dst, true)
			return err
		}
		return cp.down(context.Background(), e.Handle, off, dst)
	}
}

// Move moves all objects of the device, which is stopped, to another one. On failure they stay. The old
// session is the caller's to release.
func (d *State) Move(ctx context.Context, to *Session, w *Stopwatch) error {
	m := &migration{plan{op: "migrate", d: d, s: to, rec: d.Table.Record(), to: map[uint64]*object.Entry{}, watch: w}}
	m.bytes = m.copies
	for i, e := range d.List {
		there := object.NewEntry(e.Table, moved(&m.rec.Objects[i]))
		there.Host, there.Borrowed = e.Host, true
		m.to[e.Record.ID] = there
		m.fresh = append(m.fresh, there)
	}
	if err := m.carryOut(ctx); err != nil {
		return errors.Join(err, m.undo())
	}
	var errs []error
	for i := len(m.d.List) - 1; i >= 0; i-- {
		e := m.d.List[i]
		errs = append(errs, e.Discard(m.d.Session.Device, e.Handle))
		e.Handle = m.to[e.Record.ID].Handle
		if e.Kernel != nil {
			e.Kernel.Resize(m.s.Device)
		}
	}
	m.d.Session = m.s
	m.d.Generation.Add(1)
	return errors.Join(errs...)
}

// SourceBuilds lists the programs that the device runs from their sources although they have a binary form for its API.
func (d *State) SourceBuilds() []SourceBuild {
	var list []SourceBuild
	for _, e := range d.List {
		if e.Record.Program == nil {
			continue
		}
		if why := d.Session.FallbackReason(e.Handle); why != "" {
			list = append(list, SourceBuild{Program: e.Name(), Kernels: d.functions(e), Why: why})
		}
	}
	return list
}

// functions returns the names of a program's kernels.
func (d *State) functions(program *object.Entry) []string {
	var names []string
	for _, e := range d.List {
		if e.Parent == program && e.Record.Kernel != nil {
			names = append(names, e.Record.Kernel.Function)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

package gpustate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-hpc/holdfast/gpustate/internal/driver"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/object"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/record"
)

// MigrateTo moves all objects to another device while the program runs: calls wait,
// commands that were issued complete, and every *Buffer, *Kernel and so on then
// works there. Every object is checked before the first one is made on the new
// device. On failure, or when ctx ends, the program continues on the old device.
//
// A program whose binary form the new device does not load is built there from its
// source, if it has one: Migration.FromSource and BuiltFromSource list it.
//
// A migration invalidates slices of Shared memory; while one is mapped, MigrateTo
// fails with ErrMapped.
func (d *Device) MigrateTo(ctx context.Context, sel Select) error {
	_, err := d.Migrate(ctx, sel)
	return err
}

// Migrate is MigrateTo; it also returns how long each step took.
func (d *Device) Migrate(ctx context.Context, sel Select) (Migration, error) {
	w := watch{begin: time.Now(), last: time.Now()}
	sel.inherit(d) // a device of this machine keeps it for the way back
	drv, err := openDriver(sel)
	if err != nil {
		return Migration{}, err
	}
	w.step(&w.m.Choose)
	if err = d.watched(ctx, drv, &w); err == nil {
		d.opened.Store(&sel)
	}
	w.m.Total = time.Since(w.begin)
	return w.m, err
}

func (d *Device) watched(ctx context.Context, drv driver.Device, w *watch) error {
	to := newSession(drv)
	if err := d.stop(ctx); err != nil {
		return errors.Join(err, to.release())
	}
	defer d.start()
	w.step(&w.m.Drain)
	w.m.From, w.m.To = d.Info().String(), drv.Info().String()
	m := newMigration(d, to, w)
	if err := m.carryOut(ctx); err != nil {
		return errors.Join(err, m.undo(), to.release())
	}
	err := m.change()
	w.m.FromSource = d.sourceBuilds()
	w.step(&w.m.Release)
	return err
}

// migration is a plan for all objects of a device. Each gets a second entry, for the
// new device, whose handle takes the place of the first one's at the end.
type migration struct{ plan }

func newMigration(d *Device, to *session, w *watch) *migration {
	m := &migration{plan{op: "migrate", d: d, s: to, rec: d.objects.Record(), to: map[uint64]*object.Entry{}, watch: w}}
	m.bytes = m.copies
	for i, e := range d.objects.List {
		there := object.NewEntry(e.Table, moved(&m.rec.Objects[i]))
		there.Host, there.Borrowed = e.Host, true
		m.to[e.Record.ID] = there
		m.fresh = append(m.fresh, there)
	}
	return m
}

// check looks at every object before the first one is made.
func (m *migration) check() error {
	var mems []*record.Object
	there := object.NewTarget(m.s.Device)
	for i, e := range m.d.objects.List {
		o := &m.rec.Objects[i]
		if k := e.Kernel; k != nil {
			if err := there.CheckGroup(k); err != nil {
				return m.fail(o, err)
			}
		}
		if err := there.Check(o); err != nil {
			return m.fail(o, err)
		}
		if e.Mapped != nil {
			return m.fail(o, ErrMapped)
		}
		if e.Adopted != 0 {
			return m.fail(o, ErrAdopted)
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
			v.variable.Record.Name, ErrConflict))
	}
	for i, e := range m.d.objects.List {
		if k := e.Kernel; k != nil {
			if err := m.copyArgs(&m.rec.Objects[i], k); err != nil {
				return err
			}
		}
	}
	m.watch.step(&m.watch.m.Remap)
	return nil
}

// copyArgs gives the kernel on the new device the arguments that it has here.
func (m *migration) copyArgs(o *record.Object, k *object.Kernel) error {
	h := m.to[o.ID].Handle
	if err := object.NewTarget(m.s.Device).CheckBuilt(k, h); err != nil {
		return m.fail(o, err)
	}
	if n, exact := m.s.Args(h); exact && len(k.Args) > n {
		return m.fail(o, fmt.Errorf("it has %d arguments on the new device, %d on this one: %w", n, len(k.Args),
			ErrConflict))
	}
	if _, err := m.setArgs(o.Kernel, h); err != nil {
		return m.fail(o, err)
	}
	return nil
}

// copies bring the contents of an object to its second entry: between the devices
// where they can, through the host where not.
func (m *migration) copies(_ int, o *record.Object, there *object.Entry) []job {
	e := m.d.objects.ByID(o.ID)
	if e.Host != nil {
		return nil // host memory stays where it is
	}
	m.watch.m.Bytes += o.Mem.Bytes
	through := m.d.uploads(there, m.source(e), false)
	peer, ok := m.s.Device.(driver.PeerCopier)
	if !ok || o.Mem.Kind != driver.MemBuffer { // shared memory, too: Read and Write alone reach it everywhere
		return through
	}
	return []job{func(ctx context.Context, l *lane) error {
		ok, err := peer.CopyFrom(l.q, there.Handle, m.d.drv.Device, e.Handle, o.Mem.Bytes)
		for i := 0; !ok && err == nil && i < len(through); i++ {
			err = through[i](ctx, l)
		}
		return err
	}}
}

// source reads an object's bytes from the old device.
func (m *migration) source(e *object.Entry) func(dst []byte, off int64) error {
	return func(dst []byte, off int64) error {
		l, err := m.d.drv.take(&m.d.drv.reads)
		if err != nil {
			return err
		}
		defer m.d.drv.reads.give(l)
		if e.Record.Mem.Kind == driver.MemImage {
			for _, s := range slabs(e.Record.Mem, pieceBytes) { // the same as those of uploads
				if s.off == off {
					_, err := l.drv.ReadImage(l.q, e.Handle, s.region, dst, true, nil)
					return err
				}
			}
		}
		return l.down(context.Background(), e.Handle, off, dst)
	}
}

// change switches to the new handles and releases the old ones.
func (m *migration) change() error {
	old := m.d.drv
	var errs []error
	for i := len(m.d.objects.List) - 1; i >= 0; i-- {
		e := m.d.objects.List[i]
		errs = append(errs, e.Discard(old.Device, e.Handle))
		e.Handle = m.to[e.Record.ID].Handle
	}
	if r, ok := old.Device.(driver.Movable); ok {
		r.OnMove(nil) // what it has to say concerns us no more
	}
	m.d.drv = m.s
	m.d.generation.Add(1)
	m.d.show()
	for p := range m.d.pinned {
		errs = append(errs, p.move(m.s))
	}
	for _, e := range m.d.objects.List {
		if k := e.Kernel; k != nil {
			k.Resize(m.s.Device)
		}
	}
	return errors.Join(append(errs, old.release())...)
}

// Migration reports the duration of a migration, step by step. The times add up to
// Total.
type Migration struct {
	From, To string
	Bytes    int64 // of contents

	// FromSource lists the programs whose binary form the new device did not load.
	FromSource []SourceBuild `json:",omitempty"`

	Choose  time.Duration // find and open the new device; the program runs
	Drain   time.Duration // wait for the calls in progress and for all commands
	Create  time.Duration // make the objects there; contents of those that are made begin to move
	Stream  time.Duration // move the rest of the contents; programs are built meanwhile
	Build   time.Duration // wait for the programs beyond that
	Remap   time.Duration // make the kernels and set their arguments
	Release time.Duration // switch over and release the old objects
	Total   time.Duration
}

// watch takes the times of a migration.
type watch struct {
	begin, last time.Time
	m           Migration
}

func (w *watch) step(step *time.Duration) {
	now := time.Now()
	*step = now.Sub(w.last)
	w.last = now
}

// inherit takes over from the device how servers are reached where s does not
// say it.
func (s *Select) inherit(d *Device) {
	was := d.opened.Load()
	if was == nil {
		return
	}
	if s.KeyFile == "" {
		s.KeyFile = was.KeyFile
	}
	if s.Silence == 0 {
		s.Silence = was.Silence
	}
	if s.Label == "" {
		s.Label = was.Label
	}
	s.Program, s.PID = was.Program, was.PID
	s.OpenCL = s.OpenCL || was.OpenCL || d.hasOpenCLAlone()
}

// hasOpenCLAlone tells whether the device's programs have no form for CUDA.
func (d *Device) hasOpenCLAlone() bool {
	d.making.Lock()
	defer d.making.Unlock()
	alone := false
	for _, e := range d.objects.List {
		if p := e.Record.Program; p != nil && (p.CUDA != "" || len(p.PTX) > 0) {
			return false
		}
		alone = alone || e.Record.Program != nil
	}
	return alone
}

// moveAway moves the device because its server asks for it: for maintenance, or
// to balance the load.
func (d *Device) moveAway(ctx context.Context, to string, tell func(steps string, err error)) {
	d.mu.RLock()
	old, closed := d.drv, d.closed.Load()
	if !closed {
		old.retain() // the server wants to know how it went
	}
	d.mu.RUnlock()
	if closed {
		tell("", ErrClosed)
		return
	}
	sel, err := ParseSelect(to)
	var m Migration
	if err == nil {
		m, err = d.Migrate(ctx, sel)
	}
	steps, _ := json.Marshal(m)
	tell(string(steps), err)
	_ = old.release() // a server that has gone meanwhile has released all
}

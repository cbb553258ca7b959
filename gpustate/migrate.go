package gpustate

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/holdfast-hpc/holdfast/gpustate/internal/driver"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/record"
)

// MigrateTo moves all objects to another device while the program runs: calls
// wait, commands that were issued complete, and every *Buffer, *Kernel and so
// on goes on working, there. Every object is looked at before the first one is
// made on the new device. On failure, or when ctx ends, the program goes on
// where it was.
//
// A program whose binary form the new device does not load is built there from its
// source, if it has one: Migration.FromSource and BuiltFromSource tell.
//
// A slice of Shared memory is not valid over a migration; while one is mapped,
// MigrateTo fails with ErrMapped.
func (d *Device) MigrateTo(ctx context.Context, sel Select) error {
	_, err := d.Migrate(ctx, sel)
	return err
}

// Migrate is MigrateTo that tells how long each step took.
func (d *Device) Migrate(ctx context.Context, sel Select) (Migration, error) {
	w := watch{begin: time.Now(), last: time.Now()}
	sel.inherit(d) // a device of this machine keeps it for the way back
	drv, err := openDriver(sel)
	if err != nil {
		return Migration{}, err
	}
	w.lap(&w.m.Choose)
	if err = d.watched(ctx, drv, &w); err == nil {
		d.opened.Store(&sel)
	}
	w.m.Total = time.Since(w.begin)
	return w.m, err
}

func (d *Device) migrate(ctx context.Context, drv driver.Device) error {
	return d.watched(ctx, drv, &watch{})
}

func (d *Device) watched(ctx context.Context, drv driver.Device, w *watch) error {
	m := &migration{d: d, to: newSession(drv), handles: map[uint64]driver.Handle{}, watch: w}
	if err := d.stop(ctx); err != nil {
		return errors.Join(err, m.to.drop())
	}
	defer d.start()
	w.lap(&w.m.Drain)
	w.m.From, w.m.To = d.Info().String(), drv.Info().String()
	if err := m.carryOut(ctx); err != nil {
		return errors.Join(err, m.undo())
	}
	err := m.change()
	w.m.FromSource = d.sourceBuilds()
	w.lap(&w.m.Release)
	return err
}

// migration is the new handles of a device's objects, by their ID.
type migration struct {
	d  *Device
	to *session

	mu      sync.Mutex
	handles map[uint64]driver.Handle
	watch   *watch
}

func (m *migration) fail(e *entry, err error) error {
	from := m.d.Info()
	return &ObjectError{Op: "migrate", Kind: e.obj.Kind(), Name: e.name(), Device: m.to.Info(), From: &from, Err: err}
}

func (m *migration) check() error {
	var mems []*record.Object
	there := newTarget(m.to.Device)
	for _, e := range m.d.list {
		o := e.obj
		if k, ok := e.owner.(*Kernel); ok {
			o.Kernel = k.recorded()
			if err := there.checkGroup(k); err != nil {
				return m.fail(e, err)
			}
		}
		if err := there.check(&o); err != nil {
			return m.fail(e, err)
		}
		if s, ok := e.owner.(*Shared); ok && s.mapped != nil {
			return m.fail(e, ErrMapped)
		}
		if e.obj.Mem != nil {
			mems = append(mems, &e.obj)
		}
	}
	if err := checkTotal(mems, m.to.Info()); err != nil {
		return fmt.Errorf("migrate to %s: %w", m.to.Info(), err)
	}
	return nil
}

// carryOut makes all objects on the new device and copies their bytes; programs
// are built meanwhile. The device keeps its own.
func (m *migration) carryOut(ctx context.Context) error {
	if err := m.check(); err != nil {
		return err
	}
	var builds sync.WaitGroup
	failed := make([]error, len(m.d.list))
	for i, e := range m.d.list {
		switch {
		case e.obj.Program != nil:
			builds.Go(func() { failed[i] = m.create(e) })
		case e.obj.Kernel == nil && !isVariable(&e.obj):
			if err := m.create(e); err != nil {
				builds.Wait()
				return err
			}
		}
	}
	m.watch.lap(&m.watch.m.Create)
	err := m.to.run(ctx, m.jobs(false))
	m.watch.lap(&m.watch.m.Stream)
	builds.Wait()
	m.watch.lap(&m.watch.m.Build)
	if err = errors.Join(append(failed, err)...); err != nil {
		return err
	}
	for _, e := range m.d.list {
		if e.obj.Program != nil {
			if err := m.variables(e); err != nil {
				return err
			}
		}
	}
	if err := m.to.run(ctx, m.jobs(true)); err != nil {
		return err
	}
	for _, e := range m.d.list {
		if k, ok := e.owner.(*Kernel); ok {
			if err := m.kernel(e, k); err != nil {
				return err
			}
		}
	}
	m.watch.lap(&m.watch.m.Remap)
	return nil
}

func (m *migration) create(e *entry) error {
	h, err := e.realize(m.to.Device, m.handle)
	if err != nil {
		return m.fail(e, err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.handles[e.obj.ID] = h
	return nil
}

func (m *migration) handle(id uint64) driver.Handle {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.handles[id]
}

// kernel makes a kernel with the arguments it has.
func (m *migration) kernel(e *entry, k *Kernel) error {
	if err := m.create(e); err != nil {
		return err
	}
	h := m.handle(e.obj.ID)
	if err := newTarget(m.to.Device).checkBuilt(k, h); err != nil {
		return m.fail(e, err)
	}
	if n, exact := m.to.Args(h); exact && len(k.args) > n {
		return m.fail(e, fmt.Errorf("it has %d arguments there, %d here: %w", n, len(k.args), ErrConflict))
	}
	for i := range k.args {
		a := k.args[i].driver()
		if o := k.args[i].object; o != nil {
			if a.Handle = m.handle(o.obj.ID); o.released.Load() || a.Handle == nil {
				continue // launching it fails as before
			}
		}
		if a.Kind == driver.ArgNone {
			continue
		}
		if err := m.to.SetArg(h, i, a); err != nil {
			return m.fail(e, fmt.Errorf("argument %d: %w", i, err))
		}
	}
	return nil
}

// jobs copy the contents of variables or of all other objects: between the devices where they can, through the host
// where not.
func (m *migration) jobs(variables bool) []job {
	peer, _ := m.to.Device.(driver.PeerCopier)
	var jobs []job
	for _, e := range m.d.list {
		if _, host := e.owner.(*HostBuffer); host || !e.obj.Mem.HasContents() || isVariable(&e.obj) != variables {
			continue // host memory stays where it is
		}
		m.watch.m.Bytes += e.obj.Mem.Bytes
		there := &entry{dev: m.d, obj: e.obj, owner: e.owner, h: m.handle(e.obj.ID)}
		through := there.uploads(m.source(e), false)
		if s, ok := e.owner.(*Shared); ok {
			through = []job{m.shared(s, there)}
		}
		if peer == nil || e.obj.Mem.Kind != driver.MemBuffer {
			jobs = append(jobs, through...)
			continue
		}
		jobs = append(jobs, func(ctx context.Context, l *lane) error {
			ok, err := peer.CopyFrom(l.q, there.h, m.d.drv.Device, e.h, e.obj.Mem.Bytes)
			for i := 0; !ok && err == nil && i < len(through); i++ {
				err = through[i](ctx, l)
			}
			return err
		})
	}
	return jobs
}

// shared moves a shared buffer. The old device maps it once, for all pieces.
func (m *migration) shared(s *Shared, there *entry) job {
	return func(ctx context.Context, l *lane) error {
		from, err := m.d.drv.take(&m.d.drv.reads)
		if err != nil {
			return err
		}
		defer m.d.drv.reads.give(from)
		write := func(fill func(dst []byte, off int64) error) error {
			return there.uploads(fill, false)[0](ctx, l)
		}
		if from.far() {
			return write(func(dst []byte, off int64) error { return from.down(ctx, s.h, off, dst) })
		}
		return from.mapped(s.h, func(b []byte) error {
			return write(func(dst []byte, off int64) error {
				copy(dst, b[off:])
				return nil
			})
		})
	}
}

// source reads an object's bytes from the old device.
func (m *migration) source(e *entry) func(dst []byte, off int64) error {
	return func(dst []byte, off int64) error {
		l, err := m.d.drv.take(&m.d.drv.reads)
		if err != nil {
			return err
		}
		defer m.d.drv.reads.give(l)
		if e.obj.Mem.Kind == driver.MemImage {
			for _, s := range slabs(e.obj.Mem, pieceBytes) { // the same as those of uploads
				if s.off == off {
					_, err := l.drv.ReadImage(l.q, e.h, s.region, dst, true, nil)
					return err
				}
			}
		}
		return l.down(context.Background(), e.h, off, dst)
	}
}

// change switches to the new handles and releases the old ones.
func (m *migration) change() error {
	old := m.d.drv
	var errs []error
	for i := len(m.d.list) - 1; i >= 0; i-- {
		e := m.d.list[i]
		errs = append(errs, release(old.Device, e.obj, e.h))
		e.h = m.handles[e.obj.ID]
	}
	if r, ok := old.Device.(driver.Movable); ok {
		r.OnMove(nil) // what it has to say concerns us no more
	}
	m.d.drv = m.to
	m.d.show()
	for p := range m.d.pins {
		errs = append(errs, p.move(m.to))
	}
	for _, e := range m.d.list {
		if k, ok := e.owner.(*Kernel); ok {
			k.resize()
		}
	}
	return errors.Join(append(errs, old.drop())...)
}

func (m *migration) undo() error {
	var errs []error
	for i := len(m.d.list) - 1; i >= 0; i-- {
		e := m.d.list[i]
		errs = append(errs, release(m.to.Device, e.obj, m.handles[e.obj.ID]))
	}
	return errors.Join(append(errs, m.to.drop())...)
}

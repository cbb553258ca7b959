package capture

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-hpc/holdfast/gpustate"
	"github.com/holdfast-hpc/holdfast/internal/program"
	"github.com/holdfast-hpc/holdfast/storage"
)

// The parts of reading a shard, in their order.
const (
	PartMemory   = "host memory"     // protected memory, read and verified
	PartObjects  = "device objects"  // the device stopped, objects, queues and staging memory made
	PartContents = "device contents" // read, verified and uploaded
	PartDeviceUp = "device ends"     // from the last byte read: uploads, programs, arguments
)

// Callbacks are called while shards are read.
type Callbacks struct {
	// Mailbox looks at the messages of a shard and changes nothing; deliver puts them in
	// force.
	Mailbox func(b []byte) (deliver func(), err error)
	// Over reports the time at which a part ended; the zero time means that it never began.
	Over func(at time.Time, part string)
	// Mismatch makes the error for a value that is saved and protected as different things; the empty one is missing.
	Mismatch func(name, saved, now string) error
}

// Restoring brings the shard of one epoch or, if that fails, of another into the protected state. It keeps the previous
// contents of memory and devices.
type Restoring struct {
	Callbacks
	p      *Protected
	backup *backup
	marks  map[string]*gpustate.Mark // devices as they were
}

// Restore begins to restore the protected state. The caller closes it.
func (p *Protected) Restore(c Callbacks) *Restoring {
	return &Restoring{Callbacks: c, p: p, backup: newBackup(p.pool, p.workers), marks: map[string]*gpustate.Mark{}}
}

// Close drops the previous contents, and gives the memory to captures.
func (r *Restoring) Close() {
	for name, m := range r.marks {
		if err := m.Release(); err != nil {
			r.p.log.Warn("holdfast: cannot release device memory that a restore used", "device", name, "error", err)
		}
	}
	r.backup.close()
	r.p.pool.claim()
	r.p.pool.HasGrown()
}

// An Attempt is one shard on its way into the program. It goes in three steps, and the
// ranks agree after each:
//
//  1. Open, ReadMemory and ReadDevices: every byte is read and verified. Large memory and device contents go to their
//     places at once, and the old contents are kept; all else is decoded and changes nothing. Memory whose contents
//     cannot be kept is verified and not touched.
//  2. Apply: the waiting parts are read, slices get their lengths, and the program's
//     own UnmarshalBinary and LoadFrom run.
//  3. Finish: mailbox and requests, which cannot fail. Another rank may be computing
//     already: windows, which it could reach, are memory of the first step.
//
// Undo after a step restores the state from before the first.
type Attempt struct {
	Fallible  bool     // Apply may fail: it reads, or runs the program's code
	Undefined []string // names of values that Undo cannot restore
	Stop      bool     // try no older epoch: one of them is a device, of which that may not hold all objects

	*Restoring
	sh      *storage.Shard // this rank's
	sizes   map[string]int64
	entries map[string]entry
	deliver func()         // of the messages
	steps   []step         // of Apply, in order
	undone  []func() error // of Undo, last first
	last    []func()       // of Finish
}

// step is a part of Apply.
type step struct {
	name  string
	do    func(ctx context.Context) error
	final bool // it cannot be taken back
}

// Attempt begins with nothing read.
func (r *Restoring) Attempt() *Attempt { return &Attempt{Restoring: r} }

// Open looks into this rank's shard: whether the program protects its contents, and at the messages.
func (a *Attempt) Open(ctx context.Context, sh *storage.Shard) error {
	a.sh, a.sizes = sh, map[string]int64{}
	for _, s := range sh.Sections() {
		a.sizes[s.Name] = s.Size
	}
	var err error
	if a.entries, err = table(ctx, sh); err != nil {
		return err
	}
	if err := a.compare(); err != nil {
		return err
	}
	mail := make([]byte, a.sizes[sectionMailbox])
	if err := sh.ReadAt(ctx, sectionMailbox, mail, 0); err != nil {
		return fmt.Errorf("restore mailbox: %w", err)
	}
	if a.deliver, err = a.Mailbox(mail); err != nil {
		return fmt.Errorf("restore mailbox: %w", err)
	}
	return nil
}

// ReadMemory reads the regions.
func (a *Attempt) ReadMemory(ctx context.Context) error {
	for _, r := range a.p.regions {
		if r.IsAbsent() {
			continue
		}
		e := a.entries[r.Name]
		if mem := a.sh.View(sectionData + r.Name); mem != nil && e.inline == nil && r.Foreign() != nil {
			if err := a.PutForeign(r.Foreign(), mem); err != nil {
				return fmt.Errorf("restore %q: %w", r.Name, err)
			}
			continue
		}
		read := func(ctx context.Context, dst []byte) error { return a.fill(ctx, dst, e) }
		verify := func(ctx context.Context) error {
			if e.inline != nil {
				return nil
			}
			return a.sh.Verify(ctx, sectionData+e.name)
		}
		if err := a.ReadRegion(ctx, r, e.size, read, verify); err != nil {
			return fmt.Errorf("restore %q: %w", r.Name, err)
		}
	}
	return nil
}

// ReadDevices reads the devices.
func (a *Attempt) ReadDevices(ctx context.Context) error {
	for _, d := range a.p.devices {
		if err := a.device(ctx, d); err != nil {
			return fmt.Errorf("restore %q: %w", d.Name, err)
		}
	}
	return nil
}

func table(ctx context.Context, sh *storage.Shard) (map[string]entry, error) {
	list, _, err := readVars(ctx, sh)
	if err != nil {
		return nil, fmt.Errorf("restore: %w", err)
	}
	entries := map[string]entry{}
	for _, e := range list {
		entries[e.name] = e
	}
	return entries, nil
}

func readVars(ctx context.Context, sh *storage.Shard) (list []entry, size int64, err error) {
	for _, s := range sh.Sections() {
		if s.Name == sectionVars {
			size = s.Size
		}
	}
	b := make([]byte, size)
	if err := sh.ReadAt(ctx, sectionVars, b, 0); err != nil {
		return nil, 0, err
	}
	list, err = decodeVars(b)
	return list, size, err
}

// compare checks that the program protects exactly the contents of the checkpoint.
func (a *Attempt) compare() error {
	const device = "a device"
	p := a.p
	var errs []error
	absent := map[string]bool{}
	for _, r := range p.regions {
		if absent[r.Name] = r.IsAbsent(); absent[r.Name] {
			continue
		}
		e, ok := a.entries[r.Name]
		if f := r.Foreign(); f != nil && ok && program.SameElements(e.kind, r.Kind()) {
			if err := f.takes(e.size); err != nil {
				errs = append(errs, fmt.Errorf("restore %q: %w", r.Name, err))
			}
		} else if !ok || e.kind != r.Kind() {
			errs = append(errs, a.Mismatch(r.Name, e.kind, r.Kind()))
		}
	}
	for _, d := range p.devices {
		if _, ok := a.sizes[sectionGPU+d.Name]; !ok {
			errs = append(errs, a.Mismatch(d.Name, "", device))
		}
	}
	for name, e := range a.entries {
		if !p.names[name] || absent[name] {
			errs = append(errs, a.Mismatch(name, e.kind, ""))
		}
	}
	for section := range a.sizes {
		name, ok := deviceName(section)
		if _, known := p.names[name]; ok && !known {
			errs = append(errs, a.Mismatch(name, device, ""))
		}
	}
	return errors.Join(errs...)
}

// deviceName returns the device whose object record a section is; the sections
// with contents have one more part to their names.
func deviceName(section string) (string, bool) {
	name, ok := strings.CutPrefix(section, sectionGPU)
	return name, ok && name != "" && !strings.Contains(name, "/")
}

// ReadRegion reads something of n bytes.
func (a *Attempt) ReadRegion(ctx context.Context, r Named, n int64, read func(ctx context.Context, dst []byte) error,
	verify func(ctx context.Context) error) error {
	s, err := r.stage(n)
	if err != nil {
		return err
	}
	if s.live {
		back := a.backup.save(s.dst)
		if back == nil {
			if err := verify(ctx); err != nil {
				return err
			}
			// The saved bytes are read when all ranks know theirs to be good.
			a.ReadLater(r.Name, func(ctx context.Context) error { return read(ctx, s.dst) })
			a.toApply(r.Name, s)
			return nil
		}
		a.OnUndo(func() error { back(); return nil })
	}
	if err := read(ctx, s.dst); err != nil {
		return err
	}
	if s.check != nil {
		if err := s.check(); err != nil {
			return err
		}
	}
	a.toApply(r.Name, s)
	if s.last != nil {
		a.OnFinish(s.last)
	}
	return nil
}

func (a *Attempt) fill(ctx context.Context, dst []byte, e entry) error {
	if e.inline != nil {
		copy(dst, e.inline)
		return nil
	}
	return a.sh.ReadAt(ctx, sectionData+e.name, dst, 0)
}

// PutForeign takes verified bytes in shared memory for an array of a program in another process.
func (a *Attempt) PutForeign(f *Foreign, mem []byte) error {
	s, err := f.stageFrom(mem)
	if err != nil {
		return err
	}
	a.OnFinish(s.last)
	return nil
}

// MakeRoom makes room for n bytes of such an array, in its Shared. The program copies them when all ranks have theirs.
func (a *Attempt) MakeRoom(f *Foreign, n int64) error {
	s, err := f.stage(n)
	if err == nil {
		a.OnFinish(s.last)
	}
	return err
}

// toApply enters the later steps of a region.
func (a *Attempt) toApply(name string, s *staged) {
	if s.apply != nil {
		a.Fallible = a.Fallible || s.runs()
		a.OnApply(name, s.apply, s.undo)
	}
}

// OnApply has apply called in the second step. Undo takes it back by undo; nil: nothing can.
func (a *Attempt) OnApply(name string, apply func() error, undo func()) {
	a.steps = append(a.steps, step{name, func(context.Context) error {
		if undo != nil {
			a.OnUndo(func() error { undo(); return nil })
		}
		return apply()
	}, undo == nil})
}

// ReadLater has read called in the second step. It is for memory whose contents there is no room to keep, and for
// bytes that were verified.
func (a *Attempt) ReadLater(name string, read func(ctx context.Context) error) {
	a.Fallible = true
	a.steps = append(a.steps, step{name, read, true})
}

// OnUndo adds a function for Undo, which calls the last one first.
func (a *Attempt) OnUndo(undo func() error) { a.undone = append(a.undone, undo) }

// OnFinish has f called in the third step.
func (a *Attempt) OnFinish(f func()) { a.last = append(a.last, f) }

// Keep copies mem, for back to restore it; nil without room.
func (r *Restoring) Keep(mem []byte) (back func()) { return r.backup.save(mem) }

func (a *Attempt) device(ctx context.Context, d Device) error {
	load := func(ctx context.Context) error { return a.fillDevice(ctx, d, a.sizes[sectionGPU+d.Name]) }
	mark, err := a.mark(ctx, d)
	if err != nil {
		return err
	}
	if mark == nil {
		for name := range a.sizes {
			if name == sectionGPU+d.Name || strings.HasPrefix(name, sectionGPU+d.Name+"/") {
				if err := a.sh.Verify(ctx, name); err != nil {
					return err
				}
			}
		}
		a.ReadLater(d.Name, func(ctx context.Context) error {
			a.Stop = true
			return load(ctx)
		})
		return nil
	}
	a.OnUndo(func() error { return mark.Undo(context.WithoutCancel(ctx)) })
	return load(ctx)
}

// fillDevice reads a device's objects and contents; size is that of their record.
func (a *Attempt) fillDevice(ctx context.Context, d Device, size int64) error {
	record := make([]byte, size)
	if err := a.sh.ReadAt(ctx, sectionGPU+d.Name, record, 0); err != nil {
		return err
	}
	var mu sync.Mutex
	var first, last time.Time // guarded by mu: when any reader began and the last one ended
	fill := func(i int, dst []byte, off int64) error {
		mu.Lock()
		if first.IsZero() {
			first = time.Now()
		}
		mu.Unlock()
		err := a.sh.ReadAt(ctx, contentSection(d.Name, i), dst, off)
		mu.Lock()
		defer mu.Unlock()
		last = time.Now()
		return err
	}
	err := a.restoreHashed(ctx, d, record, fill)
	a.Over(first, PartObjects)
	a.Over(last, PartContents)
	a.Over(time.Now(), PartDeviceUp)
	return err
}

// restoreHashed restores a device. If captures are hashed and it is worth it, it remembers the device's contents as
// those of the epoch: contents that the program does not change need not be read again for the next one.
func (a *Attempt) restoreHashed(ctx context.Context, d Device, record []byte,
	fill func(i int, dst []byte, off int64) error) error {
	h := a.p.hashesAt(d.Name)
	var bytes int64
	for _, s := range a.sh.Sections() {
		if strings.HasPrefix(s.Name, sectionGPU+d.Name+"/") {
			bytes += s.Size
		}
	}
	if h == nil || bytes < a.p.least {
		return d.Restore(ctx, record, fill)
	}
	list, err := d.RestoreHashed(ctx, record, fill)
	if err == nil && list != nil {
		a.OnFinish(func() { h.add(a.sh.Epoch(), hashTable{a.sh.Digest(), list}) })
	}
	return err
}

// mark notes a device as it was before the first attempt; nil when there is no room
// for its contents.
func (r *Restoring) mark(ctx context.Context, d Device) (*gpustate.Mark, error) {
	if m, ok := r.marks[d.Name]; ok {
		return m, nil
	}
	if !r.p.Holds(d.StateBytes()) {
		return nil, nil
	}
	m, err := d.Mark(ctx, r.p.AllocDevice)
	if err == nil {
		r.marks[d.Name] = m
	}
	return m, err
}

// Apply is the second step.
func (a *Attempt) Apply(ctx context.Context) error {
	for _, s := range a.steps {
		if s.final {
			a.Undefined = append(a.Undefined, s.name)
		}
		if err := s.do(ctx); err != nil {
			return fmt.Errorf("restore %q: %w", s.name, err)
		}
	}
	return nil
}

// Finish is the third step.
func (a *Attempt) Finish() {
	for _, f := range a.last {
		f()
	}
	if a.deliver != nil {
		a.deliver()
	}
}

// Undo restores the previous state, the last change first.
func (a *Attempt) Undo() error {
	var errs []error
	for i := len(a.undone) - 1; i >= 0; i-- {
		errs = append(errs, a.undone[i]())
	}
	a.undone = nil
	return errors.Join(errs...)
}

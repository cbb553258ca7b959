package capture

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
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

// A Loader brings shards into what is protected, of one epoch or, if that fails, of
// another. It has what memory and devices held before. The functions are called while
// it reads.
type Loader struct {
	// Mailbox looks at the messages of a shard and changes nothing; deliver puts them in
	// force.
	Mailbox func(b []byte) (deliver func(), err error)
	// Read counts bytes, from any goroutine.
	Read func(bytes int64)
	// Over says that a part was over at a time; the zero time says that it never began.
	Over func(at time.Time, part string)
	// Mismatch is the error for what is saved and what is protected as something else;
	// one of them is empty where there is no such thing.
	Mismatch func(name, saved, now string) error

	p      *Protected
	backup *backup
	marks  map[string]*gpustate.Mark // devices as they were
	shares map[*global]*gpustate.ShareMark
}

// Load fills in a Loader for what is protected. The caller closes it.
func (p *Protected) Load(l Loader) *Loader {
	l.p, l.backup, l.marks = p, newBackup(p.pool, p.workers), map[string]*gpustate.Mark{}
	l.shares = map[*global]*gpustate.ShareMark{}
	return &l
}

// Close forgets what was before, and leaves the memory to the captures.
func (l *Loader) Close(log *slog.Logger) {
	for name, m := range l.marks {
		if err := m.Release(); err != nil {
			log.Warn("holdfast: cannot release device memory that a restore used", "device", name, "error", err)
		}
	}
	if err := l.releaseShares(); err != nil {
		log.Warn("holdfast: cannot release device memory that a restore used", "error", err)
	}
	l.backup.close()
	l.p.pool.claim()
	l.p.pool.HasGrown()
}

// A Load is one shard on its way into the program. It goes in three steps, and the
// ranks agree after each:
//
//  1. Read: every byte is read and verified. Large memory and device contents go to
//     their places at once, with what was there before kept; all else is decoded and
//     changes nothing. What cannot be kept is verified and not touched.
//  2. Apply: what had to wait is read, slices get their lengths, and the program's
//     own UnmarshalBinary and LoadFrom run.
//  3. Finish: mailbox and requests, which cannot fail. Another rank may be computing
//     already: windows, which it could reach, are memory of the first step.
//
// Undo after a step makes everything what it was before the first.
type Load struct {
	Fallible  bool     // Apply may fail: it reads, or runs the program's code
	Undefined []string // names of what Undo cannot bring back
	Stop      bool     // try no older epoch: one of them is a device, of which that may not hold all objects

	// Assigned is who gets which items, which the ranks have to agree on before Apply.
	Assigned []Assignment

	l      *Loader
	src    Source
	sh     *storage.Shard   // this rank's; nil: there is none
	later  map[*global]bool // read by Apply, or there already
	steps  []step           // of Apply, in order
	undone []func() error   // of Undo, last first
	last   []func()         // of Finish
}

// step is a part of Apply.
type step struct {
	name  string
	do    func(ctx context.Context) error
	final bool // it cannot be taken back
}

// New makes a Load of nothing so far.
func (l *Loader) New() *Load { return &Load{l: l, later: map[*global]bool{}} }

// Read is the first step. An epoch of another number of ranks has no shard of this one, so it gives arrays and
// replicated values alone.
func (a *Load) Read(ctx context.Context, src Source) error {
	if a.src, a.sh = src, src.Own(); a.sh == nil {
		return a.arrays(ctx)
	}
	sizes := map[string]int64{}
	for _, s := range a.sh.Sections() {
		sizes[s.Name] = s.Size
	}
	entries, err := table(ctx, a.sh, sizes[sectionVars])
	if err != nil {
		return err
	}
	if err := a.compare(entries, sizes); err != nil {
		return err
	}
	mail := make([]byte, sizes[sectionMailbox])
	if err := a.sh.ReadAt(ctx, sectionMailbox, mail, 0); err != nil {
		return fmt.Errorf("restore mailbox: %w", err)
	}
	deliver, err := a.l.Mailbox(mail)
	if err != nil {
		return fmt.Errorf("restore mailbox: %w", err)
	}
	for _, r := range a.l.p.regions {
		if r.isAbsent() {
			continue
		}
		e := entries[r.name]
		if mem := a.sh.View(sectionData + r.name); mem != nil && e.inline == nil && r.isElsewhere() {
			s, err := r.region.(*elsewhere).stageFrom(mem)
			if err != nil {
				return fmt.Errorf("restore %q: %w", r.name, err)
			}
			a.last = append(a.last, s.last)
			a.l.Read(e.size)
			continue
		}
		read := func(ctx context.Context, dst []byte) error { return a.fill(ctx, dst, e) }
		verify := func(ctx context.Context) error {
			if e.inline != nil {
				return nil
			}
			return a.sh.Verify(ctx, sectionData+e.name)
		}
		if err := a.region(ctx, r, e.size, read, verify); err != nil {
			return fmt.Errorf("restore %q: %w", r.name, err)
		}
		a.l.Read(entries[r.name].size)
	}
	if err := a.arrays(ctx); err != nil {
		return err
	}
	a.l.Over(time.Now(), PartMemory)
	for _, d := range a.l.p.devices {
		if err := a.device(ctx, d, sizes); err != nil {
			return fmt.Errorf("restore %q: %w", d.Name, err)
		}
	}
	a.last = append(a.last, deliver)
	return nil
}

// table reads the table of variables.
func table(ctx context.Context, sh *storage.Shard, size int64) (map[string]entry, error) {
	b := make([]byte, size)
	if err := sh.ReadAt(ctx, sectionVars, b, 0); err != nil {
		return nil, fmt.Errorf("restore: %w", err)
	}
	list, err := decodeVars(b)
	if err != nil {
		return nil, fmt.Errorf("restore: %w", err)
	}
	entries := map[string]entry{}
	for _, e := range list {
		entries[e.name] = e
	}
	return entries, nil
}

// compare checks that the program protects just what the checkpoint holds.
func (a *Load) compare(entries map[string]entry, sizes map[string]int64) error {
	const device = "a device"
	p, differ := a.l.p, a.l.Mismatch
	var errs []error
	absent := map[string]bool{}
	for _, r := range p.regions {
		if absent[r.name] = r.isAbsent(); absent[r.name] {
			continue
		}
		e, ok := entries[r.name]
		if far, is := r.region.(*elsewhere); is && ok && program.SameElements(e.kind, r.kind()) {
			if err := far.takes(e.size); err != nil {
				errs = append(errs, fmt.Errorf("restore %q: %w", r.name, err))
			}
		} else if !ok || e.kind != r.kind() {
			errs = append(errs, differ(r.name, e.kind, r.kind()))
		}
	}
	for _, d := range p.devices {
		if _, ok := sizes[sectionGPU+d.Name]; !ok {
			errs = append(errs, differ(d.Name, "", device))
		}
	}
	for name, e := range entries {
		if !p.names[name] || absent[name] || p.isGlobal(name) {
			errs = append(errs, differ(name, e.kind, ""))
		}
	}
	for section := range sizes {
		if name, ok := deviceName(section); ok && !p.names[name] {
			errs = append(errs, differ(name, device, ""))
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

// region reads something of n bytes.
func (a *Load) region(ctx context.Context, r namedRegion, n int64, read func(ctx context.Context, dst []byte) error,
	verify func(ctx context.Context) error) error {
	s, err := r.stage(n)
	if err != nil {
		return err
	}
	if s.live {
		back := a.l.backup.save(s.dst)
		if back == nil {
			if err := verify(ctx); err != nil {
				return err
			}
			a.postpone(r.name, s, read)
			return nil
		}
		a.undone = append(a.undone, func() error { back(); return nil })
	}
	if err := read(ctx, s.dst); err != nil {
		return err
	}
	if s.check != nil {
		if err := s.check(); err != nil {
			return err
		}
	}
	a.toApply(r.name, s)
	if s.last != nil {
		a.last = append(a.last, s.last)
	}
	return nil
}

// fill reads what an entry stands for.
func (a *Load) fill(ctx context.Context, dst []byte, e entry) error {
	if e.inline != nil {
		copy(dst, e.inline)
		return nil
	}
	return a.sh.ReadAt(ctx, sectionData+e.name, dst, 0)
}

// toApply enters what is to be done with a region's bytes.
func (a *Load) toApply(name string, s *staged) {
	if s.apply == nil {
		return
	}
	a.Fallible = a.Fallible || s.runs()
	a.steps = append(a.steps, step{name, func(context.Context) error {
		if s.undo != nil {
			a.undone = append(a.undone, func() error { s.undo(); return nil })
		}
		return s.apply()
	}, s.undo == nil})
}

// postpone is for memory whose contents there is no room to keep: the saved bytes were
// verified, and are read when all ranks know theirs to be good.
func (a *Load) postpone(name string, s *staged, read func(ctx context.Context, dst []byte) error) {
	a.Fallible = true
	a.steps = append(a.steps, step{name, func(ctx context.Context) error { return read(ctx, s.dst) }, true})
	a.toApply(name, s)
}

func (a *Load) device(ctx context.Context, d Device, sizes map[string]int64) error {
	load := func(ctx context.Context) error { return a.fillDevice(ctx, d, sizes[sectionGPU+d.Name]) }
	mark, err := a.l.mark(ctx, d)
	if err != nil {
		return err
	}
	if mark == nil {
		for name := range sizes {
			if name == sectionGPU+d.Name || strings.HasPrefix(name, sectionGPU+d.Name+"/") {
				if err := a.sh.Verify(ctx, name); err != nil {
					return err
				}
			}
		}
		a.Fallible = true
		a.steps = append(a.steps, step{d.Name, func(ctx context.Context) error {
			a.Stop = true
			return load(ctx)
		}, true})
		return nil
	}
	a.undone = append(a.undone, func() error { return mark.Undo(context.WithoutCancel(ctx)) })
	return load(ctx)
}

// fillDevice reads a device's objects and contents; size is that of their record.
func (a *Load) fillDevice(ctx context.Context, d Device, size int64) error {
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
		a.l.Read(int64(len(dst)))
		mu.Lock()
		defer mu.Unlock()
		last = time.Now()
		return err
	}
	err := a.restoreHashed(ctx, d, record, fill)
	a.l.Over(first, PartObjects)
	a.l.Over(last, PartContents)
	a.l.Over(time.Now(), PartDeviceUp)
	return err
}

// restoreHashed restores a device and, where captures are hashed and it is worth it, remembers what the device then
// held as the contents of the epoch: what the program does not change need not be read again for the next one.
func (a *Load) restoreHashed(ctx context.Context, d Device, record []byte,
	fill func(i int, dst []byte, off int64) error) error {
	h := a.l.p.hashesAt(d.Name)
	var bytes int64
	for _, s := range a.sh.Sections() {
		if strings.HasPrefix(s.Name, sectionGPU+d.Name+"/") {
			bytes += s.Size
		}
	}
	if h == nil || bytes < a.l.p.least {
		return d.Restore(ctx, record, fill)
	}
	list, err := d.RestoreHashed(ctx, record, fill)
	if err == nil && list != nil {
		a.last = append(a.last, func() { h.add(a.sh.Epoch(), hashTable{a.sh.Digest(), list}) })
	}
	return err
}

// mark notes a device as it was before the first attempt; nil when there is no room
// for its contents.
func (l *Loader) mark(ctx context.Context, d Device) (*gpustate.Mark, error) {
	if m, ok := l.marks[d.Name]; ok {
		return m, nil
	}
	if limit := l.p.pool.limit; limit > 0 && d.StateBytes() > limit {
		return nil, nil
	}
	m, err := d.Mark(ctx, l.p.pool.allocDevice)
	if err == nil {
		l.marks[d.Name] = m
	}
	return m, err
}

// Apply is the second step.
func (a *Load) Apply(ctx context.Context) error {
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
func (a *Load) Finish() {
	for _, f := range a.last {
		f()
	}
}

// Undo makes everything what it was, the last change first.
func (a *Load) Undo() error {
	var errs []error
	for i := len(a.undone) - 1; i >= 0; i-- {
		errs = append(errs, a.undone[i]())
	}
	a.undone = nil
	return errors.Join(errs...)
}

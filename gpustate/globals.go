package gpustate

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/holdfast-hpc/holdfast/gpustate/internal/driver"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/record"
)

// Stateless is an option of Device.Program: captures and migrations ignore what the
// program keeps outside memory objects. Such are variables at program scope
// (__device__ and __managed__ of CUDA, program-scope and static variables of OpenCL
// C 2.0 and later) and memory that kernels allocate.
//
// Without it the variables of a CUDA program are captured, restored and moved like
// buffers, and a program with others is refused with ErrHidden.
const Stateless = "-holdfast-stateless"

func stateless(p *record.Program) bool {
	for _, w := range strings.Fields(p.Options) {
		if w == Stateless {
			return true
		}
	}
	return false
}

// compilerOptions are a program's options without ours.
func compilerOptions(p *record.Program) string {
	if !stateless(p) {
		return p.Options
	}
	var words []string
	for _, w := range strings.Fields(p.Options) {
		if w != Stateless {
			words = append(words, w)
		}
	}
	return strings.Join(words, " ")
}

// ErrNoVariable says that a program has no such variable, or that the device cannot find it.
var ErrNoVariable = errors.New("no such variable of the program")

// isVariable says whether an object is a program's variable, which comes and goes
// with the program.
func isVariable(o *record.Object) bool { return o.Mem != nil && o.Mem.Kind == driver.MemGlobal }

// findVariables gives entries for the variables of a program that was just built,
// with handles, without a place in the device.
func (p *entry) findVariables(drv driver.Device, h driver.Handle) (list []*entry, err error) {
	l, ok := drv.(driver.GlobalLister)
	if !ok || stateless(p.obj.Program) {
		return nil, nil
	}
	globals, err := l.Globals(h)
	if errors.Is(err, driver.ErrHidden) {
		return nil, fmt.Errorf("%w: move the data to a Buffer, or give the option %s if checkpoints do not need it",
			err,
			Stateless)
	}
	for _, g := range globals {
		v := wrap(p.dev, record.Object{Name: g.Name, Mem: &record.Mem{Kind: driver.MemGlobal, Bytes: g.Bytes}})
		if v.h, err = drv.CreateMem(driver.MemDesc{Kind: driver.MemGlobal, Bytes: g.Bytes, Parent: h,
			Name: g.Name}); err != nil {
			return nil, errors.Join(fmt.Errorf("variable %q: %w", g.Name, err), releaseAll(drv, list))
		}
		list = append(list, v)
	}
	return list, err
}

// findVariable gives an entry for one variable of a program, which need not be one that kernels
// write: nil if the program has none of that name or the device cannot find it. Nobody has written it yet.
func (p *entry) findVariable(s *session, h driver.Handle, name string) (*entry, error) {
	finder, ok := s.Device.(driver.GlobalFinder)
	if !ok || stateless(p.obj.Program) {
		return nil, nil
	}
	g, ok := finder.Global(h, name)
	if !ok {
		return nil, nil
	}
	v := wrap(p.dev, record.Object{Name: g.Name, Mem: &record.Mem{Kind: driver.MemGlobal, Bytes: g.Bytes}})
	var err error
	if v.h, err = s.CreateMem(driver.MemDesc{Kind: driver.MemGlobal, Bytes: g.Bytes, Parent: h,
		Name: g.Name}); err != nil {
		return nil, err
	}
	v.initial = make([]byte, g.Bytes)
	if err := s.read(v.h, v.initial); err != nil {
		return nil, errors.Join(err, release(s.Device, v.obj, v.h))
	}
	return v, nil
}

// Variable gives a variable at program scope as a buffer that commands read and write and
// kernels take as an argument: a __device__ or __managed__ one of CUDA, or a __constant__ one, which
// is state from then on and captured as the others are. (Before it holds what the source says.) The
// name is the one in the binary: that of the source for variables at file scope that are not
// static, mangled for others.
//
// The buffer comes and goes with its program: Release of it alone, ranges of it, a variable that the
// program does not have, and all of a Stateless program are errors.
func (p *Program) Variable(name string) (*Buffer, error) {
	p.dev.making.Lock()
	defer p.dev.making.Unlock()
	if err := p.dev.enter(); err != nil {
		return nil, err
	}
	defer p.dev.leave()
	op := fmt.Sprintf("give the variable %q of", name)
	if p.released.Load() {
		return nil, p.fail(op, ErrReleased)
	}
	for _, v := range p.variables {
		if v.obj.Name == name {
			return v.owner.(*Buffer), nil
		}
	}
	v, err := p.findVariable(p.dev.drv, p.h, name)
	switch {
	case err != nil:
		return nil, p.fail(op, err)
	case v == nil && stateless(p.obj.Program):
		return nil, p.fail(op, fmt.Errorf("the program has the option %s: %w", Stateless, ErrUnsupported))
	case v == nil:
		return nil, p.fail(op, fmt.Errorf("this device finds none of that name: %w", ErrNoVariable))
	}
	p.dev.addVariable(p.entry, v)
	return v.owner.(*Buffer), nil
}

// read brings all bytes of a memory object to the host.
func (s *session) read(h driver.Handle, dst []byte) error {
	l, err := s.take(&s.reads)
	if err != nil {
		return err
	}
	defer s.reads.give(l)
	return l.down(context.Background(), h, 0, dst)
}

// unasked are the variables of programs in a record that the program had not asked for when it was
// made: they had their first values then.
func (p *restoration) unasked() (jobs []job) {
	for i := range p.rec.Objects {
		program := p.to[p.rec.Objects[i].ID]
		if p.rec.Objects[i].Program == nil || program == nil {
			continue
		}
		for _, v := range program.variables {
			if v.initial != nil && !p.taken[v] {
				jobs = append(jobs, v.uploads(func(dst []byte, off int64) error {
					copy(dst, v.initial[off:])
					return nil
				}, false)...)
			}
		}
	}
	return jobs
}

func releaseAll(drv driver.Device, list []*entry) error {
	var errs []error
	for _, e := range list {
		errs = append(errs, release(drv, e.obj, e.h))
	}
	return errors.Join(errs...)
}

// addVariable gives a variable its place, behind its program; making is held.
func (d *Device) addVariable(p, v *entry) {
	v.obj.Mem.Parent, v.claimed = p.obj.ID, true
	p.variables = append(p.variables, v)
	d.add(v, nil)
}

// forgetVariables takes the variables of a program out that goes.
func (d *Device) forgetVariables(p *entry) error {
	var errs []error
	for _, v := range p.variables {
		if v.end() {
			delete(d.names, v.key())
			errs = append(errs, d.forget(v))
		}
	}
	p.variables = nil
	return errors.Join(errs...)
}

package gpustate

import (
	"errors"
	"fmt"
	"strings"

	"github.com/holdfast-hpc/holdfast/gpustate/internal/driver"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/record"
)

// Stateless is an option of Device.Program: what the program keeps outside of
// memory objects need not be kept, neither by captures nor by moves. Such are
// variables at program scope (__device__ and __managed__ of CUDA, program-scope
// and static variables of OpenCL C 2.0 and later) and memory that kernels allocate.
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
		return nil, fmt.Errorf("%w: keep it in a Buffer, or give the option %s if nothing of it must be kept", err,
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
		if !v.released.Swap(true) {
			delete(d.names, v.key())
			errs = append(errs, d.forget(v))
		}
	}
	p.variables = nil
	return errors.Join(errs...)
}

// matchVariables finds the recorded variables among those of a program that was
// just built. Others of the program are added too: the next capture needs them.
func (p *plan) matchVariables(o *record.Object, program *entry) error {
	list, err := program.findVariables(p.d.drv.Device, program.h)
	if err != nil {
		return p.fail(o, err)
	}
	found := map[string]*entry{}
	for _, v := range list {
		found[v.obj.Name] = v
	}
	for i := range p.rec.Objects {
		r := &p.rec.Objects[i]
		if !isVariable(r) || r.Mem.Parent != o.ID || p.to[r.ID] == nil {
			continue
		}
		v := found[r.Name]
		switch {
		case v == nil:
			err = p.fail(r, errNoVariable)
		case v.obj.Mem.Bytes != r.Mem.Bytes:
			err = p.fail(r, &SizeError{Have: v.obj.Mem.Bytes, Want: r.Mem.Bytes})
		default:
			p.to[r.ID].h = v.h
			delete(found, r.Name)
		}
		if err != nil {
			break
		}
	}
	for _, v := range list { // in their order
		if found[v.obj.Name] == v {
			p.fresh = append(p.fresh, v)
			p.others = append(p.others, variableOf{program, v})
		}
	}
	return err
}

// errNoVariable is a variable that the record has and the program has not.
var errNoVariable = fmt.Errorf("the program has no such variable: %w", ErrConflict)

// variableOf is a variable and its program.
type variableOf struct{ program, variable *entry }

// variables makes the variables of a program on the new device, where it must have
// the same.
func (m *migration) variables(p *entry) error {
	list, err := p.findVariables(m.to.Device, m.handle(p.obj.ID))
	if err != nil {
		return m.fail(p, err)
	}
	there := map[string]*entry{}
	for _, v := range list {
		there[v.obj.Name] = v
	}
	for _, v := range p.variables {
		t := there[v.obj.Name]
		switch {
		case t == nil:
			err = m.fail(v, errNoVariable)
		case t.obj.Mem.Bytes != v.obj.Mem.Bytes:
			err = m.fail(v, &SizeError{Have: t.obj.Mem.Bytes, Want: v.obj.Mem.Bytes})
		default:
			m.handles[v.obj.ID] = t.h
			delete(there, v.obj.Name)
		}
	}
	for _, t := range there {
		if err == nil {
			err = m.fail(p, fmt.Errorf("its form for that device has the variable %q too: %w", t.obj.Name, ErrConflict))
		}
		err = errors.Join(err, release(m.to.Device, t.obj, t.h))
	}
	return err
}

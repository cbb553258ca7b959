package gpustate

import (
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

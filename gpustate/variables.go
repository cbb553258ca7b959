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
		v, err := p.variable(drv, h, g)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("variable %q: %w", g.Name, err), releaseAll(drv, list))
		}
		list = append(list, v)
	}
	return list, err
}

// findVariable gives an entry for one variable of a program, which need not be one that kernels
// write: nil if the program has none of that name or the device cannot find it.
func (p *entry) findVariable(drv driver.Device, h driver.Handle, name string) (*entry, error) {
	finder, ok := drv.(driver.GlobalFinder)
	if !ok || stateless(p.obj.Program) {
		return nil, nil
	}
	g, ok := finder.Global(h, name)
	if !ok {
		return nil, nil
	}
	return p.variable(drv, h, g)
}

// variable gives an entry for a variable of a program that was built as h.
func (p *entry) variable(drv driver.Device, h driver.Handle, g driver.Global) (v *entry, err error) {
	v = newEntry(p.of, record.Object{Name: g.Name, Mem: &record.Mem{Kind: driver.MemGlobal, Bytes: g.Bytes}})
	v.h, err = drv.CreateMem(driver.MemDesc{Kind: driver.MemGlobal, Bytes: g.Bytes, Parent: h, Name: g.Name})
	return v, err
}

func releaseAll(drv driver.Device, list []*entry) error {
	var errs []error
	for _, e := range list {
		errs = append(errs, e.discard(drv, e.h))
	}
	return errors.Join(errs...)
}

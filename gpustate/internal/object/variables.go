package object

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/holdfast-hpc/holdfast/gpustate/internal/driver"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/record"
)

// Stateless is the option of programs whose state outside of memory objects is not captured.
const Stateless = "-holdfast-stateless"

// IsStateless reports whether a program has the option Stateless.
func IsStateless(p *record.Program) bool {
	return slices.Contains(strings.Fields(p.Options), Stateless)
}

// CompilerOptions returns a program's options without ours.
func CompilerOptions(p *record.Program) string {
	if !IsStateless(p) {
		return p.Options
	}
	ours := func(w string) bool { return w == Stateless }
	return strings.Join(slices.DeleteFunc(strings.Fields(p.Options), ours), " ")
}

// IsVariable reports whether an object is a program's variable, which comes and goes
// with the program.
func IsVariable(o *record.Object) bool { return o.Mem != nil && o.Mem.Kind == driver.MemGlobal }

// FindVariables gives entries for the variables of a program that was just built,
// with handles, without a place in the device.
func (p *Entry) FindVariables(drv driver.Device, h driver.Handle) (list []*Entry, err error) {
	if IsStateless(p.Record.Program) {
		return nil, nil
	}
	globals, err := drv.Globals(h)
	if errors.Is(err, driver.ErrHidden) {
		return nil, fmt.Errorf("%w: move the data to a Buffer, or give the option %s if checkpoints do not need it",
			err, Stateless)
	}
	for _, g := range globals {
		v, err := p.variable(drv, h, g)
		if err != nil {
			err = fmt.Errorf("variable %q: %w", g.Name, err)
			for _, e := range list {
				err = errors.Join(err, e.Discard(drv, e.Handle))
			}
			return nil, err
		}
		list = append(list, v)
	}
	return list, err
}

// FindVariable gives an entry for one variable of a program, which need not be one that kernels
// write: nil if the program has none of that name or the device cannot find it.
func (p *Entry) FindVariable(drv driver.Device, h driver.Handle, name string) (*Entry, error) {
	if IsStateless(p.Record.Program) {
		return nil, nil
	}
	g, ok := drv.Global(h, name)
	if !ok {
		return nil, nil
	}
	return p.variable(drv, h, g)
}

// variable gives an entry for a variable of a program that was built as h.
func (p *Entry) variable(drv driver.Device, h driver.Handle, g driver.Global) (v *Entry, err error) {
	v = NewEntry(p.Table, record.Object{Name: g.Name, Mem: &record.Mem{Kind: driver.MemGlobal, Bytes: g.Bytes}})
	v.Handle, err = drv.CreateMem(driver.MemDesc{Kind: driver.MemGlobal, Bytes: g.Bytes, Parent: h, Name: g.Name})
	return v, err
}

package checkpoint

import (
	"slices"

	"github.com/holdfast-hpc/holdfast/gpustate/internal/driver"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/object"
)

// SourceBuild is a program that a device runs from its source, because it did not load
// the binary form that goes before: PTX, a cubin, a fatbin or SPIR-V of Sources. The source
// may compute in another order, and takes a compiler and time at each start.
type SourceBuild struct {
	Program string   // its name, or "#n" for program n without one
	Kernels []string // functions of the kernels that live, sorted
	Why     string   // what the device or its driver said of the binary form
}

// SourceBuilds lists the programs that the device runs from their sources although they have a binary form for its API.
func (d *State) SourceBuilds() []SourceBuild {
	teller, ok := d.Session.Device.(driver.FallbackReporter)
	if !ok {
		return nil
	}
	var list []SourceBuild
	for _, e := range d.List {
		if e.Record.Program == nil {
			continue
		}
		if why := teller.FallbackReason(e.Handle); why != "" {
			list = append(list, SourceBuild{Program: e.Name(), Kernels: d.functions(e), Why: why})
		}
	}
	return list
}

// functions are the names of a program's kernels.
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

// Package fake is a GPU in plain Go, for tests: memory is byte slices and kernels are
// Go functions registered by name. Faults can be asked for, which no real device gives
// on demand.
//
// It does only things that the standards allow. Commands begin when somebody waits, in any order that queues and events
// leave open. New memory holds a pattern; memory that is mapped is the host's own until it is unmapped. Use after
// release ends the process.
//
// A program is any text that contains the names of its kernels; text with
// "#error" does not build. Its sources count, or Binary given as PTX or SPIR-V. "global NAME BYTES"
// is a variable of the program, which begins as zero, "constant NAME BYTES" one that only the host
// writes. "hidden" is data of the program that cannot
// be reached.
package fake

import (
	"fmt"
	"sync"

	"github.com/holdfast-hpc/holdfast/gpustate/internal/driver"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/drivers"
)

// Launch has the arguments of a kernel function: the index space and the kernel's arguments.
type Launch struct {
	driver.Grid
	Args    []Arg
	Globals map[string][]byte // the program's variables
	Text    string            // the program
}

// Binary returns the binary form of a program's text. Devices of that Info.Arch load it.
func Binary(arch, text string) []byte { return []byte("fake binary for " + arch + "\n" + text) }

// Arg is one argument: the bytes of a memory object, of local memory (zeroed)
// or of a value; or a sampler.
type Arg struct {
	Bytes   []byte
	Sampler driver.SamplerDesc
}

// Kernel is a function that computes a whole index space.
type Kernel func(Launch)

type registered struct {
	args  int
	types []int // types of RegisterTyped, or nil
	f     Kernel
}

// Types of arguments for RegisterTyped besides values, which are known by their size.
const (
	Memory  = 0
	Local   = -1
	Sampler = -2
)

var registry sync.Map // name -> registered

// Register makes a kernel with this number of arguments known to all fake
// devices. Registering a name again replaces it.
func Register(name string, args int, f Kernel) { registry.Store(name, registered{args: args, f: f}) }

// RegisterTyped is Register for a kernel whose arguments are of these types. Others
// are refused, as by OpenCL.
func RegisterTyped(name string, types []int, f Kernel) {
	registry.Store(name, registered{len(types), types, f})
}

// System is the set of fake devices that gpustate finds.
var System = &Library{}

func init() { drivers.Add(System) }

// Library is a set of fake devices. The zero value has two of the default kind,
// the second with lazy queues and kernels that may have more arguments than told.
type Library struct {
	Infos  []driver.Info // devices; nil: two of Default
	Faults Faults
	// Formats lists order and type of the images of a shape that the devices have; nil: all.
	Formats func(shape int) [][2]uint32
	// Idle devices execute no command, for benchmarks.
	Idle bool
}

// Default describes a fake device when a Library names none.
var Default = driver.Info{
	Kind: "fake", Platform: "Fake", Vendor: "Holdfast", Name: "plain Go", Version: "1",
	Type: "accelerator", Arch: "go",
	GlobalBytes: 1 << 30, MaxAllocBytes: 256 << 20, LocalBytes: 64 << 10,
	SubAlign: 128, MaxGroup: 1024,
	FP64: true, Images: true, Shared: true, OutOfOrder: true,
	MaxLayers: 256, MaxImage1D: 8192, MaxImage2D: [2]int{8192, 8192}, MaxImage3D: [3]int{2048, 2048, 2048},
}

// Kind is "fake".
func (l *Library) Kind() string { return "fake" }

// Devices lists the fake devices.
func (l *Library) Devices() ([]driver.Info, error) {
	if l.Infos != nil {
		return l.Infos, nil
	}
	infos := []driver.Info{Default, Default}
	infos[1].Lazy = true
	for i := range infos {
		infos[i].Index = i
		infos[i].PCI = fmt.Sprintf("0000:%02x:00.0", i+1)
	}
	return infos, nil
}

// Open opens a fake device; its memory starts empty.
func (l *Library) Open(index int) (driver.Device, error) {
	infos, _ := l.Devices()
	if index < 0 || index >= len(infos) {
		return nil, fmt.Errorf("open fake device %d: there are %d", index, len(infos))
	}
	d := &device{info: infos[index], faults: &l.Faults, formats: l.Formats, rng: newRand(),
		events: map[driver.Event]*event{}}
	d.changed = sync.NewCond(&d.mu)
	ctx, _ := d.NativeContext()
	contexts.Store(ctx, d)
	if l.Idle {
		return idle{d}, nil
	}
	return d, nil
}

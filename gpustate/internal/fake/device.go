package fake

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-hpc/holdfast/gpustate/internal/driver"
)

// device is one fake device.
type device struct {
	info    driver.Info
	faults  *Faults
	formats func(dims int) [][2]uint32

	mu      sync.Mutex
	changed *sync.Cond // a command is complete, or more may begin
	rng     *rand.Rand
	queues  []*queue
	used    int64
	made    int64 // memory objects
	events  map[driver.Event]*event
}

// mem is a memory object. The common part is base's: the object itself, or the buffer that it is a range of.
type mem struct {
	kind     driver.MemKind
	bytes    []byte
	image    driver.ImageDesc
	pixel    int
	released bool

	base    *mem
	number  int64
	mu      sync.Mutex // held by commands that run
	ranges  int        // that live; guarded by the device, as all below
	pending int        // commands that use it
	mapped  []byte     // by the host; written with mu held, too
}

// program has the variables that its text declares, with bytes for each instance.
type program struct {
	text      string
	fallback  string // why it is not of a binary form
	names     []string
	variables map[string]*mem
	kernels   int
	released  bool
}

type kernel struct {
	name string
	of   *program
	registered
	set      []driver.Arg
	released bool
}

// Use after release is a fault of the caller: a real API crashes, or computes with another object's bytes.
func (m *mem) check(what string) {
	if m.released {
		panic("fake: " + what + " with memory that was released")
	}
}

func (k *kernel) check(what string) {
	if k.released {
		panic("fake: " + what + " of kernel " + k.name + ", which was released")
	}
}

// undefined fills memory that was never written, or that is gone.
const undefined = 0xCB

// spoil doubles the spoiled part with each copy: the race detector looks at each store of a loop.
func spoil(b []byte) {
	if len(b) == 0 {
		return
	}
	b[0] = undefined
	for n := 1; n < len(b); n *= 2 {
		copy(b[n:], b[:n])
	}
}

// poison spoils memory that was released when its last command is complete; mu is held.
func (m *mem) poison() {
	if m.released && m.pending == 0 && m.kind != driver.MemHost {
		spoil(m.bytes)
	}
}

func (d *device) Info() driver.Info { return d.info }

func (d *device) FreeBytes() (int64, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.info.GlobalBytes - d.used, true
}

// Close fails when events are left.
func (d *device) Close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	ctx, _ := d.NativeContext()
	contexts.Delete(ctx)
	if n := len(d.events); n > 0 {
		return fault("close", fmt.Sprintf("%d events were not released", n), nil)
	}
	return nil
}

func (d *device) CreateMem(m driver.MemDesc) (driver.Handle, error) {
	if err := d.faults.hit("create memory", &d.faults.allocs, driver.ErrOutOfMemory); err != nil {
		return nil, err
	}
	o := &mem{kind: m.Kind, image: m.Image}
	o.base = o
	switch m.Kind {
	case driver.MemSub:
		parent := m.Parent.(*mem)
		if m.Offset%int64(d.info.SubAlign) != 0 {
			return nil, fault("create sub-buffer", "misaligned offset", nil)
		}
		o.bytes, o.base = parent.bytes[m.Offset:m.Offset+m.Bytes], parent
	case driver.MemView:
		parent := m.Parent.(*mem)
		o.bytes, o.base, o.pixel = parent.bytes[:m.Bytes], parent.base, int(m.Bytes)/m.Image.Width
	case driver.MemHost:
		o.bytes = m.Host
	case driver.MemGlobal:
		v, ok := m.Parent.(*program).variables[m.Name]
		if !ok || int64(len(v.bytes)) != m.Bytes {
			return nil, fault("create memory", "no such variable", nil)
		}
		o.bytes, o.base = v.bytes, v
	case driver.MemImage:
		if d.formats != nil && !slices.Contains(d.formats(m.Image.Shape()), [2]uint32{m.Image.Order, m.Image.Type}) {
			return nil, fault("create image", "image format not supported", driver.ErrUnsupported)
		}
		o.pixel = int(m.Bytes) / (m.Image.Width * m.Image.Height * m.Image.Depth)
		fallthrough
	default:
		if err := d.take(m.Bytes); err != nil {
			return nil, err
		}
		o.bytes = make([]byte, m.Bytes)
		spoil(o.bytes)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	o.base.check("create sub-buffer")
	if o.kind.OfBuffer() {
		o.base.ranges++
	}
	d.made++
	o.number = d.made
	d.faults.count(1)
	return o, nil
}

// number counts memory.
func (d *device) number() int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.made++
	return d.made
}

func (d *device) take(n int64) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if n > d.info.MaxAllocBytes || d.used+n > d.info.GlobalBytes {
		return fault("create memory", "out of memory", driver.ErrOutOfMemory)
	}
	d.used += n
	return nil
}

// ReleaseMem lets commands that were issued go on using it.
func (d *device) ReleaseMem(h driver.Handle) error {
	m := h.(*mem)
	d.mu.Lock()
	defer d.mu.Unlock()
	m.check("release")
	if m.ranges > 0 {
		panic("fake: a buffer is released before its ranges")
	}
	m.released = true
	switch m.kind {
	case driver.MemSub, driver.MemView:
		m.base.ranges--
	case driver.MemHost, driver.MemGlobal:
	default:
		d.used -= int64(len(m.bytes))
		m.poison()
	}
	d.faults.count(-1)
	return nil
}

// MapShared gives the host memory of its own.
func (d *device) MapShared(_, h driver.Handle) ([]byte, error) {
	m := h.(*mem)
	if err := d.faults.hit("map", nil, nil); err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	m.check("map")
	if m.mapped != nil {
		return nil, fault("map", "the object is mapped", nil)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.mapped = slices.Clone(m.bytes)
	return m.mapped, nil
}

// UnmapShared takes the host's bytes over and spoils its memory.
func (d *device) UnmapShared(_, h driver.Handle) error {
	m := h.(*mem)
	d.mu.Lock()
	defer d.mu.Unlock()
	m.check("unmap")
	if m.mapped == nil {
		return fault("unmap", "the object is not mapped", nil)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	copy(m.bytes, m.mapped)
	spoil(m.mapped)
	m.mapped = nil
	return d.faults.hit("unmap", nil, nil)
}

func (d *device) CreateSampler(s driver.SamplerDesc) (driver.Handle, error) {
	return &s, d.faults.hit("create sampler", nil, nil)
}

func (d *device) ReleaseSampler(driver.Handle) error { return nil }

func (d *device) Build(p driver.ProgramDesc) (driver.Handle, error) {
	text, err := d.form(p)
	passed := ""
	if err != nil && p.OpenCL+p.CUDA != "" {
		text, passed, err = p.OpenCL+p.CUDA, err.Error(), nil
	}
	failed := driver.BuildError{Program: p.Name, Device: d.info, Options: p.Options, Err: err}
	switch {
	case err != nil:
		return nil, &failed
	case text == "":
		return nil, fmt.Errorf("program %q: %w", p.Name, driver.ErrNoSource)
	case strings.Contains(text, "#error"):
		failed.Log, failed.Err = "the source says #error", fault("build", "build failure", nil)
		return nil, &failed
	}
	made := &program{text: text, fallback: passed, variables: map[string]*mem{}}
	words := strings.Fields(text)
	for i := range len(words) - 2 {
		n, err := strconv.Atoi(words[i+2])
		if err == nil && (words[i] == "global" || words[i] == "constant") {
			if words[i] == "global" {
				made.names = append(made.names, words[i+1])
			}
			v := &mem{kind: driver.MemGlobal, bytes: make([]byte, n), number: d.number()}
			v.base = v
			made.variables[words[i+1]] = v
		}
	}
	return made, d.faults.hit("build", nil, nil)
}

// form returns the text that a program is made of: its binary form, or its sources where it
// has none.
func (d *device) form(p driver.ProgramDesc) (string, error) {
	image := p.PTX
	if len(image) == 0 {
		image = p.IL
	}
	if len(image) == 0 {
		return p.OpenCL + p.CUDA, nil
	}
	text, ok := strings.CutPrefix(string(image), string(Binary(d.info.Arch, "")))
	if !ok {
		return "", fault("load", "no binary for "+d.info.Arch, nil)
	}
	return text, nil
}

// FallbackReason returns the reason why a program is built from its sources.
func (d *device) FallbackReason(h driver.Handle) string { return h.(*program).fallback }

// Globals lists the variables in the order of the text.
func (d *device) Globals(h driver.Handle) (list []driver.Global, err error) {
	p := h.(*program)
	if strings.Contains(p.text, "hidden") {
		return nil, fmt.Errorf("its text says hidden: %w", driver.ErrHidden)
	}
	for _, name := range p.names {
		list = append(list, driver.Global{Name: name, Bytes: int64(len(p.variables[name].bytes))})
	}
	return list, d.faults.hit("list variables", nil, nil)
}

// Global finds a variable, a constant one too.
func (d *device) Global(h driver.Handle, name string) (driver.Global, bool) {
	v, ok := h.(*program).variables[name]
	if !ok {
		return driver.Global{}, false
	}
	return driver.Global{Name: name, Bytes: int64(len(v.bytes))}, true
}

// WorkGroup knows no limit of a kernel.
func (d *device) WorkGroup(driver.Handle) (size, multiple int, err error) {
	return 0, 0, driver.ErrUnsupported
}

// Query knows no question of OpenCL.
func (d *device) Query(driver.Query) ([]byte, error) { return nil, driver.ErrUnsupported }

func (d *device) ReleaseProgram(h driver.Handle) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	p := h.(*program)
	if p.released || p.kernels > 0 {
		panic("fake: a program is released twice, or before its kernels")
	}
	p.released = true
	return nil
}

func (d *device) CreateKernel(h driver.Handle, name string) (driver.Handle, error) {
	p := h.(*program)
	r, ok := registry.Load(name)
	if !ok || !strings.Contains(p.text, name) {
		return nil, fault("create kernel", "no kernel "+name, driver.ErrNoKernel)
	}
	if err := d.faults.hit("create kernel", nil, nil); err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if p.released {
		panic("fake: create kernel of a program that was released")
	}
	p.kernels++
	k := &kernel{name: name, of: p, registered: r.(registered)}
	k.set = make([]driver.Arg, k.args)
	return k, nil
}

func (d *device) ReleaseKernel(h driver.Handle) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	k := h.(*kernel)
	k.check("release")
	k.released = true
	k.of.kernels--
	return nil
}

// Args is not exact on a lazy device, as with CUDA.
func (d *device) Args(k driver.Handle) (int, bool) { return k.(*kernel).args, !d.info.Lazy }

func (d *device) SetArg(h driver.Handle, i int, a driver.Arg) error {
	hesitate()
	k := h.(*kernel)
	k.check("set argument")
	if i < 0 || i >= len(k.set) {
		return fault("set argument", "no such argument", nil)
	}
	if k.types != nil && !fits(k.types[i], a) {
		k.set[i] = driver.Arg{} // as NVIDIA's OpenCL does
		return fault("set argument", "invalid argument size", nil)
	}
	if err := d.faults.hit("set argument", nil, nil); err != nil {
		return err
	}
	a.Value = append([]byte(nil), a.Value...)
	k.set[i] = a
	return nil
}

func fits(want int, a driver.Arg) bool {
	switch a.Kind {
	case driver.ArgMem, driver.ArgNull:
		return want == Memory
	case driver.ArgLocal:
		return want == Local
	case driver.ArgSampler:
		return want == Sampler
	}
	return len(a.Value) == want
}

// ImageFormats lists the formats of the library.
func (d *device) ImageFormats(_ driver.Access, shape int) ([][2]uint32, error) {
	if d.formats == nil {
		return nil, driver.ErrUnsupported
	}
	return d.formats(shape), nil
}

func (d *device) EventTimes(driver.Event) (driver.Times, error) {
	return driver.Times{Start: time.Nanosecond, End: 2 * time.Nanosecond}, nil
}

func (d *device) AllocPinned(bytes int) (driver.Pinned, error) {
	if err := d.faults.room("allocate page-locked memory"); err != nil {
		return nil, err
	}
	return driver.Plain(make([]byte, bytes)), nil
}

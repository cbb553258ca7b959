package fake

import (
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-hpc/holdfast/gpustate/internal/driver"
)

// device is one fake device.
type device struct {
	info   driver.Info
	faults *Faults

	mu     sync.Mutex
	used   int64
	events map[driver.Event]*event
}

type mem struct {
	kind  driver.MemKind
	bytes []byte
	image driver.ImageDesc
	pixel int
}

type program struct{ text string }

type kernel struct {
	name string
	registered
	set []driver.Arg
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
	switch m.Kind {
	case driver.MemSub:
		if m.Offset%int64(d.info.SubAlign) != 0 {
			return nil, fault("create sub-buffer", "misaligned offset", nil)
		}
		o.bytes = m.Parent.(*mem).bytes[m.Offset : m.Offset+m.Bytes]
	case driver.MemHost:
		o.bytes = m.Host
	default:
		if err := d.take(m.Bytes); err != nil {
			return nil, err
		}
		o.bytes = make([]byte, m.Bytes)
	}
	if m.Kind == driver.MemImage {
		o.pixel = int(m.Bytes) / (m.Image.Width * m.Image.Height * m.Image.Depth)
	}
	d.faults.count(1)
	return o, nil
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

func (d *device) ReleaseMem(h driver.Handle) error {
	m := h.(*mem)
	if m.kind != driver.MemSub && m.kind != driver.MemHost {
		d.mu.Lock()
		d.used -= int64(len(m.bytes))
		d.mu.Unlock()
	}
	d.faults.count(-1)
	return nil
}

func (d *device) MapShared(_, h driver.Handle) ([]byte, error) {
	return h.(*mem).bytes, d.faults.hit("map", nil, nil)
}

func (d *device) UnmapShared(_, _ driver.Handle) error { return d.faults.hit("unmap", nil, nil) }

func (d *device) CreateSampler(s driver.SamplerDesc) (driver.Handle, error) {
	return &s, d.faults.hit("create sampler", nil, nil)
}

func (d *device) ReleaseSampler(driver.Handle) error { return nil }

func (d *device) Build(p driver.ProgramDesc) (driver.Handle, error) {
	text := p.OpenCL + p.CUDA + string(p.PTX) + string(p.IL)
	if text == "" {
		return nil, fmt.Errorf("program %q: %w", p.Name, driver.ErrNoSource)
	}
	if strings.Contains(text, "#error") {
		return nil, &driver.BuildError{Program: p.Name, Device: d.info, Options: p.Options,
			Log: "the source says #error", Err: fault("build", "build failure", nil)}
	}
	return &program{text}, d.faults.hit("build", nil, nil)
}

func (d *device) ReleaseProgram(driver.Handle) error { return nil }

func (d *device) CreateKernel(p driver.Handle, name string) (driver.Handle, error) {
	r, ok := registry.Load(name)
	if !ok || !strings.Contains(p.(*program).text, name) {
		return nil, fault("create kernel", "no kernel "+name, driver.ErrNoKernel)
	}
	k := &kernel{name: name, registered: r.(registered)}
	k.set = make([]driver.Arg, k.args)
	return k, d.faults.hit("create kernel", nil, nil)
}

func (d *device) ReleaseKernel(driver.Handle) error { return nil }

// Args is not exact on a lazy device, as with CUDA.
func (d *device) Args(k driver.Handle) (int, bool) { return k.(*kernel).args, !d.info.Lazy }

func (d *device) SetArg(h driver.Handle, i int, a driver.Arg) error {
	k := h.(*kernel)
	if i < 0 || i >= len(k.set) {
		return fault("set argument", "no such argument", nil)
	}
	a.Value = append([]byte(nil), a.Value...)
	k.set[i] = a
	return d.faults.hit("set argument", nil, nil)
}

func (d *device) EventTimes(driver.Event) (driver.Times, error) {
	return driver.Times{Start: time.Nanosecond, End: 2 * time.Nanosecond}, nil
}

// pinned memory is plain memory here.
type pinned []byte

func (d *device) AllocPinned(bytes int) (driver.Pinned, error) {
	return pinned(make([]byte, bytes)), nil
}

func (p pinned) Bytes() []byte { return p }
func (p pinned) Free() error   { return nil }

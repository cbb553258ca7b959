package capture

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"

	"github.com/holdfast-hpc/holdfast/gpustate"
	"github.com/holdfast-hpc/holdfast/internal/program"
	"github.com/holdfast-hpc/holdfast/storage"
)

// Protected holds the state that the program has protected per rank, in the order of its calls, and the memory for
// captures.
type Protected struct {
	*pool
	names   map[string]bool // true: per rank
	regions []Named
	devices []Device
	arrays  []*gpustate.Device // that arrays lie on
	workers int                // goroutines that copy

	log    *slog.Logger
	hashes map[string]*deviceHashes // by device; nil: every chunk of a device is read each time
	least  int64                    // bytes of a device from which its restore is hashed
}

// Named is a region and the name that the program gave it.
type Named struct {
	Name string
	Region
}

// A Device is one that the program has protected.
type Device struct {
	Name string
	*gpustate.Device
}

// New makes room for the names of one rank. Captures take up to limit bytes of memory, 0 meaning no bound, and copy
// with that many workers. memory is shared with a program in another process; nil: private memory.
func New(limit int64, workers int, memory program.Memory, log *slog.Logger) *Protected {
	p := &Protected{names: map[string]bool{}, workers: workers, log: log}
	p.pool = newPool(limit, memory, newPinned(log, p.pinDevices))
	return p
}

// HashDevices has devices hash their chunks after a capture, so that only those that have changed
// are read from them. Called before the first capture.
func (p *Protected) HashDevices() { p.hashes, p.least = map[string]*deviceHashes{}, hashFrom }

// hashFrom is how much is worth hashing when it is restored, while the program waits: the device may have to build the
// kernel for it, which takes as long as bringing less than that.
const hashFrom = 256 << 20

// hashesAt returns the hashes of a device's contents in epochs, or nil if they are not wanted.
func (p *Protected) hashesAt(device string) *deviceHashes {
	if p.hashes == nil {
		return nil
	}
	if p.hashes[device] == nil {
		p.hashes[device] = &deviceHashes{log: p.log}
	}
	return p.hashes[device]
}

// Add protects x under name.
func (p *Protected) Add(name string, x any) error {
	if err := p.Free(name); err != nil {
		return err
	}
	if dev, ok := x.(*gpustate.Device); ok {
		if dev == nil {
			return fmt.Errorf("nil device; open it first")
		}
		p.devices = append(p.devices, Device{name, dev})
	} else {
		r, err := p.NewRegion(x)
		if err != nil {
			return err
		}
		p.regions = append(p.regions, Named{name, r})
	}
	p.names[name] = true
	return nil
}

// Free returns an error if a name cannot be taken.
func (p *Protected) Free(name string) error {
	_, taken := p.names[name]
	switch {
	case name == "" || strings.ContainsAny(name, "/\x00\n") || len(name) > 200:
		return fmt.Errorf("a name has 1 to 200 bytes, none of them '/', newline or zero")
	case taken:
		return fmt.Errorf("the name is protected already; use each name once")
	}
	return nil
}

// NameArray takes a name for state that is not protected per rank. Its contents on a device, if that is not nil, are
// copied to the memory of captures.
func (p *Protected) NameArray(name string, on *gpustate.Device) {
	p.names[name] = false
	if on != nil {
		p.arrays = append(p.arrays, on)
	}
}

// Devices lists those that are protected.
func (p *Protected) Devices() []Device { return p.devices }

// pinDevices lists those whose contents come to the memory of captures.
func (p *Protected) pinDevices() (list []*gpustate.Device) {
	for _, d := range p.devices {
		list = append(list, d.Device)
	}
	for _, d := range p.arrays {
		if !slices.Contains(list, d) {
			list = append(list, d)
		}
	}
	return list
}

// Bytes returns how much memory a capture needs now.
func (p *Protected) Bytes() int64 {
	var n int64
	for _, r := range p.regions {
		if b := r.Bytes(); b >= InlineBytes || r.Foreign() != nil {
			n += RoundUp(b)
		}
	}
	for _, d := range p.devices {
		n += RoundUp(d.StateBytes())
	}
	return n
}

// Begin begins a capture: it takes the memory from the writers of the previous one. Nothing else happens while the
// program waits. Devices come first, then memory, then messages.
func (p *Protected) Begin() *Snapshot {
	p.pool.claim()
	return &Snapshot{}
}

// CaptureMemory copies the regions. A program in another process copies other arrays with them.
func (p *Protected) CaptureMemory(s *Snapshot, others ...ForeignCopy) error {
	var foreign []ForeignCopy
	for _, r := range p.regions {
		if f := r.Foreign(); f != nil {
			foreign = append(foreign, ForeignCopy{r.Name, f, true})
		}
	}
	if err := p.copyForeign(s, append(foreign, others...)); err != nil {
		return err
	}
	var entries []entry
	var jobs []Copy
	for _, r := range p.regions {
		if r.IsAbsent() {
			continue
		}
		b, fresh, err := r.View()
		if err != nil {
			return fmt.Errorf("capture %q: %w", r.Name, err)
		}
		e := entry{name: r.Name, kind: r.Kind(), size: int64(len(b))}
		if len(b) < InlineBytes {
			e.inline = append([]byte{}, b...)
			entries = append(entries, e)
			continue
		}
		entries = append(entries, e)
		if !fresh {
			if dst := p.Alloc(len(b)); dst != nil {
				jobs = append(jobs, Copy{dst, b})
				b = dst
			} else {
				s.Live = true
			}
		}
		s.Add(sectionData+r.Name, storage.Bytes(b), int64(len(b)))
	}
	p.CopyAll(jobs)
	table, err := encodeVars(entries)
	if err != nil {
		return fmt.Errorf("capture: %w", err)
	}
	s.Add(sectionVars, storage.Bytes(table), int64(len(table)))
	return nil
}

// CopyAll carries out copies while the program waits.
func (p *Protected) CopyAll(jobs []Copy) { copyAll(jobs, p.workers) }

// CaptureDevices takes the devices.
func (p *Protected) CaptureDevices(ctx context.Context, s *Snapshot) error {
	for _, d := range p.devices {
		dc, err := d.Capture(ctx, p.AllocDevice)
		if err != nil {
			return fmt.Errorf("capture %q: %w", d.Name, err)
		}
		record := dc.Record()
		s.Add(sectionGPU+d.Name, storage.Bytes(record), int64(len(record)))
		content := p.AddDevice(s, d.Name, dc)
		for i, c := range dc.Contents() {
			s.Add(contentSection(d.Name, i), content(i), c.Bytes)
		}
	}
	return nil
}

// AddDevice gives a device's capture to the snapshot, which releases it. The hashes of its contents are remembered
// under name. content reads one of them.
func (p *Protected) AddDevice(s *Snapshot, name string, c *gpustate.Capture) (content func(i int) io.ReaderAt) {
	s.devices = append(s.devices, c)
	var h *captureHashes
	if of := p.hashesAt(name); of != nil {
		h = &captureHashes{c: c, of: of}
		s.hashes = append(s.hashes, h)
	}
	return func(i int) io.ReaderAt { return &deviceContent{c, i, h} }
}

// AddMailbox adds the messages in flight, which end the capture.
func (s *Snapshot) AddMailbox(mail []byte) {
	s.Add(sectionMailbox, storage.Bytes(mail), int64(len(mail)))
}

func contentSection(device string, i int) string {
	return fmt.Sprintf("%s%s/%d", sectionGPU, device, i)
}

package capture

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"github.com/holdfast-hpc/holdfast/gpustate"
	"github.com/holdfast-hpc/holdfast/internal/layout"
	"github.com/holdfast-hpc/holdfast/internal/program"
	"github.com/holdfast-hpc/holdfast/storage"
)

// Protected is everything the program has named, in the order it did, and the memory
// that it is captured to.
type Protected struct {
	*pool
	names   map[string]bool
	regions []namedRegion
	devices []Device
	workers int // goroutines that copy

	log    *slog.Logger
	hashes map[string]*deviceHashes // by device; nil: every chunk of a device is read each time
	least  int64                    // bytes of a device from which its restore is hashed

	globals  []*global
	replicas []*replica
	items    []*items
	Elastic  bool // each shard says what it has of global arrays, also if that is nothing
	Ranks    int  // of the job
	Cuts     layout.Cuts
}

type namedRegion struct {
	name string
	region
}

// A Device is one that the program has protected.
type Device struct {
	Name string
	*gpustate.Device
}

// New makes room for the names of one rank. Captures take up to limit bytes of memory,
// 0 meaning no bound, and copy with so many goroutines. The memory is shared with a program in
// another process, or, if nil, this process's own.
func New(limit int64, workers int, memory program.Memory, log *slog.Logger) *Protected {
	p := &Protected{names: map[string]bool{}, workers: workers, log: log, Ranks: 1, Cuts: layout.DefaultCuts}
	p.pool = newPool(limit, memory, newPinned(log, p.pinDevices))
	return p
}

// HashDevices has devices hash their chunks after a capture, so that only those that have changed
// are read from them. Called before the first capture.
func (p *Protected) HashDevices() { p.hashes, p.least = map[string]*deviceHashes{}, hashFrom }

// hashFrom is how much is worth hashing when it is restored, while the program waits: the device may have to build the
// kernel for it, which takes as long as bringing less than that.
const hashFrom = 256 << 20

// hashesOf are those of a capture, nil if there are to be none.
func (p *Protected) hashesOf(d Device, c *gpustate.Capture) *captureHashes {
	if h := p.hashesAt(d.Name); h != nil {
		return &captureHashes{c: c, of: h}
	}
	return nil
}

// hashesAt are those of a device's contents in epochs, nil if there are to be none.
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
	if err := p.free(name); err != nil {
		return err
	}
	if dev, ok := x.(*gpustate.Device); ok {
		if dev == nil {
			return fmt.Errorf("nil device; open it first")
		}
		if err := p.noArrays(dev); err != nil {
			return err
		}
		p.devices = append(p.devices, Device{name, dev})
	} else {
		r, err := p.newRegion(x)
		if err != nil {
			return err
		}
		p.regions = append(p.regions, namedRegion{name, r})
	}
	p.names[name] = true
	return nil
}

// free says why a name cannot be taken.
func (p *Protected) free(name string) error {
	switch {
	case name == "" || strings.ContainsAny(name, "/\x00\n") || len(name) > 200:
		return fmt.Errorf("a name has 1 to 200 bytes, none of them '/', newline or zero")
	case p.names[name]:
		return fmt.Errorf("the name is protected already; use each name once")
	}
	return nil
}

// Devices lists those that are protected.
func (p *Protected) Devices() []Device { return p.devices }

// pinDevices lists those whose contents come to the memory of captures.
func (p *Protected) pinDevices() []Device {
	list := slices.Clone(p.devices)
	devices, _ := p.arrayDevices()
	for _, d := range devices {
		list = append(list, Device{Device: d})
	}
	return list
}

// Bytes is how much memory a capture needs now.
func (p *Protected) Bytes() int64 {
	var n int64
	for _, r := range p.regions {
		if b := r.bytes(); b >= inlineBytes || r.isElsewhere() {
			n += roundUp(b)
		}
	}
	for _, d := range p.devices {
		n += roundUp(d.StateBytes())
	}
	for _, g := range p.globals {
		n += roundUp(g.bytes())
	}
	for _, r := range p.replicas {
		if r.isElsewhere() {
			n += roundUp(r.bytes())
		}
	}
	for _, s := range p.items {
		n += roundUp(s.last)
	}
	return n
}

// Capture copies everything protected, and the messages that mailbox returns. Nothing
// else happens while the program waits.
func (p *Protected) Capture(ctx context.Context, mailbox func() ([]byte, error)) (*Snapshot, error) {
	s := &Snapshot{}
	p.pool.claim()
	if err := p.captureDevices(ctx, s); err != nil {
		return nil, errors.Join(err, s.Release())
	}
	if err := p.captureBuffers(ctx, s); err != nil {
		return nil, errors.Join(err, s.Release())
	}
	if err := p.captureMemory(s); err != nil {
		return nil, errors.Join(err, s.Release())
	}
	arrays, err := p.captureArrays(s)
	if err != nil {
		return nil, errors.Join(err, s.Release())
	}
	mail, err := mailbox()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("capture mailbox: %w", err), s.Release())
	}
	if err := p.addLayout(s, arrays, mail); err != nil {
		return nil, errors.Join(err, s.Release())
	}
	s.add(sectionMailbox, storage.Bytes(mail), int64(len(mail)))
	return s, nil
}

func (p *Protected) captureMemory(s *Snapshot) error {
	if err := p.saveElsewhere(s); err != nil {
		return err
	}
	var entries []entry
	var jobs []copyJob
	for _, r := range p.regions {
		if r.isAbsent() {
			continue
		}
		b, fresh, err := r.view()
		if err != nil {
			return fmt.Errorf("capture %q: %w", r.name, err)
		}
		e := entry{name: r.name, kind: r.kind(), size: int64(len(b))}
		if len(b) < inlineBytes {
			e.inline = append([]byte{}, b...)
			entries = append(entries, e)
			continue
		}
		entries = append(entries, e)
		if !fresh {
			if dst := p.pool.alloc(len(b)); dst != nil {
				jobs = append(jobs, copyJob{dst, b})
				b = dst
			} else {
				s.Live = true
			}
		}
		s.add(sectionData+r.name, storage.Bytes(b), int64(len(b)))
	}
	copyAll(jobs, p.workers)
	table, err := encodeVars(entries)
	if err != nil {
		return fmt.Errorf("capture: %w", err)
	}
	s.add(sectionVars, storage.Bytes(table), int64(len(table)))
	return nil
}

func (p *Protected) captureDevices(ctx context.Context, s *Snapshot) error {
	for _, d := range p.devices {
		dc, err := d.Capture(ctx, p.pool.allocDevice)
		if err != nil {
			return fmt.Errorf("capture %q: %w", d.Name, err)
		}
		s.devices = append(s.devices, dc)
		record := dc.Record()
		s.add(sectionGPU+d.Name, storage.Bytes(record), int64(len(record)))
		h := p.hashesOf(d, dc)
		if h != nil {
			s.hashes = append(s.hashes, h)
		}
		for i, content := range dc.Contents() {
			s.add(contentSection(d.Name, i), &deviceContent{dc, i, h}, content.Bytes)
		}
	}
	return nil
}

func contentSection(device string, i int) string {
	return fmt.Sprintf("%s%s/%d", sectionGPU, device, i)
}

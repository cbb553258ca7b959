package arrays

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"

	"github.com/holdfast-hpc/holdfast/coordinated/internal/capture"
	"github.com/holdfast-hpc/holdfast/gpustate"
	"github.com/holdfast-hpc/holdfast/internal/layout"
	"github.com/holdfast-hpc/holdfast/internal/program"
)

// Protected is everything that the program has protected: per rank, and for any number of ranks.
type Protected struct {
	*capture.Protected
	arrays   []*array
	replicas []*replica
	items    []*items

	Elastic bool // each shard describes its arrays, even if it has none
	Ranks   int  // of the job
	Cuts    layout.Cuts
}

// New makes room for the names of one rank: see capture.New.
func New(limit int64, workers int, memory program.Memory, log *slog.Logger) *Protected {
	return &Protected{Protected: capture.New(limit, workers, memory, log), Ranks: 1, Cuts: layout.DefaultCuts}
}

// Add protects x per rank.
func (p *Protected) Add(name string, x any) error {
	if d, ok := x.(*gpustate.Device); ok && d != nil {
		for _, g := range p.arrays {
			if g.dev != nil && g.dev.Device() == d {
				return fmt.Errorf("array %q lies on the device; protect the device, which only the same number of "+
					"ranks restores, or arrays in its buffers", g.local.Name)
			}
		}
	}
	return p.Protected.Add(name, x)
}

func (p *Protected) add(g *array) {
	var on *gpustate.Device
	if g.dev != nil {
		on = g.dev.Device()
	}
	p.NameArray(g.local.Name, on)
	p.arrays = append(p.arrays, g)
}

// presentArrays and presentReplicas are the state for a checkpoint now: a program in another process may have removed
// something.
func (p *Protected) presentArrays() (list []*array) {
	for _, g := range p.arrays {
		if g.foreign == nil || !g.foreign.Absent() {
			list = append(list, g)
		}
	}
	return list
}

func (p *Protected) presentReplicas() (list []*replica) {
	for _, r := range p.replicas {
		if !r.IsAbsent() {
			list = append(list, r)
		}
	}
	return list
}

// Bytes returns how much memory a capture needs now.
func (p *Protected) Bytes() int64 {
	n := p.Protected.Bytes()
	for _, g := range p.arrays {
		n += capture.RoundUp(g.bytes())
	}
	for _, r := range p.replicas {
		if r.Foreign() != nil {
			n += capture.RoundUp(r.Bytes())
		}
	}
	for _, s := range p.items {
		n += capture.RoundUp(s.last)
	}
	return n
}

// Capture copies everything protected, and the messages that mailbox returns. Nothing
// else happens while the program waits.
func (p *Protected) Capture(ctx context.Context, mailbox func() ([]byte, error)) (*capture.Snapshot, error) {
	s := p.Begin()
	if err := p.capture(ctx, s, mailbox); err != nil {
		return nil, errors.Join(err, s.Release())
	}
	return s, nil
}

func (p *Protected) capture(ctx context.Context, s *capture.Snapshot, mailbox func() ([]byte, error)) error {
	if err := p.CaptureDevices(ctx, s); err != nil {
		return err
	}
	// The arrays that lie on devices: those of a device together.
	devices, arrays := p.arrayDevices()
	for i, d := range devices {
		var shares []gpustate.Share
		for _, g := range arrays[d] {
			if err := g.inMemory(); err != nil {
				return fmt.Errorf("capture %q: %w", g.local.Name, err)
			}
			shares = append(shares, g.dev.shares...)
		}
		c, err := d.CaptureShares(ctx, shares, p.AllocDevice)
		if err != nil {
			return fmt.Errorf("capture arrays: %w", err)
		}
		content := p.AddDevice(s, fmt.Sprintf("%s%d", sectionArray, i), c)
		for k, g := range arrays[d] {
			s.Add(g.local.Section, content(k), c.Contents()[k].Bytes)
		}
	}
	foreign, err := p.foreign()
	if err != nil {
		return err
	}
	if err := p.CaptureMemory(s, foreign...); err != nil {
		return err
	}
	list, err := p.captureArrays(s)
	if err != nil {
		return err
	}
	mail, err := mailbox()
	if err != nil {
		return fmt.Errorf("capture mailbox: %w", err)
	}
	if err := p.addLayout(s, list, mail); err != nil {
		return err
	}
	s.AddMailbox(mail)
	return nil
}

// foreign lists the arrays that a program in another process copies to shared memory. The sums of replicated values are
// taken while it waits.
func (p *Protected) foreign() (list []capture.ForeignCopy, err error) {
	for _, r := range p.replicas {
		if f := r.Foreign(); f != nil {
			list = append(list, capture.ForeignCopy{Name: r.Name, Foreign: f})
		}
	}
	for _, g := range p.arrays {
		if g.foreign != nil {
			err = errors.Join(err, g.renew())
			list = append(list, capture.ForeignCopy{Name: g.local.Name, Foreign: g.foreign, Late: true})
		}
	}
	return list, err
}

// AddForeign protects the share that a rank of a program in another process has of an array.
func (p *Protected) AddForeign(name string, a *program.Array) error {
	if err := p.Free(name); err != nil {
		return err
	}
	g := &array{foreign: p.NewForeign(a), local: layout.Local{Array: layout.Array{Name: name,
		Type: a.Layout, Elem: int64(a.Elem), Kind: layout.Divided, Section: sectionArray + name}}}
	if err := g.renew(); err != nil {
		return err
	}
	p.add(g)
	return nil
}

// renew asks a program in another process for the rank's present share of the array.
func (g *array) renew() error {
	if g.foreign == nil || g.foreign.Absent() {
		return nil
	}
	g.local.Dims, g.local.Parts = g.foreign.Shape()
	g.blocks = nil
	base := int64(0)
	for _, part := range g.local.Parts {
		g.blocks = append(g.blocks, Block{part, layout.Dense(&part, base)})
		base += part.Elems()
	}
	if err := g.local.Fits(-1); err != nil {
		return err
	}
	if base*g.local.Elem != g.bytes() {
		return fmt.Errorf("%q has %d elements in its parts, and %d bytes", g.local.Name, base, g.bytes())
	}
	return nil
}

// notWhole makes sure that a device is not protected whole: its buffers would be in each epoch twice.
func (p *Protected) notWhole(d *gpustate.Device) error {
	whole := p.Devices()
	i := slices.IndexFunc(whole, func(w capture.Device) bool { return w.Device == d })
	if i < 0 {
		return nil
	}
	return fmt.Errorf("device %q is protected with all its buffers; protect the device, which only the same "+
		"number of ranks restores, or arrays in its buffers", whole[i].Name)
}

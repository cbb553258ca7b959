package capture

import (
	"context"
	"fmt"
	"strings"

	"github.com/holdfast-hpc/holdfast/gpustate"
	"github.com/holdfast-hpc/holdfast/internal/program"
	"github.com/holdfast-hpc/holdfast/storage"
)

// Item is an entry of a shard, and its place.
type Item struct {
	Name    string // that the program gave it; of a device's memory, the device's and its own: "gpu/density"
	Kind    string // "slice float64", "buffer", ...; empty: this package has not written it
	Bytes   int64
	Section string
	Off     int64 // in the section
}

// List reads the contents of a shard without the program: first the sections that have tables, then their entries, in
// the order in which the program protected them.
func List(ctx context.Context, sh *storage.Shard) (items []Item, err error) {
	known := map[string][]Item{}
	for _, sec := range sh.Sections() {
		var more []Item
		device, isDevice := deviceName(sec.Name)
		switch {
		case sec.Name == sectionVars:
			more, err = listVars(ctx, sh)
		case isDevice:
			more, err = listDevice(ctx, sh, device, sec)
		}
		if err != nil {
			return nil, fmt.Errorf("section %s: %w", sec.Name, err)
		}
		for _, m := range more {
			known[m.Section] = append(known[m.Section], m)
		}
	}
	for _, sec := range sh.Sections() {
		if list := known[sec.Name]; list != nil && sec.Name != sectionVars {
			items = append(items, list...)
			continue
		}
		whole := Item{Name: sec.Name, Bytes: sec.Size, Section: sec.Name}
		switch _, device := deviceName(sec.Name); {
		case sec.Name == sectionVars:
			whole.Kind = "table"
		case sec.Name == sectionMailbox:
			whole.Kind = "messages"
		case device:
			whole.Kind = "device objects"
		}
		items = append(append(items, whole), known[sec.Name]...)
	}
	return items, nil
}

// listVars lists the entries of the table of variables: small values in the table, others in sections of their own.
func listVars(ctx context.Context, sh *storage.Shard) ([]Item, error) {
	entries, at, err := readVars(ctx, sh)
	if err != nil {
		return nil, err
	}
	for i := range entries {
		at -= int64(len(entries[i].inline))
	}
	var items []Item
	for _, e := range entries {
		item := Item{Name: e.name, Kind: e.kind, Bytes: e.size, Section: sectionData + e.name}
		if e.inline != nil {
			item.Section, item.Off = sectionVars, at
			at += e.size
		}
		items = append(items, item)
	}
	return items, nil
}

func listDevice(ctx context.Context, sh *storage.Shard, device string, sec storage.SectionInfo) ([]Item, error) {
	b := make([]byte, sec.Size)
	if err := sh.ReadAt(ctx, sec.Name, b, 0); err != nil {
		return nil, err
	}
	list, err := gpustate.RecordedContents(b)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", storage.ErrCorrupt, err)
	}
	var items []Item
	for i, c := range list {
		section := contentSection(device, i)
		name := section
		if c.Name != "" && !strings.ContainsRune(c.Name, 0) {
			name = device + "/" + c.Name
		}
		items = append(items, Item{Name: name, Kind: c.Kind, Bytes: c.Bytes, Section: section})
	}
	return items, nil
}

// SavedIn lists the memory that a shard holds, by name. It only reads the table.
func SavedIn(ctx context.Context, sh *storage.Shard) (map[string]program.SavedArray, error) {
	entries, err := table(ctx, sh)
	if err != nil {
		return nil, err
	}
	out := map[string]program.SavedArray{}
	for name, e := range entries {
		layout, _ := strings.CutPrefix(e.kind, "slice ")
		if layout == e.kind {
			layout = ""
		}
		out[name] = program.SavedArray{Layout: layout, Bytes: e.size, Inline: e.inline}
	}
	return out, nil
}

// PerRank names the state that is protected per rank: only the same number of ranks can restore it.
func (p *Protected) PerRank() (names []string) {
	for _, r := range p.regions {
		if !r.IsAbsent() {
			names = append(names, r.Name)
		}
	}
	for _, d := range p.devices {
		names = append(names, d.Name)
	}
	return names
}

// SavedPerRank names the per-rank state of a shard.
func (p *Protected) SavedPerRank(ctx context.Context, sh *storage.Shard) (names []string, err error) {
	saved, err := SavedIn(ctx, sh)
	for name := range saved {
		names = append(names, name)
	}
	for _, s := range sh.Sections() {
		if device, ok := deviceName(s.Name); ok {
			names = append(names, device)
		}
	}
	return names, err
}

package capture

import (
	"context"
	"strings"

	"github.com/holdfast-hpc/holdfast/storage"
)

// Saved is what a shard has of something that was protected in memory.
type Saved struct {
	Layout string // of an element of an array; empty: it is no array
	Bytes  int64
	Inline []byte // its bytes, if they are few
}

// SavedIn lists what a shard holds of memory, by name. It reads the table alone.
func SavedIn(ctx context.Context, sh *storage.Shard) (map[string]Saved, error) {
	var size int64
	for _, s := range sh.Sections() {
		if s.Name == sectionVars {
			size = s.Size
		}
	}
	entries, err := table(ctx, sh, size)
	if err != nil {
		return nil, err
	}
	out := map[string]Saved{}
	for name, e := range entries {
		layout, _ := strings.CutPrefix(e.kind, "slice ")
		if layout == e.kind {
			layout = ""
		}
		out[name] = Saved{Layout: layout, Bytes: e.size, Inline: e.inline}
	}
	return out, nil
}

// PerRank names what is protected per rank: what only the same number of ranks can restore.
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

// SavedPerRank names what a shard holds that was protected per rank.
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

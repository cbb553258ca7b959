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

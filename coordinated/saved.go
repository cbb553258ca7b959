package coordinated

import (
	"context"

	"github.com/holdfast-hpc/holdfast/coordinated/internal/capture"
	"github.com/holdfast-hpc/holdfast/storage"
)

// Saved is one thing that a rank's shard of an epoch holds: what the program protected under a name, one memory object
// of a protected device, or a section of another use. Its bytes are those from Off on of the Section of the shard.
//
//	Name    string // that the program gave it; of a device's memory, the device's and its own: "gpu/density"
//	Kind    string // "slice float64", "buffer", ...; empty: this package has not written it
//	Bytes   int64
//	Section string
//	Off     int64 // in the section
type Saved = capture.Item

// ListSaved reads off a shard what it holds, without the program that wrote it. It reads the table of variables and
// the records of devices, and no other data. A shard that this package has not written yields its sections.
func ListSaved(ctx context.Context, sh *storage.Shard) ([]Saved, error) { return capture.List(ctx, sh) }

package crashfs

import (
	"maps"

	"github.com/holdfast-hpc/holdfast/internal/invariants"
)

// checkNames: the names as seen are those as synced with all pending changes made. A crash
// would otherwise keep bytes that were never written.
func (n *node) checkNames() {
	if !invariants.Enabled {
		return
	}
	names := maps.Clone(n.synced)
	for _, group := range n.pending {
		for _, c := range group {
			c.do(names)
		}
	}
	invariants.Check(maps.Equal(names, n.names),
		"crashfs: a directory has the names %v, and %v by its changes", n.names, names)
}

// checkUsed: no file gives back more than it took. mu is held.
func (f *FS) checkUsed() {
	invariants.Check(f.used >= 0, "crashfs: %d bytes are in use", f.used)
}

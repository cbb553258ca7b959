package level

import (
	"sync"

	"github.com/holdfast-hpc/holdfast/storage/internal/format"
)

// Contents has what epochs must contain, by Manifest.ID. Directories that come back
// after a while may have other epochs under the same numbers.
type Contents struct {
	mu  sync.Mutex
	ids map[format.Epoch][16]byte // guarded by mu
}

// Set says what an epoch contains.
func (c *Contents) Set(e format.Epoch, id [16]byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ids == nil {
		c.ids = map[format.Epoch][16]byte{}
	}
	c.ids[e] = id
}

// allows says whether a manifest is of what was agreed on, if anything was.
func (c *Contents) allows(m *format.Manifest) bool {
	if c == nil {
		return true
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	id, ok := c.ids[m.Epoch]
	return !ok || id == m.ID()
}

package level

import (
	"sync"

	"github.com/holdfast-hpc/holdfast/storage/internal/format"
)

// Contents has what epochs must contain, by Manifest.ID, and to which run they must belong. Directories that come back
// after a while may have other epochs under the same numbers.
type Contents struct {
	Run format.Identity // zero: epochs of any run count. Set before the first use

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
	return c == nil || c.Allows(m.Epoch, m.ID)
}

// Allows says whether an epoch may contain what it does; is asked only where something was
// agreed on.
func (c *Contents) Allows(e format.Epoch, is func() [16]byte) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	id, ok := c.ids[e]
	return !ok || id == is()
}

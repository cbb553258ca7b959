package catalog

import (
	"context"
	"sync"

	"github.com/holdfast-hpc/holdfast/storage/internal/format"
)

// Use keeps epochs from being removed until release is called: they are written, rebuilt, copied or read, by this
// rank or by another one through its connection to this rank's store. release may be called again.
func (c *Catalog) Use(epochs ...format.Epoch) (release func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, e := range epochs {
		c.inUse[e]++
	}
	return sync.OnceFunc(func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		for _, e := range epochs {
			if c.inUse[e]--; c.inUse[e] == 0 {
				delete(c.inUse, e)
			}
		}
	})
}

// Retain is Hold for an epoch, at all levels, and for earlier ones that hold its chunks.
func (c *Catalog) Retain(ctx context.Context, e format.Epoch) (release func()) {
	list := []format.Epoch{e}
	for _, l := range c.levels {
		if !c.Looks(l) { // and does not prune
			continue
		}
		if last := l.Newest(); last > 0 && e > last { // not there yet: epochs of a run come one after the other
			continue
		}
		if m, err := c.Manifest(ctx, l, e); err == nil {
			list = append(list, m.Origins()...)
		}
	}
	return c.Use(list...)
}

func (c *Catalog) used(e format.Epoch) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.inUse[e] > 0
}

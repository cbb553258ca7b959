package gpustate

import (
	"context"
	"errors"
)

// withRoom does what takes device memory, and again without the shadows of captures
// when there is too little.
func (d *Device) withRoom(do func() error) error {
	err := do()
	if errors.Is(err, ErrOutOfMemory) && d.evict() {
		err = do()
	}
	return err
}

// evict brings the bytes that captures have on the device to the host and frees their
// shadows: the program goes before. It reports whether that freed anything.
func (d *Device) evict() bool {
	d.shadows.Lock()
	defer d.shadows.Unlock()
	freed := false
	for c := range d.captures {
		if c.drv == d.drv && len(c.blocks) > 0 {
			freed = c.leave() == nil || freed
		}
	}
	return freed
}

// leave brings all bytes to the host. Without memory there for them the capture stays
// as it is.
func (c *Capture) leave() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	var need int64
	for _, parts := range c.parts {
		for _, p := range parts {
			if p.host == nil {
				need += p.bytes
			}
		}
	}
	if free := availableBytes(); free >= 0 && need > free {
		return ErrOutOfMemory
	}
	moved := make([][]part, len(c.parts))
	for i, parts := range c.parts {
		moved[i] = append([]part(nil), parts...)
		for k := range moved[i] {
			p := &moved[i][k]
			if p.host != nil {
				continue
			}
			host := make([]byte, p.bytes)
			if err := c.readPart(context.Background(), *p, 0, host); err != nil {
				return err
			}
			*p = part{off: p.off, bytes: p.bytes, host: host}
		}
	}
	c.parts = moved
	return c.freeBlocks()
}

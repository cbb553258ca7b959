package fetch

import (
	"context"
	"fmt"
)

// InPlace is a shard.Source whose shards lie in memory.
type InPlace interface {
	// VerifyMemory checks every byte, by so many goroutines.
	VerifyMemory(ctx context.Context, workers int) error
	// Section is where a section lies; nil: there is none.
	Section(name string) []byte
}

// VerifyMemory checks every byte of a shard that is read from memory, where it lies. The error
// names what is damaged. Cost: one pass over the memory by several goroutines.
func (sh *Shard) VerifyMemory(ctx context.Context) error {
	c := sh.copies[0]
	m, is := c.From.(InPlace)
	if !is {
		return fmt.Errorf("epoch %d is not read from memory", sh.epoch)
	}
	if err := m.VerifyMemory(ctx, sh.workers); err != nil {
		return sh.fault(c.From, err)
	}
	sh.verified = true
	return nil
}

// View returns a section where it lies in memory, after VerifyMemory; nil if it has to be read. It
// stays until the memory goes.
func (sh *Shard) View(name string) []byte {
	if !sh.verified {
		return nil
	}
	return sh.copies[0].From.(InPlace).Section(name)
}

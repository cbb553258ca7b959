package fetch

import "fmt"

// InPlace is a shard.Source whose shards lie in memory.
type InPlace interface {
	// VerifyMemory checks every byte, or says what came of that when it was done before.
	VerifyMemory() error
	// Section is where a section lies; nil: there is none.
	Section(name string) []byte
}

// VerifyMemory checks every byte of a shard that is read from memory, where it lies, unless
// MemoryShard.Verify has. The error names what is damaged.
func (sh *Shard) VerifyMemory() error {
	c := sh.copies[0]
	m, is := c.From.(InPlace)
	if !is {
		return fmt.Errorf("epoch %d is not read from memory", sh.epoch)
	}
	if err := m.VerifyMemory(); err != nil {
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

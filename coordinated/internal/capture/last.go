package capture

import (
	"errors"

	"github.com/holdfast-hpc/holdfast/storage"
)

// Captured is an epoch whose capture lies in memory.
type Captured struct {
	Epoch    storage.Epoch
	Sections []storage.Section
}

// Remember notes that memory which is shared with a program in another process holds the
// capture of an epoch, until the next one begins.
func (p *Protected) Remember(e storage.Epoch, s *Snapshot) {
	if _, here := p.pool.memory.(private); !here && s != nil && s.InMemory() {
		p.pool.remember(Captured{e, s.Sections})
	}
}

func (p *pool) remember(c Captured) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.last = c
}

// Renew gives back the memory that a restore has used for what is small, so that Reserve can make
// one piece of what a capture takes. No capture has been taken.
func (p *Protected) Renew() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	var errs []error
	for _, c := range p.chunks {
		errs = append(errs, p.memory.Unmap(c))
	}
	p.chunks, p.used, p.mapped = nil, nil, 0
	return errors.Join(errs...)
}

// Leave returns the newest capture, if all of it is in memory still, and keeps Close from unmapping
// that. No capture follows.
func (p *Protected) Leave() Captured {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.left = true
	return p.last
}

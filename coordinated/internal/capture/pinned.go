package capture

import (
	"errors"
	"log/slog"
	"sync"
	"unsafe"

	"github.com/holdfast-hpc/holdfast/gpustate"
)

// pinPiece is how much memory is pinned in one call, which the device's other
// calls may have to wait for.
const pinPiece = 256 << 20

// pinned page-locks host memory that is used for every epoch for the protected devices, so that their contents come
// down at the full rate of the bus. Memory that cannot be pinned is used without pinning.
type pinned struct {
	log     *slog.Logger
	devices func() []*gpustate.Device

	mu     sync.Mutex
	undo   map[*byte][]func() error // by the first byte of the memory
	warned bool
}

func newPinned(log *slog.Logger, devices func() []*gpustate.Device) *pinned {
	return &pinned{log: log, devices: devices, undo: map[*byte][]func() error{}}
}

// Pin pins page-aligned memory; memory that is pinned stays so.
func (p *pinned) Pin(b []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	first := unsafe.SliceData(b)
	if _, is := p.undo[first]; is {
		return
	}
	undo := []func() error{}
	for len(b) > 0 {
		piece := b[:min(len(b), pinPiece)]
		b = b[len(piece):]
		for _, d := range p.devices() {
			unpin, err := d.Pin(piece)
			switch {
			case err == nil:
				undo = append(undo, unpin)
			case !p.warned && !errors.Is(err, gpustate.ErrClosed):
				p.warned = true
				p.log.Warn("holdfast: cannot pin the memory for captures, which makes them up to a fifth slower; "+
					"raise the limit on locked memory (ulimit -l)", "error", err)
			}
		}
	}
	p.undo[first] = undo
}

// Unpin unpins memory that is about to be unmapped.
func (p *pinned) Unpin(b []byte) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	first := unsafe.SliceData(b)
	var errs []error
	for _, unpin := range p.undo[first] {
		errs = append(errs, unpin())
	}
	delete(p.undo, first)
	return errors.Join(errs...)
}

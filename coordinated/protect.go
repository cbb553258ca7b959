package coordinated

import (
	"io"

	"github.com/holdfast-hpc/holdfast/gpustate"
)

// State is for data that fits none of the simpler forms: it writes itself to a
// stream and reads itself back. SaveTo runs while the program waits. LoadFrom reads all
// that SaveTo wrote: anything left over fails the restore.
type State interface {
	// SaveTo writes the state. An error fails this epoch alone.
	SaveTo(w io.Writer) error
	// LoadFrom reads the state back, in Restore. An error fails the restore of this epoch.
	LoadFrom(r io.Reader) error
}

// Protect makes x part of every checkpoint under name. It is local; all names
// must be protected before Restore, on a first start and on a restart alike,
// but ranks may protect different things. x is one of:
//
//   - a pointer to a fixed-size value without pointers in it;
//   - a pointer to a slice of such values: its length may change, and it is
//     reallocated on Restore when its capacity does not do;
//   - an encoding.BinaryMarshaler that is a BinaryUnmarshaler too;
//   - a State;
//   - a *gpustate.Device, with all its objects.
//
// The library reads the memory in a Point and writes it in Restore, and does not
// touch it in between. Anything else, a name used twice or a call after Restore is
// a *ProtectError.
func (c *Checkpointer) Protect(name string, x any) error {
	err := c.protect(name, x, func() error { return c.state.Add(name, x) })
	if dev, ok := x.(*gpustate.Device); ok && err == nil && c.opt.MaxShadow != 0 {
		dev.LimitShadow(max(c.opt.MaxShadow, 0))
	}
	return err
}

package checkpoint

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"github.com/holdfast-hpc/holdfast/gpustate/internal/chunkhash"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/driver"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/object"
	"github.com/holdfast-hpc/holdfast/internal/random"
)

// State is a device as checkpoints see it. Its methods are called while the device is stopped, unless they say
// otherwise.
type State struct {
	object.Table

	Session    *Session
	Generation atomic.Uint64 // grows when handles become others
	Filled     bool          // a restore has written to memory
	Limit      int64         // of captures' device memory, below 0 for none
	Reserve    int64         // the memory that captures leave free

	keyOnce sync.Once
	key     *chunkhash.Key // of captures' hashes

	// shadows is taken after all others but Capture.mu.
	shadows  sync.Mutex
	captures map[*Capture]struct{} // that may have bytes on the device
}

// Init makes the state of a device without objects.
func (d *State) Init(drv driver.Device) {
	d.Table.Init()
	d.Session, d.Limit, d.Reserve, d.captures = NewSession(drv), -1, reserve, map[*Capture]struct{}{}
}

// HashKey returns the key of all hashes of this device.
func (d *State) HashKey() *chunkhash.Key {
	d.keyOnce.Do(func() {
		var seed [32]byte
		random.Fill(seed[:])
		d.key = chunkhash.NewKey(seed)
	})
	return d.key
}

// Replace puts the memory of h in the place of a restored buffer's, with its bytes. Ranges of the
// buffer and kernels that have either as an argument follow. The device is stopped.
func (d *State) Replace(e *object.Entry, h driver.Handle) error {
	s := d.Session
	copied := s.run(context.Background(), []job{func(_ context.Context, cp *copier) error {
		return cp.done(cp.issue(d, func() (driver.Event, error) {
			all := driver.Bytes(0, e.Record.Mem.Bytes)
			return cp.drv.Copy(cp.q, h, all, e.Handle, all, nil)
		}))
	}})
	ranges, err := d.rangesOn(e, h)
	if err = errors.Join(copied, err); err != nil {
		for _, r := range ranges {
			err = errors.Join(err, s.ReleaseMem(r))
		}
		return errors.Join(err, s.ReleaseMem(h))
	}
	var errs []error
	for child, r := range ranges {
		errs = append(errs, s.ReleaseMem(child.Handle))
		child.Handle = r
	}
	errs = append(errs, s.ReleaseMem(e.Handle))
	e.Handle = h
	for _, o := range d.List {
		k := o.Kernel
		if k == nil {
			continue
		}
		for i := range k.Args {
			if a := k.Args[i].Object; a != nil && (a == e || ranges[a] != nil) {
				errs = append(errs, k.RestoreArg(s.Device, i))
			}
		}
	}
	return errors.Join(errs...)
}

// rangesOn makes the ranges of a buffer on other memory.
func (d *State) rangesOn(e *object.Entry, h driver.Handle) (map[*object.Entry]driver.Handle, error) {
	made := map[*object.Entry]driver.Handle{}
	for _, o := range d.List {
		if o.Parent != e || o.Record.Mem == nil {
			continue
		}
		r, err := d.Session.CreateMem(driver.MemDesc{Kind: o.Record.Mem.Kind, Bytes: o.Record.Mem.Bytes,
			Access: o.Record.Mem.Access, Offset: o.Record.Mem.Offset, Image: o.Record.Mem.Image, Parent: h})
		if err != nil {
			return made, err
		}
		made[o] = r
	}
	return made, nil
}

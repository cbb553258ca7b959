package gpustate

import (
	"context"

	"github.com/holdfast-hpc/holdfast/gpustate/internal/record"
)

// Restore brings the objects and bytes of a capture to this device: into the objects that the
// program has made already, and into new ones for the rest, which the program gets when it asks
// for them. Objects are found by name or, without one, by the order in which the program makes
// those of a kind, including released ones. A capture of this very device finds its own objects,
// whatever their names are now. An object that the program has released since the capture is there
// again for the kernels that use it; the program gets it by its name, without a name it does not.
// Objects that the capture did not hold stay as they are. Kernels get the arguments that they had.
// An existing program keeps its source, so a restart may bring a corrected one. Objects that an
// earlier Restore made and the program has not asked for are released first.
//
// A program whose binary form this device does not load is built from its source, if it
// has one: BuiltFromSource lists it.
//
// rec is what Capture.Record gave. read fills dst with bytes of content i from off
// on; it is called from several goroutines at once, for less than 8 MiB per call.
//
// Every object of the record is checked first: a limit of this device, a program
// without a source for it, or an existing object that differs is an *ObjectError
// before anything changes. After a later failure, objects that Restore made are
// released, and the bytes of those that the program made are undefined.
func (d *Device) Restore(ctx context.Context, rec []byte, read func(i int, dst []byte, off int64) error) error {
	return d.restoring(ctx, rec, func(r *record.Record) error { return d.state.Restore(ctx, r, read, nil) })
}

// RestoreHashed is Restore, and then, before the program can change anything, computes the hashes of what it restored,
// for each content of the record in order: those that Hashes gives of a later capture of the same bytes. Chunks that no
// capture has in device memory have the zero Hash. The result is nil where the device cannot compute them: nothing is
// known then, and the restore is as good. Cost: one pass over the restored device memory, by the device.
func (d *Device) RestoreHashed(ctx context.Context, rec []byte, read func(i int, dst []byte, off int64) error) (
	hashes [][]Hash, err error) {
	err = d.restoring(ctx, rec, func(r *record.Record) (err error) {
		hashes, err = d.state.RestoreHashed(ctx, r, read)
		return err
	})
	return hashes, err
}

// restoring stops the device for a restore of a record.
func (d *Device) restoring(ctx context.Context, rec []byte, restore func(r *record.Record) error) error {
	r, err := record.Decode(rec)
	if err != nil {
		return err
	}
	if err := d.stop(ctx); err != nil {
		return err
	}
	defer d.start()
	return restore(r)
}

// Ordered checks that the program, since a Restore, has asked for unnamed memory in the
// original order. If not, the error matches ErrIdentity and names a restored object that
// the program skipped, so that it works on an undefined one instead. A capture checks
// this too.
func (d *Device) Ordered() error {
	d.making.Lock()
	defer d.making.Unlock()
	return d.state.Ordered("restore")
}

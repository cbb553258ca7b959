package coordinated

import (
	"encoding/binary"
	"errors"
	"hash/fnv"
	"io"
	"reflect"

	"github.com/holdfast-hpc/holdfast/coordinated/internal/arrays"
	"github.com/holdfast-hpc/holdfast/gpustate"
	"github.com/holdfast-hpc/holdfast/internal/layout"
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
// The library keeps x until Close. It reads the memory in a Point and writes it in Restore, and does not touch it in
// between. Anything else, a name used twice or a call after Restore is a *ProtectError.
func (c *Checkpointer) Protect(name string, x any) error {
	return c.protect(name, x, func() error { return c.state.Add(name, x) })
}

// ProtectGlobal makes this rank's share of a global array part of every checkpoint, so that any number of ranks can
// restore an epoch. Restore reads only the elements that the rank owns then. memory is a pointer to a slice of
// fixed-size elements without pointers, or a buffer of a device by InBuffer. A restore keeps its length and changes
// only elements in boxes: ghosts are not saved. Every rank declares the array, with the same name, type and dimensions.
// An element that no rank owns, or two do, fails Restore with an error that names the box and the ranks.
//
// Another number of ranks can restore an epoch under three conditions: Options.Elastic is set, everything is protected
// by ProtectGlobal, ProtectReplicated or ProtectItems, and no message was in flight (see Options.Elastic). It is local,
// and called before Restore as Protect is. An array or memory that is not allowed is a *ProtectError.
func (c *Checkpointer) ProtectGlobal(name string, a Array, memory any) error {
	return c.protect(name, memory, func() error {
		if a.list {
			return errors.New("a List changes; use ProtectList or ProtectChanging")
		}
		if m, ok := memory.(arrays.DeviceMemory); ok && m.At != nil {
			return errors.New("InBufferAt is for ProtectChanging; use InBuffer")
		}
		d, err := a.division()
		if err != nil {
			return err
		}
		return c.state.AddGlobal(name, d.Dims, d.Blocks, memory)
	})
}

// ProtectReplicated protects a value that is the same on all ranks, like a step counter. It is stored once, or with
// every rank if it is small, and any number of ranks can restore it. x is a value that Protect takes, but no device.
// The ranks' bytes are compared at each checkpoint, which fails where they differ. It is local, and called before
// Restore as Protect is. An x that is not allowed is a *ProtectError.
func (c *Checkpointer) ProtectReplicated(name string, x any) error {
	return c.protect(name, x, func() error { return c.state.AddReplicated(name, x, c.topo.Rank == 0) })
}

// Changing describes the division of an array whose dimensions, or whose division among the ranks, change while the
// program runs: an adaptive mesh, particles that move from rank to rank, a series that grows.
type Changing struct {
	// Now returns the array as it is, and this rank's part. It is called while the program waits in a Point that takes
	// a checkpoint, and must not send or receive. The ranks return the same dimensions, or all of them a List.
	Now func() Array

	// Restored returns the part that this rank is to have of the array in the epoch, which has the dimensions of the
	// epoch. Restore calls it once for each epoch that it tries. Its result should depend only on its arguments. An
	// error fails Restore. Nil: with as many ranks as the epoch has, each gets its part again; with others, the first
	// dimension is divided evenly. Then the boxes lie in memory one after the other, without ghosts.
	Restored func(was SavedArray) (Array, error)
}

// SavedArray describes a global array as an epoch has it.
type SavedArray struct {
	Dims  []int
	Ranks int   // number of ranks that wrote the epoch
	Boxes []Box // this rank's part in the epoch, packed in memory, if as many ranks wrote it; else nil
}

// ProtectChanging protects a global array whose dimensions or division change. memory is a pointer to a slice, or
// InBufferAt of a pointer to a buffer: each checkpoint may find another slice or buffer there.
//
// Restore gives the slice the length that the array takes, in new memory where it was shorter. A buffer that is too
// small is replaced by a new one without a name, and released: take slices and buffers from their variables after
// Restore, and set kernel arguments then.
//
// Each checkpoint compares the declarations of the ranks. It fails where they say other dimensions, or boxes do not fit
// together. Restore fails on all ranks if the results of Restored do not have each element once.
//
// It is local, and called before Restore as Protect is. A memory that is not allowed is a *ProtectError. A Point that
// takes a checkpoint adds one exchange of the declarations between all ranks.
func (c *Checkpointer) ProtectChanging(name string, a Changing, memory any) error {
	return c.protect(name, memory, func() error {
		if a.Now == nil {
			return errors.New("Changing.Now is nil; it says what the rank has when a checkpoint is taken")
		}
		if m, ok := memory.(arrays.DeviceMemory); ok && m.At == nil {
			return errors.New("the array's buffer may become too small; pass a pointer to it, with InBufferAt")
		}
		return c.state.AddChanging(name, arrays.Changing{
			Now: func() (arrays.Division, error) { now := a.Now(); return now.division() },
			Restored: func(saved *layout.Array, ranks int, mine []layout.Part) (arrays.Division, error) {
				return c.divisionOf(&a, saved, ranks, mine)
			},
		}, memory)
	})
}

// ProtectList protects this rank's elements of a list that is spread over all ranks: particles, say, whose number
// differs from rank to rank and from step to step. list is a pointer to a slice. With the same number of ranks Restore
// gives each rank its own elements. With another number each gets an equal share of all elements, in their order, and
// the program sends them to the ranks that need them. It is ProtectChanging of a List. It is local, and called before
// Restore as Protect is. A list that is not allowed is a *ProtectError.
func (c *Checkpointer) ProtectList(name string, list any) error {
	v := reflect.ValueOf(list)
	if v.Kind() != reflect.Pointer || v.IsNil() || v.Elem().Kind() != reflect.Slice {
		return c.protect(name, list, func() error {
			return errors.New("a list is a pointer to a slice; for a buffer use ProtectChanging with InBufferAt")
		})
	}
	return c.ProtectChanging(name, Changing{Now: func() Array { return List(v.Elem().Len()) }}, list)
}

// divisionOf returns this rank's share of an array of an epoch.
func (c *Checkpointer) divisionOf(of *Changing, saved *layout.Array, ranks int,
	mine []layout.Part) (d arrays.Division, err error) {
	was := SavedArray{Dims: narrow(saved.Dims), Ranks: ranks, Boxes: packed(mine)}
	var a Array
	switch {
	case of.Restored != nil:
		if a, err = of.Restored(was); err != nil {
			return d, err
		}
	case ranks == c.topo.Size():
		a = Array{Dims: was.Dims, Boxes: was.Boxes}
	default:
		grid := make([]int, len(was.Dims))
		for i := range grid {
			grid[i] = 1
		}
		grid[0] = c.topo.Size()
		a = Block(was.Dims, grid, c.topo.Rank)
	}
	if a.list {
		return d, errors.New("the function Restored returned a List, of which nobody knows where it begins; return " +
			"Block, Variable or boxes, or leave out Restored")
	}
	return a.division()
}

// InBuffer returns the memory argument of ProtectGlobal for an array that lies in a buffer of a device, as elements of
// type T. A checkpoint packs the rank's boxes within the device if it has free memory, else it copies them to the host.
// A restore writes them to the buffer in pieces of 8 MiB. Another start may have the array in host memory: both read
// the same checkpoints. The buffer is not released while the Checkpointer is open. A device that is protected itself,
// with Protect, has all its buffers in the epoch already, so an array on it is refused.
func InBuffer[T any](b *gpustate.Buffer) any {
	return arrays.DeviceMemory{Buffer: b, Elem: reflect.TypeFor[T]()}
}

// InBufferAt returns the memory argument of ProtectChanging for an array in a buffer that the program or Restore may
// replace. The new buffer is on the same device.
func InBufferAt[T any](b **gpustate.Buffer) any {
	return arrays.DeviceMemory{At: b, Elem: reflect.TypeFor[T]()}
}

// ItemKey identifies an item. Keys are unique among the items of all ranks.
type ItemKey interface {
	~int | ~int8 | ~int16 | ~int32 | ~int64 | ~uint | ~uint8 | ~uint16 | ~uint32 | ~uint64 | ~string
}

// ProtectItems makes this rank's items of a set part of every checkpoint, so that any number of ranks can restore an
// epoch. Items are the patches of an adaptive mesh, say, or the particles of a cell. V is a fixed-size value without
// pointers, or a slice of such values. Every rank declares the set with the same name and types, even without an item.
// A key that two ranks have fails each checkpoint.
//
// At a restart each item goes to the rank that owner returns for the number of ranks; HashOwner spreads them evenly.
// Restore asks the rule for every key on every rank, so its answer must depend only on the key and the number of ranks.
// Restore fails if an answer is no rank, or if the ranks' answers differ. Without a rule the items stay with their rank
// if the number of ranks is the same; else rank r of p goes to r·q/p of q. Restore replaces the map, and gives each
// slice memory of its own. An attempt that fails leaves the map alone.
//
// It is local, and called before Restore as Protect is. A type that is not allowed is a *ProtectError. A Point that
// takes a checkpoint sorts the keys: about 0.3 µs for each item, while the program waits. All ranks' keys are in the
// epoch's manifest, about three bytes for each integer key. So make an item of a cell or a patch, not of a particle.
func ProtectItems[K ItemKey, V any](c *Checkpointer, name string, items *map[K]V,
	owner func(key K, ranks int) int) error {
	var rule arrays.Owner
	if owner != nil {
		rule = func(k layout.Key, ranks int) int { return owner(keyOf[K](k), ranks) }
	}
	return c.protect(name, items, func() error {
		return c.state.AddItems(name, items, rule, c.topo.Rank, c.topo.Size())
	})
}

// keyOf returns a key as the program has it.
func keyOf[K ItemKey](k layout.Key) (key K) {
	switch v := reflect.ValueOf(&key).Elem(); {
	case v.Kind() == reflect.String:
		v.SetString(k.Str)
	case v.CanUint():
		v.SetUint(uint64(k.Int))
	default:
		v.SetInt(k.Int)
	}
	return key
}

// HashOwner is an owner rule for ProtectItems: it returns the rank, of 0 to ranks-1, to which key's hash leads. It
// spreads keys evenly. It is the same on all machines and in all releases.
func HashOwner[K ItemKey](key K, ranks int) int {
	h := fnv.New64a()
	switch v := reflect.ValueOf(key); {
	case v.Kind() == reflect.String:
		_, _ = h.Write([]byte(v.String())) // it never fails
	case v.CanUint():
		_, _ = h.Write(binary.LittleEndian.AppendUint64(nil, v.Uint()))
	default:
		_, _ = h.Write(binary.LittleEndian.AppendUint64(nil, uint64(v.Int())))
	}
	x := h.Sum64()
	x ^= x >> 32 // the low bits of FNV do not spread
	return int(x % uint64(ranks))
}

// protect is the frame of the calls that protect something.
func (c *Checkpointer) protect(name string, x any, add func() error) error {
	var err error
	switch {
	case c.main.Closed.Load():
		err = ErrClosed
	case c.main.Restored.Load() && c.main.foreign == nil: // another process declares its state at each checkpoint
		err = ErrRestored
	default:
		err = add()
	}
	if err == nil {
		// Captures on the device take a bounded amount of its memory.
		var d *gpustate.Device
		switch v := x.(type) {
		case *gpustate.Device:
			d = v
		case arrays.DeviceMemory:
			d = v.Device()
		}
		if d != nil && c.opt.MaxShadow != 0 {
			d.LimitShadow(max(c.opt.MaxShadow, 0))
		}
		return nil
	}
	e := &ProtectError{Name: name, Type: reflect.TypeOf(x), Err: err}
	if c.main.foreign != nil {
		e.Type = nil // the program does not know it
	}
	return e
}

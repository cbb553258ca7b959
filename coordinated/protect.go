package coordinated

import (
	"fmt"
	"reflect"
	"strings"

	"github.com/holdfast-hpc/holdfast/gpustate"
)

// protected is everything the program has named, in the order it did.
type protected struct {
	names   map[string]bool
	regions []namedRegion
	devices []namedDevice
}

type namedRegion struct {
	name string
	region
}

type namedDevice struct {
	name string
	dev  *gpustate.Device
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
// The memory is copied at a Point, and read into by Restore; in between it is
// the program's alone. Anything else, a name used twice or a call after
// Restore is a *ProtectError.
func (c *Checkpointer) Protect(name string, x any) error {
	fail := func(err error) error {
		return &ProtectError{Name: name, Type: reflect.TypeOf(x), Err: err}
	}
	switch {
	case c.closed.Load():
		return fail(ErrClosed)
	case c.restored.Load():
		return fail(ErrRestored)
	case name == "" || strings.ContainsAny(name, "/\x00\n") || len(name) > 200:
		return fail(fmt.Errorf("a name has 1 to 200 bytes, without '/', newline or zero"))
	case c.state.names[name]:
		return fail(fmt.Errorf("protected already; every name stands for one thing"))
	}
	if dev, ok := x.(*gpustate.Device); ok {
		if dev == nil {
			return fail(fmt.Errorf("nil device; open it first"))
		}
		c.state.devices = append(c.state.devices, namedDevice{name, dev})
		c.state.names[name] = true
		return nil
	}
	r, err := newRegion(x)
	if err != nil {
		return fail(err)
	}
	c.state.regions = append(c.state.regions, namedRegion{name, r})
	c.state.names[name] = true
	return nil
}

// pinnable are the devices that copy faster into pinned memory.
func (p *protected) pinnable() []*gpustate.Device {
	var list []*gpustate.Device
	for _, d := range p.devices {
		list = append(list, d.dev)
	}
	return list
}

// bytes is how much of the pool a capture needs now.
func (p *protected) bytes() int64 {
	var n int64
	for _, r := range p.regions {
		if b := r.bytes(); b >= inlineBytes {
			n += roundUp(b)
		}
	}
	for _, d := range p.devices {
		n += roundUp(d.dev.StateBytes())
	}
	return n
}

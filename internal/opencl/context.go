package opencl

import (
	"errors"
	"slices"
	"sync"

	"github.com/holdfast-hpc/holdfast/gpustate"
	"github.com/holdfast-hpc/holdfast/internal/opencl/wire"
)

// clContext is a context of the program: the devices that its objects are on.
type clContext struct {
	entry
	devices []*device
	open    []*gpustate.Device // as devices
}

// maxDevices bounds the devices of a context.
const maxDevices = 64

// release lets go of nothing: the objects of a context are released one by one.
func (c *clContext) release() error { return nil }

// index returns the place of a device in the context, -1 if it is not there.
func (c *clContext) index(d *device) int { return slices.Index(c.devices, d) }

// place is index for a request that names both: it fails if the device is not there.
func (c *clContext) place(m *wire.Request, d *device) int {
	if m.Bad() {
		return -1
	}
	at := c.index(d)
	m.Check(at >= 0, "a device of another context")
	return at
}

// each makes one thing on every device, the i-th of the context; after an error none is left.
func each[T interface{ Release() error }](c *clContext, create func(i int, d *gpustate.Device) (T, error)) ([]T,
	error) {
	var list []T
	for i, d := range c.open {
		one, err := create(i, d)
		if err != nil {
			return nil, errors.Join(err, releaseAll(list))
		}
		list = append(list, one)
	}
	return list, nil
}

func releaseAll[T interface{ Release() error }](list []T) error {
	var errs []error
	for _, one := range list {
		errs = append(errs, one.Release())
	}
	return errors.Join(errs...)
}

// ownQueue is the name of the worker's queue on each device, which is the same at each start.
const ownQueue = "holdfast opencl"

// entry is the number of an object, and the request that made it.
type entry struct {
	id   uint64
	made *wire.Request
}

func (e *entry) asEntry() *entry { return e }

// clObject is an object of the program.
type clObject interface{ asEntry() *entry }

// enter is add for an object that a request has made; m is nil for programs and kernels.
func (h *handler) enter(m *wire.Request, id uint64, o clObject) error {
	*o.asEntry() = entry{id, m}
	return h.add(id, o)
}

// held is an object that commands which are kept back still need.
type held struct {
	entry
	mu    sync.Mutex
	users int
	gone  bool // the program has released it
	free  func() error
}

// hold keeps the object; letGo ends it.
func (o *held) hold() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.users++
}

func (o *held) letGo() {
	o.mu.Lock()
	o.users--
	free := o.gone && o.users == 0
	o.mu.Unlock()
	if free {
		_ = o.free() // the program's release has returned
	}
}

// release releases the object, when no command holds it any more.
func (o *held) release() error {
	o.mu.Lock()
	o.gone = true
	free := o.users == 0
	o.mu.Unlock()
	if free {
		return o.free()
	}
	return nil
}

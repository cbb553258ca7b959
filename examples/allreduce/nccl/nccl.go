// Package nccl adds up buffers of CUDA devices with NVIDIA's NCCL, which it opens at run time:
// programs build and start without it. Its communicator outlives neither a restart nor a move of a
// device; package nccl makes it again, on all ranks alike.
package nccl

/*
#cgo LDFLAGS: -ldl
#include <dlfcn.h>
#include <stdint.h>
#include <stdlib.h>

typedef struct {
	uint8_t b[128];
} hf_nccl_id;

static struct {
	int32_t (*id)(hf_nccl_id *id);
	int32_t (*init)(uintptr_t *comm, int ranks, hf_nccl_id id, int rank);
	int32_t (*destroy)(uintptr_t comm);
	int32_t (*start)(void);
	int32_t (*end)(void);
	int32_t (*sum)(uintptr_t from, uintptr_t to, size_t n, int type, int op, uintptr_t comm, uintptr_t stream);
	const char *(*text)(int32_t rc);
} hf_nccl;

static const char *hf_nccl_open(const char *file)
{
	void *lib = dlopen(file, RTLD_NOW | RTLD_LOCAL);
	if (!lib)
		return dlerror();
	*(void **)&hf_nccl.id = dlsym(lib, "ncclGetUniqueId");
	*(void **)&hf_nccl.init = dlsym(lib, "ncclCommInitRank");
	*(void **)&hf_nccl.destroy = dlsym(lib, "ncclCommDestroy");
	*(void **)&hf_nccl.start = dlsym(lib, "ncclGroupStart");
	*(void **)&hf_nccl.end = dlsym(lib, "ncclGroupEnd");
	*(void **)&hf_nccl.sum = dlsym(lib, "ncclAllReduce");
	*(void **)&hf_nccl.text = dlsym(lib, "ncclGetErrorString");
	return hf_nccl.id && hf_nccl.init && hf_nccl.destroy && hf_nccl.start && hf_nccl.end && hf_nccl.sum &&
		hf_nccl.text ? NULL : "the library lacks calls of NCCL";
}

static int32_t hf_nccl_id_new(uint8_t *b) { return hf_nccl.id((hf_nccl_id *)b); }
static int32_t hf_nccl_init(uintptr_t *comm, int ranks, const uint8_t *id, int rank)
{
	return hf_nccl.init(comm, ranks, *(const hf_nccl_id *)id, rank);
}
static int32_t hf_nccl_destroy(uintptr_t comm) { return hf_nccl.destroy(comm); }
static int32_t hf_nccl_start(void) { return hf_nccl.start(); }
static int32_t hf_nccl_end(void) { return hf_nccl.end(); }
static int32_t hf_nccl_sum(uintptr_t from, uintptr_t to, size_t n, uintptr_t comm, uintptr_t stream)
{
	return hf_nccl.sum(from, to, n, 5, 0, comm, stream); // ncclUint64, ncclSum
}
static const char *hf_nccl_text(int32_t rc) { return hf_nccl.text(rc); }
*/
import "C"

import (
	"errors"
	"fmt"
	"sync"
	"unsafe"

	"github.com/holdfast-hpc/holdfast/gpustate"
	"github.com/holdfast-hpc/holdfast/mpiwrap"
)

// open opens NCCL once.
var open = sync.OnceValue(func() error {
	var errs []error
	for _, file := range []string{"libnccl.so.2", "libnccl.so"} {
		name := C.CString(file)
		msg := C.hf_nccl_open(name)
		C.free(unsafe.Pointer(name))
		if msg == nil {
			return nil
		}
		errs = append(errs, errors.New(C.GoString(msg)))
	}
	return fmt.Errorf("NCCL is not on this machine: %w; set LD_LIBRARY_PATH to its folder", errors.Join(errs...))
})

// Available returns the reason why NCCL cannot be used, nil if it can.
func Available() error { return open() }

// A Comm is all devices of all ranks. Its methods are called one at a time.
type Comm struct {
	world *mpiwrap.Comm
	devs  []*gpustate.Device
	comms []C.uintptr_t // of devs, none before the first use
	of    []uint64      // the generations of devs that comms were made in
}

// Open opens the library for the CUDA devices of this rank; each rank has as many.
func Open(world *mpiwrap.Comm, devs ...*gpustate.Device) (*Comm, error) {
	for _, d := range devs {
		if i := d.Info(); i.Kind != "cuda" || i.Server != "" {
			return nil, fmt.Errorf("NCCL needs CUDA devices of this machine, this is %s: choose another device", i)
		}
	}
	return &Comm{world: world, devs: devs, of: make([]uint64, len(devs))}, open()
}

// Sum enqueues to[i] = the sum of from of all devices of all ranks, as uint64, on queues[i] of device
// i. It is collective. Captures wait for it.
//
// The ranks meet in an MPI collective first. So no rank waits on its device for a rank that stands at a Point, which
// could never come: Holdfast sees the ranks that wait in MPI and lets the others come there, but it does not see ranks
// that wait in NCCL. There they also learn whether any device has moved.
func (c *Comm) Sum(queues []*gpustate.Queue, to, from []*gpustate.Buffer) error {
	return within(c.devs, nil, func(lent []*gpustate.Foreign) error {
		mine, all := []int32{0}, []int32{0}
		for i, f := range lent {
			if c.of[i] != f.Generation() {
				mine[0] = 1
			}
		}
		if err := mpiwrap.Allreduce(c.world, all, mine, mpiwrap.Max); err != nil {
			return err
		}
		if all[0] != 0 {
			if err := c.renew(lent, queues); err != nil {
				return err
			}
		}
		return group(func(i int) error { return c.sum(i, lent[i], queues[i], to[i], from[i]) }, len(lent))
	})
}

func (c *Comm) sum(i int, f *gpustate.Foreign, q *gpustate.Queue, to, from *gpustate.Buffer) error {
	stream, err := q.Native(f)
	if err != nil {
		return err
	}
	dst, err := to.Pointer(f)
	if err != nil {
		return err
	}
	src, err := from.Pointer(f)
	if err != nil {
		return err
	}
	return status("ncclAllReduce", C.hf_nccl_sum(C.uintptr_t(src), C.uintptr_t(dst), C.size_t(from.Bytes()/8),
		c.comms[i], C.uintptr_t(stream)))
}

// renew makes the communicator for the contexts as they are now: a restore or a move takes the ones
// of before away.
func (c *Comm) renew(lent []*gpustate.Foreign, queues []*gpustate.Queue) error {
	for _, q := range queues {
		if err := q.Finish(); err != nil {
			return err
		}
	}
	id := make([]byte, unsafe.Sizeof(C.hf_nccl_id{}))
	if c.world.Rank() == 0 {
		if err := status("ncclGetUniqueId", C.hf_nccl_id_new((*C.uint8_t)(&id[0]))); err != nil {
			return err
		}
	}
	if err := errors.Join(c.destroy(), mpiwrap.Bcast(c.world, id, 0)); err != nil {
		return err
	}
	comms := make([]C.uintptr_t, len(lent))
	err := group(func(i int) error {
		if err := lent[i].MakeCurrent(); err != nil { // NCCL takes the device of the current context
			return err
		}
		return status("ncclCommInitRank", C.hf_nccl_init(&comms[i], C.int(c.world.Size()*len(lent)),
			(*C.uint8_t)(&id[0]), C.int(c.world.Rank()*len(lent)+i)))
	}, len(lent))
	if err != nil {
		return err
	}
	c.comms = comms
	for i, f := range lent {
		c.of[i] = f.Generation()
	}
	return nil
}

// destroy ends the communicator.
func (c *Comm) destroy() error {
	comms := c.comms
	c.comms = nil
	return group(func(i int) error { return status("ncclCommDestroy", C.hf_nccl_destroy(comms[i])) }, len(comms))
}

// Close ends the communicator. It is collective.
func (c *Comm) Close() error {
	return within(c.devs, nil, func([]*gpustate.Foreign) error { return c.destroy() })
}

// group does something for each of n devices in one call of NCCL.
func group(do func(i int) error, n int) error {
	if err := status("ncclGroupStart", C.hf_nccl_start()); err != nil {
		return err
	}
	var errs []error
	for i := range n {
		errs = append(errs, do(i))
	}
	return errors.Join(append(errs, status("ncclGroupEnd", C.hf_nccl_end()))...)
}

// within has all devices lent at once.
func within(devs []*gpustate.Device, lent []*gpustate.Foreign, do func([]*gpustate.Foreign) error) error {
	if len(devs) == 0 {
		return do(lent)
	}
	return devs[0].Foreign(func(f *gpustate.Foreign) error { return within(devs[1:], append(lent, f), do) })
}

func status(call string, rc C.int32_t) error {
	if rc != 0 {
		return fmt.Errorf("%s: %s", call, C.GoString(C.hf_nccl_text(rc)))
	}
	return nil
}

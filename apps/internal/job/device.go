package job

import (
	"errors"
	"os"
	"strconv"
	"time"

	"github.com/holdfast-hpc/holdfast/gpustate"
	"github.com/holdfast-hpc/holdfast/mpiwrap"
)

// A Device is the device of a rank. Its queue has the window of -window, and it counts the time
// that building programs takes.
type Device struct {
	*gpustate.Device
	Window int // of MainQueue, as gpustate.QueueOptions has it
	built  time.Duration
	free   []func() error // the memory of HostMemory
}

// MainQueue gets or makes the queue of a program with one queue.
func (d *Device) MainQueue() (*gpustate.Queue, error) {
	return d.QueueWith("main", gpustate.QueueOptions{Window: d.Window})
}

// Build gets or builds a program and its kernels.
func (d *Device) Build(name string, sources gpustate.Sources, options string,
	kernels map[string]**gpustate.Kernel) error {
	start := time.Now()
	defer func() { d.built += time.Since(start) }()
	p, err := d.Program(name, sources, options)
	if err != nil {
		return err
	}
	for name, k := range kernels {
		if *k, err = p.Kernel(name); err != nil {
			return err
		}
	}
	return nil
}

// Launch starts a kernel with these arguments and returns at once.
func Launch(q *gpustate.Queue, k *gpustate.Kernel, global, local []int, args ...any) error {
	if err := k.SetArgs(args...); err != nil {
		return err
	}
	_, err := q.Launch(k, global, local)
	return err
}

// OpenDevice opens the device of this rank. The ranks of a node share out the
// devices that match.
func (o *Options) OpenDevice(world *mpiwrap.Comm) (*Device, error) {
	config, err := o.readConfig()
	if err == nil {
		err = config.Err()
	}
	if err != nil {
		return nil, err
	}
	sel := config.Options().Device
	sel.Rank = nodeRank(world.Rank())
	dev, err := gpustate.Open(sel)
	if err != nil {
		return nil, err
	}
	return &Device{Device: dev, Window: o.Window}, nil
}

// nodeRank returns the number of this rank on its node, as the launcher sets it in the environment.
// Without such a variable it returns the rank itself, which still shares out the devices evenly
// where all nodes have the same number of ranks and devices.
func nodeRank(rank int) int {
	for _, name := range []string{"OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID"} {
		if n, err := strconv.Atoi(os.Getenv(name)); err == nil && n >= 0 {
			return n
		}
	}
	return rank
}

// HostMemory is gpustate.HostMemory of memory that Close of the device frees. Of 0
// elements it gives nil.
func HostMemory[T gpustate.Scalar](d *Device, n int) ([]T, error) {
	if n == 0 {
		return nil, nil
	}
	m, free, err := gpustate.HostMemory[T](d.Device, n)
	if err == nil {
		d.free = append(d.free, free)
	}
	return m, err
}

// Close closes the device and frees its host memory.
func (d *Device) Close() error {
	err := d.Device.Close()
	for _, free := range d.free {
		err = errors.Join(err, free())
	}
	d.free = nil
	return err
}

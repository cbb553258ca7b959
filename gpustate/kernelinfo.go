package gpustate

import (
	"github.com/holdfast-hpc/holdfast/gpustate/internal/driver"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/record"
)

// Group is what a device says about the work-groups of a kernel: the largest one, what
// sizes are best a multiple of, what the source fixes by reqd_work_group_size, bytes of
// local memory (besides that of arguments) and of private memory.
//
//	Size     int    // the largest one
//	Multiple int    // what sizes are best a multiple of
//	Fixed    [3]int // what the source asks for by reqd_work_group_size, or zero
//	// bytes of local memory of a work-group without that of arguments, and of private
//	// memory of a work item; 0 where the device does not tell
//	LocalBytes, PrivateBytes int64
type Group = driver.Group

// ArgInfo is what the source says about an argument. Address, Access and Qualifiers are
// OpenCL's numbers: CL_KERNEL_ARG_ADDRESS_*, _ACCESS_* and _TYPE_*.
//
//	Name, Type      string
//	Address, Access uint32
//	Qualifiers      uint32
type ArgInfo = driver.ArgInfo

// Group asks the device about the kernel's work-groups.
func (k *Kernel) Group() (g Group, err error) {
	err = k.ask(func(i driver.KernelInformer) (err error) {
		g, err = i.Group(k.h)
		return err
	})
	return g, err
}

// WorkGroup returns the largest work-group for the kernel on this device, and the
// preferred multiple of work-group sizes.
func (k *Kernel) WorkGroup() (size, multiple int, err error) {
	g, err := k.Group()
	return g.Size, g.Multiple, err
}

// ArgInfo tells what the source says about argument i. Some OpenCL platforms know it only
// of programs built with -cl-kernel-arg-info; CUDA devices do not: ErrUnsupported.
func (k *Kernel) ArgInfo(i int) (a ArgInfo, err error) {
	err = k.ask(func(d driver.KernelInformer) (err error) {
		a, err = d.ArgInfo(k.h, i)
		return err
	})
	return a, err
}

// ArgName is the name of argument i in the source, if the device reports it.
func (k *Kernel) ArgName(i int) (string, error) {
	a, err := k.ArgInfo(i)
	return a.Name, err
}

// ask holds the kernel, too: a driver may make it again when an argument is set.
func (k *Kernel) ask(do func(driver.KernelInformer) error) error {
	if err := k.dev.enter(); err != nil {
		return err
	}
	defer k.dev.leave()
	k.mu.Lock()
	defer k.mu.Unlock()
	i, ok := k.dev.drv.Device.(driver.KernelInformer)
	if !ok {
		return k.fail("ask about", ErrUnsupported)
	}
	if err := k.usable(k.dev); err != nil {
		return k.fail("ask about", err)
	}
	return k.fail("ask about", do(i))
}

// Clone makes another kernel object of the same function, with the arguments that k has
// now. Like all objects without a name it is identified by the order of creation.
func (k *Kernel) Clone() (*Kernel, error) {
	o := record.Object{Kernel: &record.Kernel{Program: k.obj.Kernel.Program, Function: k.obj.Kernel.Function}}
	c, err := obtain[*Kernel](k.dev, o, k.parent, func(have *record.Object) error {
		return equal(have.Kernel.Function == k.obj.Kernel.Function)
	})
	if err != nil {
		return nil, err
	}
	if err := c.copyArgs(k); err != nil {
		_ = c.Release()
		return nil, err
	}
	return c, nil
}

// copyArgs sets the arguments that another kernel of the same function has.
func (k *Kernel) copyArgs(from *Kernel) error {
	if err := from.hold(); err != nil {
		return err
	}
	args := make([]argument, len(from.args))
	for i, a := range from.args {
		a.value, a.spare = append([]byte(nil), a.value...), nil
		args[i] = a
	}
	from.mu.Unlock()
	if err := k.hold(); err != nil {
		return err
	}
	defer k.mu.Unlock()
	for i := range args {
		a := &args[i]
		if a.kind == driver.ArgNone || a.object != nil && a.object.released.Load() {
			continue
		}
		if err := k.dev.drv.SetArg(k.h, i, a.driver()); err != nil {
			return k.fail("set arguments of", err)
		}
	}
	k.args, k.fit = args, 0
	return nil
}

package gpustate

import (
	"context"
	"errors"

	"github.com/holdfast-hpc/holdfast/gpustate/internal/cl"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/cuda"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/driver"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/fake"
)

// libraries are the drivers of this process. Each opens its API's library once.
var libraries = []driver.Driver{&cuda.Library{}, cl.System, &fake.Library{}}

// Devices lists the devices of all APIs on this machine, without the fake. The
// error is set only when no API can be used; it says for each why not.
func Devices() ([]Info, error) {
	infos, _, missing := discover()
	var list []Info
	for _, i := range infos {
		if i.Kind != "fake" {
			list = append(list, i)
		}
	}
	if list == nil {
		return nil, errors.Join(missing...)
	}
	return list, nil
}

// discover lists all devices with their drivers.
func discover() (infos []Info, from []driver.Driver, missing []error) {
	for _, l := range libraries {
		found, err := l.Devices()
		if err != nil {
			missing = append(missing, err)
		}
		for _, i := range found {
			infos = append(infos, i)
			from = append(from, l)
		}
	}
	return infos, from, missing
}

// Open opens a device. The caller closes it. When nothing matches, the error is
// a *NoDeviceError that lists what there is.
func Open(sel Select) (*Device, error) {
	drv, err := openDriver(sel)
	if err != nil {
		return nil, err
	}
	d := newDevice(drv)
	d.opened.Store(&sel)
	return d, nil
}

func openDriver(sel Select) (driver.Device, error) {
	if sel.err != nil {
		return nil, sel.err
	}
	if sel.Remote != "" {
		return openRemote(context.Background(), sel)
	}
	infos, from, missing := discover()
	n := sel.pick(infos)
	if n < 0 {
		var real []Info
		for _, i := range infos {
			if i.Kind != "fake" {
				real = append(real, i)
			}
		}
		return nil, &NoDeviceError{Select: sel, Found: real, Missing: missing}
	}
	return from[n].Open(infos[n].Index)
}

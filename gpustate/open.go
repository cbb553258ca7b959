package gpustate

import (
	"context"
	"errors"
	"slices"

	"github.com/holdfast-hpc/holdfast/gpustate/internal/driver"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/drivers"
)

// Devices lists the devices of all APIs on this machine, except the fake. It fails
// only if no API can be used; the error has a reason for each.
func Devices() ([]Info, error) {
	infos, _, missing := discover()
	if infos = withoutFake(infos); len(infos) == 0 {
		return nil, errors.Join(missing...)
	}
	return infos, nil
}

// withoutFake is infos without the devices that tests bring.
func withoutFake(infos []Info) []Info {
	return slices.DeleteFunc(infos, func(i Info) bool { return driver.Can(i).OnRequest })
}

// discover lists all devices with their drivers.
func discover() (infos []Info, from []driver.Driver, missing []error) {
	for _, l := range drivers.All {
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
		return nil, &NoDeviceError{Select: sel, Found: withoutFake(infos), Missing: missing}
	}
	return from[n].Open(infos[n].Index)
}

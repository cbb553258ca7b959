package gpustate

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/holdfast-hpc/holdfast/gpustate/internal/driver"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/drivers"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/remote"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/wire"
)

// Devices lists the devices of all APIs on this machine, except the fake. It fails only if no API can be used; the
// error has a reason for each. The first call opens the libraries of the APIs.
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

// Open opens a device. The caller closes it. It is local: each rank of a job opens its own, and Select.Rank deals equal
// devices to the ranks of a node. The first call opens the libraries of the APIs.
//
// When nothing matches, the error is a *NoDeviceError that lists what there is. For a device of a server it is a
// *ServerError, which may match ErrKey, ErrRefused or ErrNoServer, or have a *VersionError. Each server has five
// seconds to accept the connection and five for the handshake.
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

// Matching lists the devices that a selection describes, without regard to its Index and Rank, and for each the
// selection of only that one. Of several servers each lists its own. When nothing matches, the error is a
// *NoDeviceError that lists what there is. It opens no device.
func Matching(sel Select) (list []Info, alone []Select, err error) {
	if sel.err != nil {
		return nil, nil, sel.err
	}
	found, err := offered(sel)
	if err != nil {
		return nil, nil, err
	}
	place := map[string]int{}
	for _, i := range found {
		place[i.Server]++
		if sel.Place > 0 && place[i.Server] != sel.Place || sel.Place == 0 && !sel.Matches(i) ||
			sel.OpenCL && !driver.Can(i).TakesOpenCL {
			continue
		}
		one := sel
		one.Remote, one.Place, one.Index, one.Rank = i.Server, place[i.Server], 0, 0
		list, alone = append(list, i), append(alone, one)
	}
	if len(list) == 0 {
		return nil, nil, &NoDeviceError{Select: sel, Found: withoutFake(found)}
	}
	return list, alone, nil
}

// offered returns all devices of where a selection looks.
func offered(sel Select) ([]Info, error) {
	if sel.Remote == "" {
		found, _, missing := discover()
		if len(found) == 0 {
			return nil, errors.Join(missing...)
		}
		return found, nil
	}
	sel.Index, sel.Place = -1, 0 // none of them: the refusal lists the devices
	_, err := openDriver(sel)
	var refusal *NoDeviceError
	if !errors.As(err, &refusal) {
		return nil, err
	}
	return refusal.Found, nil
}

// KeyEnv is the environment variable that DefaultKeyFile reads.
const KeyEnv = "HOLDFAST_GPUD_KEY"

// DefaultKeyFile returns the file with the key of servers for a selection that names none. It is the file that
// HOLDFAST_GPUD_KEY names, otherwise holdfast/gpud.key in the user's configuration directory, which the nodes of a
// cluster usually share. It reads no file. If there is neither, the error names the variable to set.
func DefaultKeyFile() (string, error) {
	if f := os.Getenv(KeyEnv); f != "" {
		return f, nil
	}
	dir, err := os.UserConfigDir()
	if err != nil {
		return "", fmt.Errorf("cannot locate the key file of GPU servers: %w; set %s", err, KeyEnv)
	}
	return filepath.Join(dir, "holdfast", "gpud.key"), nil
}

// openRemote opens a device of the first server that answers and has it. The
// error gives the reason for each.
func openRemote(ctx context.Context, sel Select) (driver.Device, error) {
	file := sel.KeyFile
	var err error
	if file == "" {
		if file, err = DefaultKeyFile(); err != nil {
			return nil, err
		}
	}
	key, err := wire.ReadKey(file)
	if err != nil {
		return nil, err
	}
	var errs []error
	var found []Info
	for _, addr := range strings.Fields(sel.Remote) {
		d, err := remote.Open(ctx, remote.Options{Addr: addr, Key: key, Label: label(sel), Silence: sel.Silence,
			Program: sel.Program, PID: sel.PID, Pick: sel.pick})
		if err == nil {
			return d, nil
		}
		if none, ok := errors.AsType[*remote.NoDeviceError](err); ok {
			found = append(found, none.Found...)
		}
		errs = append(errs, err)
	}
	if found != nil {
		return nil, &NoDeviceError{Select: sel, Found: found, Missing: errs}
	}
	return nil, errors.Join(errs...)
}

// label describes the job and rank of a client, for people.
func label(sel Select) string {
	if sel.Label != "" {
		return sel.Label
	}
	if job := os.Getenv("SLURM_JOB_ID"); job != "" {
		return "job " + job + " rank " + os.Getenv("SLURM_PROCID")
	}
	return ""
}

package gpustate

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/holdfast-hpc/holdfast/gpustate/internal/driver"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/remote"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/wire"
)

// KeyEnv is the environment variable that DefaultKeyFile reads.
const KeyEnv = "HOLDFAST_GPUD_KEY"

// DefaultKeyFile is the file with the key of servers where a selection names
// none: what HOLDFAST_GPUD_KEY says, otherwise holdfast/gpud.key in the user's
// configuration directory, which the nodes of a cluster usually share.
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
// error says for each why not.
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
		var none *remote.NoDeviceError
		if errors.As(err, &none) {
			found = append(found, none.Found...)
		}
		errs = append(errs, err)
	}
	if found != nil {
		return nil, &NoDeviceError{Select: sel, Found: found, Missing: errs}
	}
	return nil, errors.Join(errs...)
}

// label tells people which job and rank a client is.
func label(sel Select) string {
	if sel.Label != "" {
		return sel.Label
	}
	if job := os.Getenv("SLURM_JOB_ID"); job != "" {
		return "job " + job + " rank " + os.Getenv("SLURM_PROCID")
	}
	return ""
}

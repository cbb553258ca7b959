package mpirun

import (
	"errors"
	"fmt"
	"os/exec"
	"strings"
)

// Pick returns the launcher of this name, "openmpi" or "mpich", or, for an empty one, the first that is installed. An
// mpirun without a suffix is identified by its own output.
func Pick(name string) (Launcher, error) {
	var missing []error
	known := false
	for _, l := range Launchers() {
		if name != "" && name != l.Name {
			continue
		}
		known = true
		err := l.Available()
		if err == nil {
			return l, nil
		}
		if l.plain = isPlain(l); l.plain {
			return l, nil
		}
		missing = append(missing, err)
	}
	if !known {
		return Launcher{}, fmt.Errorf("MPI %q is not known; use openmpi or mpich", name)
	}
	return Launcher{}, errors.Join(missing...)
}

// InPath returns the launcher that the command mpirun is.
func InPath() (Launcher, error) {
	for _, l := range Launchers() {
		if l.plain = isPlain(l); l.plain {
			return l, nil
		}
	}
	return Launcher{}, errors.New("the mpirun in PATH is neither Open MPI's nor MPICH's, or there is none")
}

// isPlain reports whether the command mpirun is the launcher of l's MPI.
func isPlain(l Launcher) bool {
	out, err := exec.Command("mpirun", "--version").Output()
	sign := map[string]string{"openmpi": "Open MPI", "mpich": "HYDRA"}[l.Name]
	return err == nil && strings.Contains(string(out), sign)
}

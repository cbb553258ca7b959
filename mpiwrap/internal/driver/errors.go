package driver

import (
	"fmt"
	"strings"
)

// LibraryError says that no MPI library could be opened.
type LibraryError struct {
	Tried   []string
	Reasons []string
}

func (e *LibraryError) Error() string {
	var b strings.Builder
	b.WriteString("no usable MPI library: install Open MPI or MPICH, or name the library's file")
	for i, n := range e.Tried {
		fmt.Fprintf(&b, "; %s: %s", n, e.Reasons[i])
	}
	return b.String()
}

// PairingError says that the MPI library does not belong to the launcher: the
// launcher has started several ranks and each of them is alone.
type PairingError struct {
	Library  string // "Open MPI" or "MPICH"
	Launched int    // ranks, according to the environment
	Says     string // the environment variable
}

func (e *PairingError) Error() string {
	return fmt.Sprintf("launcher and MPI library do not belong together: %s=%d, but under %s every rank is alone; "+
		"start the program with %s's own mpirun, or name the launcher's library in Options.Library",
		e.Says, e.Launched, e.Library, e.Library)
}

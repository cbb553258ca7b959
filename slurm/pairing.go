package slurm

import (
	"context"
	"fmt"
	"slices"
	"strings"
)

// Plugins returns the values of srun's --mpi that work with an MPI library, as
// mpiwrap names it, best first.
func Plugins(library string) []string {
	switch library {
	case "Open MPI":
		return []string{"pmix"}
	case "MPICH":
		return []string{"pmi2"}
	}
	return nil
}

// PairError says that srun was told to use a plugin under which a library does
// not come up, and which one does.
type PairError struct {
	Library string
	Plugin  string
	Use     string // "" if the site has none that works
}

func (e *PairError) Error() string {
	if e.Use == "" {
		return fmt.Sprintf("srun --mpi=%s does not start %s, and this Slurm has no plugin that does; use %s's own mpirun inside the job", e.Plugin, e.Library, e.Library)
	}
	return fmt.Sprintf("srun --mpi=%s does not start %s: every rank would be alone or none would come up; use srun --mpi=%s", e.Plugin, e.Library, e.Use)
}

// CheckPair returns a *PairError when a plugin does not start a library. have
// are the plugins of the site; empty means that they are not known. A library
// that is not known is not judged.
func CheckPair(library, plugin string, have []string) error {
	good := Plugins(library)
	base, _, _ := strings.Cut(plugin, "_v") // pmix_v4
	if len(good) == 0 || slices.Contains(good, base) {
		return nil
	}
	e := &PairError{Library: library, Plugin: plugin}
	for _, g := range good {
		if len(have) == 0 || slices.Contains(have, g) {
			e.Use = g
			break
		}
	}
	return e
}

// MPIPlugins lists what srun's --mpi can be on this site.
func (c *Client) MPIPlugins(ctx context.Context) ([]string, error) {
	// The list goes to standard error in some versions.
	out, err := c.output(ctx, "sh", "-c", "exec srun --mpi=list 2>&1")
	if err != nil {
		return nil, err
	}
	return parsePlugins(out), nil
}

func parsePlugins(out string) []string {
	var plugins []string
	for line := range strings.Lines(out) {
		word := strings.TrimPrefix(strings.TrimSpace(line), "srun: ")
		if strings.ContainsAny(word, " :.") {
			continue // heading, versions
		}
		if word != "" {
			plugins = append(plugins, word)
		}
	}
	return plugins
}

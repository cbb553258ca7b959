package slurm

import (
	"context"
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

// MPIPlugins lists what srun's --mpi can be on this site.
func (c *Client) MPIPlugins(ctx context.Context) ([]string, error) {
	// The list goes to standard error in some versions.
	out, err := c.ask(ctx, "sh", "-c", "exec srun --mpi=list 2>&1")
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

package config

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Stray names the variables of an environment that look like Holdfast's and mean
// nothing to it, and the keys of the file that were settings of holdfast gpud.
func (c *Config[T]) Stray(environ []string) []string {
	stray := slices.Clone(c.server)
	for _, kv := range environ {
		name, _, _ := strings.Cut(kv, "=")
		key, ours := strings.CutPrefix(name, "HOLDFAST_")
		if !ours || other(name) || strings.HasPrefix(key, "TEST") || strings.HasPrefix(key, "APPS") ||
			slices.ContainsFunc(c.values, func(v Value) bool { return v.Env == name }) {
			continue
		}
		why := "Holdfast has no such variable"
		if gone := removedVariable(name); gone != "" {
			why = gone
		}
		stray = append(stray, fmt.Sprintf("%s is set, but %s", name, why))
	}
	slices.Sort(stray)
	return stray
}

// unknown describes a key that is in no row.
func unknown(key string) string {
	return cmp.Or(Removed(key), "no such key; 'holdfast config --all' lists them")
}

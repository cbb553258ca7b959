package config

import (
	"fmt"
	"slices"
	"strings"
)

// Stray names the variables of an environment that look like Holdfast's and mean
// nothing to it, each with the one that was probably meant, and the keys of the file that
// were settings of holdfast gpud.
func (c *Config[T]) Stray(environ []string) []string {
	stray := slices.Clone(c.server)
	for _, kv := range environ {
		name, _, _ := strings.Cut(kv, "=")
		key, ours := strings.CutPrefix(name, "HOLDFAST_")
		if !ours || strings.HasPrefix(key, "TEST") || strings.HasPrefix(key, "APPS") ||
			slices.ContainsFunc(Variables, func(v Variable) bool { return v.Name == name }) ||
			slices.ContainsFunc(c.values, func(v Value) bool { return v.Env == name }) {
			continue
		}
		why := "Holdfast has no such variable"
		if gone := removedVariable(name); gone != "" {
			why = gone
		} else if v := c.closest(strings.ToLower(key)); v != nil {
			why += ", do you mean " + v.Env + "?"
		}
		stray = append(stray, fmt.Sprintf("%s is set, but %s", name, why))
	}
	slices.Sort(stray)
	return stray
}

// unknown describes a key that is in no row, with a hint at the one that was meant.
func (c *Config[T]) unknown(key string) string {
	if gone := Removed(key); gone != "" {
		return gone
	}
	if v := c.closest(key); v != nil {
		return fmt.Sprintf("no such key; do you mean %s?", v.Key)
	}
	return "no such key; 'holdfast config --all' lists them"
}

// closest has the key that a wrong one probably means, nil if it is like none.
func (c *Config[T]) closest(key string) *Value {
	plain := func(s string) string { return strings.NewReplacer("_", "", "-", "", ".", "").Replace(s) }
	best, least := -1, 0
	for i := range c.values {
		a, b := plain(key), plain(c.values[i].Key)
		_, last, _ := strings.Cut(c.values[i].Key, ".")
		d := distance(a, b)
		if last != "" {
			d = min(d, 1+distance(a, plain(last)))
		}
		if len(b) > 3 && strings.Contains(a, b) || len(a) > 3 && strings.Contains(b, a) {
			d = min(d, 2) // checkpoint_interval, heartbeat
		}
		if d <= max(1, min(len(a), len(b))/3) && (best < 0 || d < least) {
			best, least = i, d
		}
	}
	if best < 0 {
		return nil
	}
	return &c.values[best]
}

// distance returns how many letters of a must be changed, dropped, put in or swapped
// with the next to get b.
func distance(a, b string) int {
	before, last, row := []int(nil), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := range len(a) {
		row[0] = i + 1
		for j := range len(b) {
			d := last[j]
			if a[i] != b[j] {
				d++
			}
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				d = min(d, before[j-1]+1)
			}
			row[j+1] = min(d, last[j+1]+1, row[j]+1)
		}
		before, last, row = last, row, make([]int, len(b)+1)
	}
	return last[len(b)]
}

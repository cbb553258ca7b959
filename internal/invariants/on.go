//go:build invariants

package invariants

// Enabled reports whether checks are compiled in.
const Enabled = true

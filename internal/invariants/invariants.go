// Package invariants checks rules that no input and no failing machine can break: only a
// defect of this module can. The checks cost too much for a job, or would end one that
// could go on; they are compiled in by the build tag "invariants", under which the race
// detector runs the tests (make race).
//
// A check whose arguments cost something stands behind Enabled, so that the compiler
// leaves it out:
//
//	if invariants.Enabled {
//		invariants.Check(slices.IsSorted(epochs), "epochs %v are not in order", epochs)
//	}
package invariants

import "fmt"

// Check panics if the rule does not hold, under the build tag; else it does nothing.
func Check(holds bool, format string, args ...any) {
	if Enabled && !holds {
		panic("invariant broken: " + fmt.Sprintf(format, args...))
	}
}

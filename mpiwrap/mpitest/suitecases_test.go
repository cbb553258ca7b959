package mpitest

import (
	"fmt"

	"github.com/holdfast-hpc/holdfast/mpiwrap"
)

// Case is one conformance test. Every rank of the world runs it; it returns what
// is wrong. It leaves no message and no communicator behind.
type Case struct {
	Name string
	Run  func(w *mpiwrap.Comm) error
}

// Suite returns the conformance cases. They hold on every message layer, with two
// ranks or more.
func Suite() []Case {
	var all []Case
	for _, group := range [][]Case{p2pCases, requestCases, collectiveCases, commCases, windowCases, drainCases,
		misuseCases, deviceCases} {
		all = append(all, group...)
	}
	return all
}

// Check runs the suite on a world, rank by rank in step, and stops at the first
// failure with the case's name.
func Check(w *mpiwrap.Comm, cases []Case) error {
	for _, c := range cases {
		if err := c.Run(w); err != nil {
			return fmt.Errorf("%s: %w", c.Name, err)
		}
		if err := w.Barrier(); err != nil {
			return fmt.Errorf("barrier after %s: %w", c.Name, err)
		}
	}
	return nil
}
